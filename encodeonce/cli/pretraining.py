"""The job behind `pretrain`: documents to tuples, an estimate, sentences into the store, training, export, a report."""

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors.torch import save_file

from ..corpus.taxonomy import Taxonomy
from ..corpus.text import joined
from ..encoders.export import export
from ..encoders.masked_lm import MaskedLM
from ..encoders.pieces import load_tokenizer
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import DataError, EncoderError
from ..methods.fastdoc.examples import TASK, DocumentExamples
from ..methods.fastdoc.fastdoc import FastDoc, TripletScorer, projection
from ..methods.fastdoc.interpolation import interpolate, pretrained_weights
from ..methods.fastdoc.masking import Window, in_words, windows_of
from ..methods.fastdoc.measure import norms, plain_means
from ..methods.fastdoc.objective import Objective
from ..methods.fastdoc.sampling import Sample, SampleReport, shuffled
from ..methods.fastdoc.unsupervised import Topics, enough_for_topics, topics, topics_of
from ..store import Store
from ..train.atomic import write_bytes
from ..train.fit import fit
from ..train.settings import Settings
from ..types import Document
from .pretrain_config import PretrainConfig
from .pretrain_ledger import Ledger
from .pretrain_material import Material, check, paths_of, prepare, sampled, say_unread, topics_in, within
from .pretrain_origin import alone, holds, refuse_other
from .pretrain_pace import Pace
from .pretrain_scores import HeldOut, apart
from .pretrain_taxonomy import placed
from .steps import encode

