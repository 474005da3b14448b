"""Which passages answer a question: pairs of question and passage, each judged alone (FastDoc's S10 set; spec A12).

Documents are questions with passages (`corpus.question_files`): the sections of a manual, of which BM25 proposes some,
or the sentences of a section. A pair's second text is cut to what fits beside the question.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ..corpus.windows import HasPieces
from ..errors import ConfigError, DataError
from ..metrics.rouge import rouge_l, rouge_words
from ..metrics.techqa import hits
from ..retrieval import shown as text_of
from ..retrieval.bm25 import within
from ..types import Document, Passage, Question
from . import Task
from ._document_task import place_of
from ._pairs import Rooms, fitting

__all__ = ["Ranking"]

KS = (1, 3, 5)
WORDS = 100
"""Of an answer that ROUGE-L looks at, as in S10's script."""
METRICS = (*(f"hits@{k}" for k in KS), "ha_f1@1", "rouge_l")


@dataclass(frozen=True)
class JudgedPair:
    """One of the pairs of a question: its passage's id and text, and whether that answers. Of the question: the ids of
    all passages that do, the number of their characters, and the answer in words ("" where the file has none)."""

    question: str
    passage: str
    right: bool
    relevant: tuple[str, ...]
    characters: int
    answer: str
    text: str = field(default="", repr=False)


