"""Similar documents and a topic hierarchy where there is no metadata (FastDoc, section 5.6; spec A9).

Triplets by ROUGE-L: of a drawn pool the most similar text is the positive, one of the worst quarter the negative.
The hierarchy: clusters of document vectors, joined by Ward's method, cut into a geometric number of classes a level, so
that every class lies in one class of the level above.

Axes: N documents   D width   K leaf topics   H levels   V words
"""

import importlib
import logging
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from tqdm import tqdm

from ...corpus.text import CJK
from ...corpus.text import words as words_of
from ...errors import ConfigError, DataError, MissingExtra
from ...metrics.rouge import rouge_l, rouge_scores, rouge_words
from .sampling import Sample, SampleReport

__all__ = ["Topics", "enough_for_topics", "rouge_triplets", "topics", "topics_of"]

log = logging.getLogger("encodeonce")

Node = tuple[int, ...]
"""The leaf topics under a node, ascending."""

MARKING = re.compile(rf"[^\W\d_][^\s'’/@:]{{2,}}|[{CJK}]")
"""Words that may mark a topic: no numbers, clitics or addresses, no short ones where words are of letters."""


def rouge_triplets(texts: Sequence[str], n: int, seed: int = 0, pool: int = 64, max_words: int = 512) -> Sample:
    """Up to `n` triplets: the anchor's nearest of `pool` drawn documents by ROUGE-L over the first `max_words` words,
    and a document of the pool's worst quarter that is less similar to that positive, too, than the anchor is: so a
    triplet stays true when anchor and positive change places. Equal texts are never partners. `n` triplets are at
    least `pool` n comparisons, each of as many steps as words. DataError for fewer than four texts."""
    words = [rouge_words(text, max_words) for text in texts]
    distinct = np.array(sorted({text: i for i, text in reversed(list(enumerate(texts))) if words[i]}.values()))
    if len(distinct) < 4:
        raise DataError(f"{len(distinct)} different texts; triplets by similarity need at least 4.")
    generator = np.random.default_rng(seed)
    found: list[tuple[int, int, int]] = []
    taken: set[tuple[int, int]] = set()
    repeated = without_negative = 0
    for _ in tqdm(range(4 * n), desc="rouge", unit=" draws", disable=None, leave=False):
        if len(found) == n:
            break
        anchor = int(generator.choice(distinct))
        drawn = generator.choice(distinct, size=min(pool + 1, len(distinct)), replace=False)
        others = drawn[drawn != anchor][:pool]
        scores = np.array(rouge_scores(words[anchor], [words[one] for one in others]))
        order = np.argsort(-scores, kind="stable")
        worst = order[-max(1, len(order) // 4) :]
        positive, drawn_first = int(others[order[0]]), int(generator.choice(worst))
        pair = (min(anchor, positive), max(anchor, positive))
        if pair in taken:
            repeated += 1
            continue
        near = scores[order[0]]
        fitting = (
            int(others[one])
            for one in (drawn_first, *worst.tolist())
            if scores[one] < near and rouge_l(words[positive], words[others[one]]) < near
        )
        negative = next(fitting, None)
        if negative is None:
            without_negative += 1
            continue
        taken.add(pair)
        found.append((anchor, positive, negative))
    if not found:
        raise DataError(f"no triplet: among {len(distinct)} texts no text is nearer to another than the rest.")
    report = SampleReport(n, len(found), len(distinct), 0, len(texts) - len(distinct), (), repeated, without_negative)
    return Sample(np.array(found, np.int64), report)


@dataclass(frozen=True)
class Topics:
    """`paths[n]` is document n's path of topics, from the coarsest level; empty for an outlier. A topic that is not
    parted any further ends its documents' paths, so some may be shorter than others.

    `leaves` are the paths of the finest topics in their order, `words` those that mark each node of a path, by its
    name: level and number ("3.0" is the first topic of the third level).
    """

    paths: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[str, ...], ...]
    words: Mapping[str, tuple[str, ...]]
    n_classes: tuple[int, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Of each finest topic its path, its documents, the words that mark it and those of the nodes above it; last
        the outliers."""
        counts = Counter(self.paths)
        found: list[dict[str, Any]] = [
            {
                "path": list(path),
                "documents": counts[path],
                "words": list(self.words[path[-1]]),
                "above": [list(self.words[node]) for node in path[:-1]],
            }
            for path in self.leaves
        ]
        outside = {"path": [], "documents": counts[()], "words": [], "above": []}
        return [*found, outside] if counts[()] else found


def topics(
    vectors: Float[np.ndarray, "N D"],
    texts: Sequence[str],
    n_levels: int = 3,
    n_topics: int | None = None,
    min_documents: int = 5,
    min_children: int = 2,
    seed: int = 0,
) -> Topics:
    """Leaf topics by k-means over vectors of length 1 (default: one for 25 documents, 8 to 200, fewer where documents
    are few), then `topics_of`.

    Topics of fewer than `min_documents` documents are outliers: their documents are in no class. ConfigError for a
    number of topics that cannot be, DataError where fewer than two topics are left.
    """
    try:
        clusters: Any = importlib.import_module("sklearn.cluster")
    except ImportError:
        raise MissingExtra("topics need scikit-learn. Install it with: pip install 'encodeonce[topics]'") from None
    if len(vectors) != len(texts):
        raise ConfigError(f"{len(vectors)} vectors for {len(texts)} texts.")
    enough_for_topics(len(vectors), min_documents, n_topics)
    usual = min(200, max(8, len(vectors) // 25), len(vectors) // min_documents)
    wanted = usual if n_topics is None else n_topics
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    order = np.lexsort((np.array(texts), unit[:, 0]))  # so that the documents' order in a file changes no topic
    with warnings.catch_warnings():  # of fewer different vectors some topics hold nothing, and are left out below
        warnings.filterwarnings("ignore", "Number of distinct clusters", UserWarning)
        fitted = clusters.KMeans(wanted, n_init=3, random_state=seed).fit_predict(unit[order])
    labels = np.empty(len(unit), np.int64)
    labels[order] = fitted
    small = np.flatnonzero(np.bincount(labels, minlength=wanted) < min_documents)
    labels[np.isin(labels, small)] = -1
    if wanted - len(small) < 2:
        raise DataError(
            f"{wanted - len(small)} of {wanted} topics of {len(vectors)} documents hold min_documents={min_documents}"
            " of them: a hierarchy needs two such topics. Give more documents, fewer n_topics or a lower min_documents."
        )
    return topics_of(labels, texts, n_levels, min_children)


def enough_for_topics(n: int, min_documents: int, n_topics: int | None) -> None:
    """DataError where `n` documents are too few for two topics of `min_documents`, ConfigError where they do not make
    `n_topics` (None: their own number)."""
    if min_documents < 1 or (n_topics is not None and not 2 <= n_topics <= n):
        raise ConfigError(
            f"n_topics={n_topics} must lie between 2 and the {n} documents, min_documents={min_documents} be 1 or more."
        )
    if n < 2 * min_documents:
        raise DataError(f"{n} documents are too few for two topics of min_documents={min_documents} documents.")


def topics_of(
    labels: Sequence[int] | Int[np.ndarray, " N"], texts: Sequence[str], n_levels: int = 3, min_children: int = 2
) -> Topics:
    """A hierarchy over leaf topics that are known, such as a BERTopic model's `topics_` (-1: outlier, in no class).

    Level h of H has a number of classes between 2 and the leaf topics, spaced geometrically; nested by construction. A
    class has `min_children` classes below it at least: where the next level parts it into fewer, it takes those of the
    first level that has as many, or its leaf topics; 1 leaves every level as it is cut, with classes that are their
    parent's only child. ConfigError for numbers that cannot be, DataError where there are fewer than two topics.
    """
    from scipy.cluster.hierarchy import linkage

    labels = np.asarray(labels)
    if labels.shape != (len(texts),) or not np.issubdtype(labels.dtype, np.integer) or min_children < 1:
        raise ConfigError(
            f"topics of shape {labels.shape} and type {labels.dtype} for {len(texts)} texts, "
            f"min_children={min_children}: give a whole number for each text (-1: in no topic), and 1 child or more."
        )
    found = np.unique(labels[labels >= 0])
    if len(found) < 2 or n_levels < 1:
        raise DataError(f"{len(found)} topics and n_levels={n_levels}: a hierarchy needs at least 2 topics, 1 level.")
    counts, rarity, words = _class_tf_idf([labels == leaf for leaf in found], texts)
    weights = _shares(counts) * rarity
    unit = weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)
    distances = np.clip(1 - unit @ unit.T, 0, 2)
    steps = linkage(distances[np.triu_indices(len(found), 1)], "ward")
    sizes = [max(2, round(2 * (len(found) / 2) ** (h / max(1, n_levels - 1)))) for h in range(n_levels)]
    sizes = sizes if n_levels > 1 else [len(found)]
    if len(set(sizes)) < n_levels:
        log.warning("%d topics have %d levels of different sizes, not %d", len(found), len(set(sizes)), n_levels)
    nodes = _nested([_cut(steps, len(found), size) for size in sizes], min_children)
    known: list[dict[Node, str]] = [{} for _ in range(max(map(len, nodes)))]
    leaves = tuple(
        tuple(known[h].setdefault(node, f"{h + 1}.{len(known[h])}") for h, node in enumerate(path)) for path in nodes
    )
    marks = {}
    for node, name in (pair for level in known for pair in level.items()):
        row = _shares(counts[list(node)].sum(0, keepdims=True))[0] * rarity
        marks[name] = tuple(words[i] for i in np.argsort(-row, kind="stable")[:10] if row[i] > 0)
    path_of = dict(zip(found.tolist(), leaves, strict=True))
    paths = tuple(path_of.get(int(label), ()) for label in labels)
    return Topics(paths, leaves, marks, tuple(map(len, known)))


def _nested(levels: Sequence[Int[np.ndarray, " K"]], least: int) -> list[tuple[Node, ...]]:
    """For each leaf topic the nodes that it is in, from the coarsest, each with `least` children or more where it has
    as many leaf topics. `levels` number the class of each leaf topic."""
    found: list[tuple[Node, ...]] = [()] * len(levels[0])

    def grow(node: Node, level: int, above: tuple[Node, ...]) -> None:
        for h in range(level, len(levels)):
            own = levels[h][list(node)]
            parts = [tuple(leaf for leaf, c in zip(node, own, strict=True) if c == k) for k in dict.fromkeys(own)]
            if len(parts) >= least or (len(parts) > 1 and h == len(levels) - 1):
                for part in parts:
                    grow(part, h + 1, (*above, part))
                return
        for leaf in node:
            found[leaf] = above

    grow(tuple(range(len(levels[0]))), 0, ())
    return found


def _cut(steps: Float[np.ndarray, "J 4"], n: int, size: int) -> Int[np.ndarray, " K"]:
    """The joins that leave `size` clusters, by count and not by height: equal heights cut anywhere would not nest."""
    parent = np.arange(2 * n - 1)
    for made, (one, two, *_) in enumerate(steps[: n - size]):
        parent[[int(one), int(two)]] = n + made
    root = np.arange(n)
    while not (parent[root] == root).all():
        root = parent[root]
    return np.unique(root, return_inverse=True)[1]


def _class_tf_idf(
    classes: Sequence[np.ndarray], texts: Sequence[str]
) -> tuple[Float[np.ndarray, "K V"], Float[np.ndarray, " V"], list[str]]:
    """The counts of BERTopic's class-based TF-IDF, what a class's shares of them are multiplied with, ln(1 + A / f), A
    the classes' mean word count and f a word's, and the words.

    Words that begin with a letter and have three characters at least, and Chinese and Japanese characters, met in two
    documents at least; the 20,000 most frequent of them.
    """
    counts: list[Counter[str]] = []
    met: Counter[str] = Counter()
    for members in classes:
        own: Counter[str] = Counter()
        for n in np.flatnonzero(members).tolist():
            text = texts[n].lower()
            words = [text[a:b] for a, b in words_of(text) if MARKING.fullmatch(text, a, b)]
            own.update(words)
            met.update(set(words))
        counts.append(own)
    vocabulary = sorted(word for word, n in met.most_common(20_000) if n > 1) or sorted(met)
    if not vocabulary:
        raise DataError("topics have no words: the texts hold no word of three characters that begins with a letter.")
    place = {word: v for v, word in enumerate(vocabulary)}
    table = np.zeros((len(classes), len(vocabulary)))
    for k, own in enumerate(counts):
        for word, count in own.items():
            if word in place:
                table[k, place[word]] = count
    totals = np.maximum(table.sum(0), 1)
    return table, np.log(1 + int(table.sum(1).mean()) / totals), vocabulary


def _shares(counts: Float[np.ndarray, "K V"]) -> Float[np.ndarray, "K V"]:
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)