__all__ = ["Job", "Planned", "pretrain"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Planned:
    """What a run trains on: documents, tuples and windows, as many as its budget pays for; `windowed` are the documents
    that windows are of."""

    material: Material
    windowed: list[Document]
    mapped: list[dict[str, Any]]
    sample: Sample
    paths: list[tuple[str, ...]]
    windows: list[Window]
    held: Sample | None
    pace: Pace


class Job:
    """One run of `pretrain` from config to report: `finished`, else `planned`, then `train`.

    `material` are documents that were read already, and where their categories went. A `brief` run scores nothing.
    """

    def __init__(
        self,
        config: PretrainConfig,
        folder: Path,
        *,
        material: tuple[Material, list[dict[str, Any]]] | None = None,
        brief: bool = False,
    ) -> None:
        self.config, self.folder, self.brief = config, folder, brief
        self.objective = Objective.named(config.objective, **config.options)
        self.settings = Settings(**config.train.model_dump(exclude_none=True))
        self.base = Pretrained(config.encoder, overlap=0)
        frozen = config.sentence_encoder or config.encoder
        self.source = Pooled(
            Pretrained(frozen, compute=config.compute), "sentence", config.pooling, normalize=config.normalize
        )
        self.seconds: dict[str, float] = {"draw": 0.0}
        self.stored = (0, 0)
        self.norms: dict[str, float] = {}
        self.topics: list[dict[str, Any]] = []
        self.head: MaskedLM | None = None
        self.mask_id = -1
        check(config, self.objective)
        refuse_other(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.read = self.material() if material is None else material

    def finished(self) -> dict[str, Any] | None:
        """The report, where the folder holds this run and it is whole. RunError where it holds another run."""
        if not holds(self.folder, self.config, self.base, self.source, self.read[0]):
            return None
        log.info("%s holds this run, finished", self.folder)
        return dict(json.loads((self.folder / "report.json").read_text()))

    def planned(self) -> Planned:
        """What is trained on, before anything is encoded; what cannot be trained is refused."""
        material, mapped = self.read
        self.refuse()
        self.store = Store.open(self.config.store, self.source.spec(dtype=self.config.dtype))
        sample, paths = self.sample(material.train)
        held = None if self.brief else self.held_sample(material.held_out)
        windowed = self.windowed(material.train, sample)
        windows = self.windows_of(windowed)
        pace = Pace(self.config, self.settings, self.objective, self.base, self.source, self.store)
        scored = apart(material.held_out, held)
        pace.probe([*self.used(material.train, sample), *scored], material.train, sample.tuples, windows)
        sample, windows = pace.sized(self.folder, material.train, sample, windows, scored)
        return Planned(material, windowed, mapped, sample, paths, windows, held, pace)

    def train(self, plan: Planned, beside: Callable[[Path], dict[str, Any]] = lambda _: {}) -> dict[str, Any]:
        """Encode what is missing, train, export; `beside` is asked for more of the report when the encoder is there."""
        material, sample, held = plan.material, plan.sample, plan.held
        used, scored = self.used(material.train, sample), apart(material.held_out, held)
        plan.pace.estimate([*used, *scored], sample.tuples, plan.windows)
        self.seconds["encode"], self.stored = self.fill(used, "encode.json")
        self.seconds["scoring"], _ = self.fill(scored, "encode-scored.json")
        method, examples, taxonomy = self.method(plan)
        scores = HeldOut(self.config, self.base, self.source, self.store, material.held_out, held)
        untouched, start = scores.measured(method), pretrained_weights(method)
        result = fit(method, examples, {TASK: TripletScorer()}, self.settings, folder=self.folder / "train")
        self.seconds["train"] = result.seconds
        interpolate(method, start, self.config.interpolate)
        masked = plan.pace.masked_flop
        ledger = Ledger(self.config, self.settings, self.base, self.source, self.seconds, self.stored, masked)
        read = material.train if self.objective.of_documents else plan.windowed
        exported = export(method.blocks, self.base.path, self.folder / "encoder", method.head)
        self.side(method, exported.head is False, taxonomy)
        lower = None
        if method.lower is not None:
            lower = export(method.lower, self.source.model.path, self.folder / "sentence-encoder").to_json()
        report = {
            "counts": material.counts,
            "sample": sample.report.to_json(),
            "tuples": len(sample.tuples),
            "taxonomy": [] if taxonomy is None else taxonomy.statistics(plan.paths),
            "mapped": plan.mapped,
            "topics": self.topics,
            "norms": self.norms,
            "held_out": {
                "tuples": 0 if held is None else len(held.tuples),
                "plain mean of sentence vectors": scores.plain(),
                "untouched": untouched,
                "trained": scores.measured(method),
            },
            "budget": self.config.budget,
            "costs": ledger.of(read, used, scored, examples, method, result),
            "interpolate": self.config.interpolate,
            "losses": [epoch["loss"] for epoch in result.epochs],
            "trace": method.trace,
            "export": {**exported.to_json(), "folder": "encoder"},
            **({} if lower is None else {"sentence_encoder": {**lower, "folder": "sentence-encoder"}}),
            "settings": self.settings.to_json(),
            "objective": self.objective.to_json(),
            **beside(self.folder / "encoder"),
        }
        write_bytes(self.folder / "report.json", (json.dumps(report, indent=1) + "\n").encode())
        return report

    # before

    def material(self) -> tuple[Material, list[dict[str, Any]]]:
        """The documents, in a taxonomy where one is given, and where their categories went."""
        material, data = prepare(self.config, self.fields()), self.config.data
        material = within(material, self.source) if self.config.full else material
        if data.taxonomy is None:
            return material, []
        n = len(material.train)
        moved, found = placed([*material.train, *material.held_out], data, self.source)
        return replace(material, train=moved[:n], held_out=moved[n:]), found

    def refuse(self) -> None:
        """What cannot be trained, before anything is encoded: a checkpoint without a head, vectors of another width (a
        masked objective is scored by them), topics of too few documents, paths that are all empty."""
        made, train = self.config.sample, self.read[0].train
        if made.topics:
            topics_in(train, made.topics)
        elif made.topic_levels:
            enough_for_topics(len(train), made.min_documents, made.n_topics or None)
        elif self.objective.hierarchy:
            Taxonomy.of(paths_of(train, self.config))
        if self.objective.masked:
            self.head, self.mask_id = _head(self.base.path, self.settings.seed if self.objective.new_head else None)
        entered = int(self.base.stack().model.get_input_embeddings().weight.shape[1])
        projection(self.source.model.width, entered, self.objective.projection)

    def fields(self) -> dict[str, str]:
        """The config's keys that name fields which this run reads, and the fields."""
        made, data = self.config.sample, self.config.data
        grouped = self.objective.of_documents and made.rule != "rouge" and not made.field
        named = {
            "data.path": data.path if grouped or (self.objective.hierarchy and not made.topic_levels) else "",
            "data.split": data.split,
            "sample.field": made.field if self.objective.of_documents and made.rule != "rouge" else "",
            "sample.topics": made.topics,
            "sample.brand": made.brand if self.objective.of_documents and made.rule == "brand" else "",
        }
        return {key: field for key, field in named.items() if field}

    def sample(self, documents: Sequence[Document]) -> tuple[Sample, list[tuple[str, ...]]]:
        """Tuples and category paths of the training documents."""
        made, seed = self.config.sample, self.settings.seed
        if not self.objective.of_documents:  # which reads no path
            return Sample(np.zeros((0, 3), np.int64), SampleReport(0, 0, 0, 0, 0, (), 0, 0)), []
        paths = paths_of(documents, self.config)
        with self.drawing():
            sample = sampled(documents, self.config, made.n, seed, made.shuffled)
        if sample.report.drawn < made.n:
            log.warning("%d tuples asked for; these documents have no more than %d", made.n, sample.report.drawn)
        log.info("tuples: %s", json.dumps({**sample.report.to_json(), "groups_without_partner": _named(sample)}))
        return sample, shuffled(paths, seed) if made.shuffled else paths

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """What is done inside is drawing tuples or finding topics, by its seconds."""
        began = time.perf_counter()
        yield
        self.seconds["draw"] += time.perf_counter() - began

    def held_sample(self, documents: Sequence[Document]) -> Sample | None:
        """Tuples of held-out documents, with their own metadata; None where there are none."""
        if not documents:
            return None
        try:
            return sampled(documents, self.config, self.config.sample.n_held_out, 0, False)
        except DataError as problem:
            log.warning("no held-out score: %s", problem)
            return None

    def used(self, documents: Sequence[Document], sample: Sample) -> list[Document]:
        """The training documents whose sentences are stored: those of tuples (all, where clusters are made of them;
        none, where a sentence encoder that is trained reads them)."""
        if self.config.sample.clustered:
            return list(documents)
        if self.config.full:
            return []
        return [documents[i] for i in np.unique(sample.tuples)]

    def windowed(self, documents: Sequence[Document], sample: Sample) -> list[Document]:
        """The documents that windows are of: those of tuples where the config says so, whether they are trained on."""
        if self.config.windows_of == "all" or not self.objective.masked:
            return list(documents)
        tuples, made = sample.tuples, self.config.sample
        if not len(tuples):
            tuples = sampled(documents, self.config, made.n, self.settings.seed, made.shuffled).tuples
        return [documents[i] for i in np.unique(tuples)]

    # the run

    def fill(self, documents: Sequence[Document], kept: str) -> tuple[float, tuple[int, int]]:
        """Encode what is missing: the seconds, with those of earlier calls of the same run, also of one that was
        killed; how many documents were stored before the first of these, and of how many. `kept` is the file that
        counts."""
        spent, keys = self.folder / kept, list(dict.fromkeys(self.store.keys(documents)))
        if spent.is_file():
            known = json.loads(spent.read_text())
        else:
            known = {"seconds": 0.0, "stored": len(keys) - len(self.store.missing(keys))}
        before = float(known["seconds"])

        def note(seconds: float) -> None:
            write_bytes(spent, json.dumps({**known, "seconds": before + seconds}).encode())

        note(0.0)
        done = encode(self.store, documents, self.source, note=note) if documents else None
        seconds = done.seconds if done is not None and done.report.written else 0.0
        note(seconds)
        return before + seconds, (int(known["stored"]), len(keys))

    def method(self, plan: Planned) -> tuple[FastDoc, DocumentExamples, Taxonomy | None]:
        """The trainee and its examples."""
        documents, sample, paths, windows = plan.material.train, plan.sample, plan.paths, plan.windows
        made, stack = self.objective, self.base.stack()
        if self.config.sample.topic_levels:
            with self.drawing():
                found = self.found_topics(documents)
            paths[:], self.topics = list(found.paths), found.to_json()
        taxonomy = Taxonomy.of(paths) if made.hierarchy else None
        labels = None if taxonomy is None else taxonomy.labels(paths)
        if made.of_documents:
            own = self.config.windows_per_batch if made.masked else 0
            full = self.config.full
            examples = DocumentExamples.read(
                documents,
                sample.tuples,
                labels,
                source=None if full else self.store,
                texts=self.source.cut(documents) if full else (),
                windows=windows,
                windows_per_batch=own,
            )
        else:
            examples = DocumentExamples(windows=tuple(windows))
        scale = 1.0
        if made.of_documents:
            measured = norms(stack, self._some(documents, examples, sample))
            self.norms, scale = measured.to_json(), measured.token_scale
            log.info("mean lengths: piece %(piece).2f, position %(position).2f, sentence %(sentence).2f", self.norms)
        method = FastDoc(
            stack,
            made,
            () if taxonomy is None else taxonomy.n_classes,
            sentence_width=self.store.spec.width,
            token_scale=scale,
            lower=self.source.model.stack() if self.config.full else None,
            head=self.head,
            mask_id=self.mask_id,
            seed=self.settings.seed,
            trace_every=self.settings.logging_steps,
        )
        return method, examples, taxonomy

    def found_topics(self, documents: Sequence[Document]) -> Topics:
        """The hierarchy over the topics that the documents name, or over clusters of their stored vectors."""
        asked, texts = self.config.sample, [d.text for d in documents]
        if asked.topics:
            return topics_of(topics_in(documents, asked.topics), texts, asked.topic_levels, asked.min_children)
        vectors = plain_means(self.store, self.store.index(self.store.keys(documents)))
        n_topics = asked.n_topics or None
        least = {"min_documents": asked.min_documents, "min_children": asked.min_children}
        return topics(vectors, texts, asked.topic_levels, n_topics=n_topics, **least)

    def _some(
        self, documents: Sequence[Document], examples: DocumentExamples, sample: Sample
    ) -> Float[np.ndarray, "S E"]:
        """Sentence vectors of some documents of tuples, stored or, where none are stored, made."""
        used = np.unique(sample.tuples)
        if not self.config.full:
            return self.store.batch(examples.index[used[:500]]).views[-1].numpy()
        cut = self.source.cut([documents[i] for i in used[:20]])
        return np.concatenate([views[-1] for _, views in self.source.encode(cut)])

    def windows_of(self, documents: Sequence[Document]) -> list[Window]:
        """Every document's pieces in windows of the config's size; none without a masked loss."""
        if not self.objective.masked:
            return []
        cutter = Pretrained(self.base.path, window=min(self.config.window, self.base.window), overlap=0)
        whole = list(map(joined, documents))
        cut = cutter.cut(whole)
        if self.objective.whole_words:
            texts = [document.text for document in whole]
            cut = in_words(cut, cutter.spans(texts), texts)
        return windows_of(cut, [document.place for document in documents])

    def side(self, method: FastDoc, with_head: bool, taxonomy: Taxonomy | None) -> None:
        """What the export has no place for: classification heads with the path of each class, a projection, a new
        masked-language head. What an earlier run of the folder left in their place is removed."""
        for name in ("classes.json", "heads.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
        if method.lower is None:
            shutil.rmtree(self.folder / "sentence-encoder", ignore_errors=True)
        if taxonomy is not None:
            classes = [[[], *map(list, level)] for level in taxonomy.classes]  # 0: the path ends above
            write_bytes(self.folder / "classes.json", (json.dumps(classes) + "\n").encode())
        parts = {
            "hierarchy": method.hierarchy,
            "projection": method.projection,
            "masked": method.head if with_head else None,
        }
        tensors = {f"{n}.{k}": t for n, part in parts.items() if part is not None for k, t in part.state_dict().items()}
        if tensors:
            save_file(tensors, self.folder / "heads.safetensors")


def pretrain(config: PretrainConfig, folder: Path) -> dict[str, Any]:
    """From documents to `folder/encoder`, an ordinary encoder; returns the report that `report.json` holds.

    Interrupted, it goes on where it was: stored sentences stay, and the loop resumes from its last checkpoint. A folder
    that holds the same run, finished, is left as it is. RunError where it holds another run, or an encoder or a report
    of something else, and where another process is at it.
    """
    job = Job(config, folder)
    say_unread(config, [job.objective])
    with alone(folder):
        return job.finished() or job.train(job.planned())


def _head(folder: Path, seed: int | None) -> tuple[MaskedLM, int]:
    """The masked-language head and the mask's id; EncoderError where the checkpoint has not both."""
    mask = load_tokenizer(folder).mask_token_id
    if mask is None:
        raise EncoderError(f"{folder}: its tokenizer has no mask, so no piece can be hidden. Take objective = 'both'.")
    try:
        return MaskedLM.load(folder, seed=seed), int(mask)
    except EncoderError as problem:
        raise EncoderError(
            f"{problem} Here: objective = 'both' needs no such head; options = {{ new_head = true }} trains a new one, "
            "where the family has such heads."
        ) from None


def _named(sample: Sample) -> str:
    names = sample.report.groups_without_partner
    return f"{len(names)}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "0"