@dataclass(frozen=True)
class Ranking(Task):
    """`candidates` passages a question are judged: what BM25 finds, then others in their order (0: all); in training
    those that answer are among them. A question is cut to `question_pieces`. `answer` is the field with the answer in
    words. A prediction is the logit of the pair's being right."""

    candidates: int = 10
    metric: str = "hits@1"
    answer: str = "answer"
    piece: str = "document"
    question_pieces: int = 200
    called: str = "ranking"
    labels: tuple[str, ...] = ()

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "called")
    head: ClassVar[str] = "relevance"
    kind: ClassVar[str] = "ranking"

    def __post_init__(self) -> None:
        if self.metric not in METRICS or self.piece not in ("document", "document-words") or self.candidates < 0:
            raise ConfigError(
                f"metric={self.metric!r}, piece={self.piece!r}, candidates={self.candidates}: the metric is one of "
                f"{', '.join(METRICS)}, the head reads 'document' or 'document-words', candidates are 0 (all) or more."
            )

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """None beside width and labels."""
        return {}

    def learn(self, documents: Sequence[Document]) -> "Ranking":
        """With its label. DataError where no question has a passage that answers it."""
        if not any(self._asked(document).relevant for document in documents):
            raise DataError(f"task {self.name!r}: no examples with a passage that answers.")
        return replace(self, labels=("right",))

    def check(self, document: Document) -> None:
        """DataError for an item that is no question with passages."""
        self._asked(document)

    def _asked(self, document: Document) -> Question:
        asked = document.meta.get("asked")
        if isinstance(asked, Question) and not asked.text.strip():
            raise DataError(f"{place_of(document)}: task {self.name!r}: the question is empty.")
        if not isinstance(asked, Question) or not asked.passages:
            raise DataError(
                f"{place_of(document)}: task {self.name!r} reads questions with passages, and this item has none. "
                "Give a file of questions (format squad, techqa, sections, questions), and what they name as passages."
            )
        return asked

    def shown(
        self, documents: Sequence[Document], pieces: HasPieces, window: int, training: bool = False
    ) -> list[list[Document]]:
        """A pair a candidate of every question; in training all passages that answer are candidates."""
        asked = [self._asked(document) for document in documents]
        rooms = Rooms(pieces, window, [one.text for one in asked], self.question_pieces)
        whole = ["judged" in document.meta for document in documents]
        chosen = [() if done else own for own, done in zip(self._chosen(asked, training), whole, strict=True)]
        texts = list(
            dict.fromkeys(
                (passage, rooms.shown[q.text][1]) for q, own in zip(asked, chosen, strict=True) for passage in own
            )
        )
        kept = fitting(pieces, [text_of(passage) for passage, _ in texts], [room for _, room in texts])
        fits = {key: text for key, (text, _) in zip(texts, kept, strict=True)}
        found = []
        for document, one, own, done in zip(documents, asked, chosen, whole, strict=True):
            question, room = rooms.shown[one.text]
            pairs = [
                replace(document, text=question, pair=fits[passage, room], meta={**document.meta, "judged": passage})
                for passage in own
                if fits[passage, room]
            ]
            found.append([document] if done else pairs)
        return found

    def _chosen(self, asked: Sequence[Question], training: bool) -> list[tuple[Passage, ...]]:
        """The passages of each question that are judged."""
        if not self.candidates:
            return [(*one.passages, *(one.unlisted if training else ())) for one in asked]
        ranked = within([(one.text, one.passages) for one in asked], self.candidates)
        chosen = []
        for one, own in zip(asked, ranked, strict=True):
            at = list(dict.fromkeys([*own, *range(len(one.passages))]))[: self.candidates]
            found = tuple(one.passages[n] for n in at)
            if training:
                right = (*(passage for passage in one.passages if passage.id in one.relevant), *one.unlisted)
                wrong = [passage for passage in found if passage.id not in one.relevant]
                found = (*wrong[: max(0, self.candidates - len(right))], *right)
            chosen.append(found)
        return chosen

    def gold(self, documents: Sequence[Document]) -> list[JudgedPair]:
        """Of pairs. DataError for a question that `shown` has made no pairs of."""
        return [self._judged(document) for document in documents]

    def _judged(self, document: Document) -> JudgedPair:
        asked, passage = self._asked(document), document.meta.get("judged")
        if not isinstance(passage, Passage):
            raise DataError(f"{place_of(document)}: gold is of pairs, which `shown` makes of a question.")
        answer = document.meta.get(self.answer)
        characters = sum(len(one.text) for one in (*asked.passages, *asked.unlisted) if one.id in asked.relevant)
        return JudgedPair(
            f"{document.place} {asked.id}",
            passage.id,
            passage.id in asked.relevant,
            asked.relevant,
            characters,
            answer if isinstance(answer, str) else "",
            passage.text,
        )

    def ids(self, gold: JudgedPair) -> Float[np.ndarray, " 1"]:
        """1 for a passage that answers, else 0."""
        return np.array([gold.right], np.float32)

    def scored(self, ids: Float[np.ndarray, " 1"]) -> int:
        """One: the pair."""
        return 1

    def unseen(self, gold: JudgedPair) -> Iterable[str]:
        """There are no labels."""
        return ()

    def score(self, gold: Sequence[JudgedPair], predicted: Sequence[float]) -> dict[str, float | None]:
        """Over all questions, per cent: hits@k, whether a passage that answers is among the first k, missed too where
        it is no candidate. Of the passages judged right (logit above 0) together: ha_f1@1, F1 in characters of their
        overlap with those that answer, over the questions that have such; rouge_l, of the answer in words and their
        texts in order, the first 100 words of both, over the questions with an answer in words."""
        asked: dict[str, list[tuple[JudgedPair, float]]] = defaultdict(list)
        for one, logit in zip(gold, predicted, strict=True):
            asked[one.question].append((one, logit))
        ranked = [[one.passage for one, _ in sorted(own, key=lambda pair: -pair[1])] for own in asked.values()]
        first = [
            next((name for name in names if name in own[0][0].relevant), "")
            for names, own in zip(ranked, asked.values(), strict=True)
        ]
        said = [[one for one, logit in own if logit > 0] for own in asked.values()]
        overlaps, texts = [], []
        for chosen, own in zip(said, asked.values(), strict=True):
            about = own[0][0]
            if about.characters:
                right, size = (sum(len(one.text) for one in chosen if one.right or every) for every in (False, True))
                overlaps.append(2 * right / (size + about.characters))
            if about.answer:
                both = about.answer, " ".join(one.text for one in chosen)
                texts.append(rouge_l(*(rouge_words(text, WORDS) for text in both)))
        means = {"ha_f1@1": overlaps, "rouge_l": texts}
        return {
            **{f"hits@{k}": hits(ranked, first, k) for k in KS},
            **{name: 100 * sum(values) / len(values) if values else None for name, values in means.items()},
            "n": float(len(asked)),
        }

    def joined(self, parts: Sequence[Document], predicted: Sequence[float]) -> tuple[tuple[str, float], ...]:
        """Ids of the passages judged and their logits, best first."""
        named = [(part.meta["judged"].id, logit) for part, logit in zip(parts, predicted, strict=True)]
        return tuple(sorted(named, key=lambda pair: -pair[1]))

    def columns(
        self, documents: Sequence[Document], predicted: Sequence[tuple[tuple[str, float], ...] | None]
    ) -> dict[str, Sequence[Any]]:
        """Of what `joined` gives: ids, best first, as "ranked", and their logits as "logits"."""
        return {
            "ranked": [tuple(name for name, _ in own or ()) for own in predicted],
            "logits": [tuple(round(logit, 4) for _, logit in own or ()) for own in predicted],
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}}
