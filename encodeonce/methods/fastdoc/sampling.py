"""Triplets and quadruplets of documents, drawn from metadata (FastDoc, sections 3.1 and A; spec A7).

An anchor is drawn from the documents that have a partner, a positive from its partners, a negative from the documents
that are similar to neither of them. So a triplet stays true when anchor and positive change places.

Axes: N documents   Q tuples   K documents of a tuple (3, or 4)
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from ...errors import ConfigError, DataError
from .similarity import Cited, SharedGroup, Similarity

__all__ = ["Sample", "SampleReport", "quadruplets", "shuffled", "triplets"]

TRIES = 64
"""Draws for one choice before all candidates are listed."""

STREAK = 200
"""Repeated pairs in a row after which the remaining ones are listed."""

Pool = Int[np.ndarray, " N"]


@dataclass(frozen=True)
class SampleReport:
    """`anchors` could be drawn; `without_partner` have metadata and no partner, `without_metadata` none (they are in no
    tuple); `groups_without_partner` hold a single text. `repeated`: pairs drawn again and left out; `without_negative`:
    pairs that everything else is similar to. `drawn` may be less than `asked`: there are no more pairs."""

    asked: int
    drawn: int
    anchors: int
    without_partner: int
    without_metadata: int
    groups_without_partner: tuple[str, ...]
    repeated: int
    without_negative: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Sample:
    """`tuples` [Q K]: document numbers of anchor, positive (near and far for K = 4) and negative.

    `symmetric`: a negative is dissimilar to the positive too; hard negatives need not be.
    """

    tuples: Int[np.ndarray, "Q K"]
    report: SampleReport
    symmetric: bool = True

    def doubled(self) -> "Sample":
        """Each tuple, and all of them once more with anchor and (near) positive in each other's place: 2 Q.

        ConfigError for a sample with hard negatives, and for quadruplets, whose far positive is the anchor's.
        """
        if not self.symmetric or self.tuples.shape[1] != 3:
            raise ConfigError("only triplets without hard negatives stay true when anchor and positive change places.")
        swapped = self.tuples.copy()
        swapped[:, [0, 1]] = self.tuples[:, [1, 0]]
        return Sample(np.concatenate([self.tuples, swapped]), self.report)


def triplets(rule: Similarity, n: int, seed: int = 0, hard_ratio: float = 0.0) -> Sample:
    """Up to `n` triplets under a rule, no pair twice in either order; the same for the same seed.

    With a citation rule, `hard_ratio` of the negatives are cited by a document that the anchor cites. Raises DataError
    where nothing has a partner, or everything is similar to everything; ConfigError for settings that cannot be.
    """
    if hard_ratio and not isinstance(rule, Cited):
        raise ConfigError(f"hard_ratio={hard_ratio}: hard negatives are cited by cited documents; this rule has none.")
    return _Sampler(rule, rule, n, seed, hard_ratio).sample()


def quadruplets(category: SharedGroup, brand: SharedGroup, n: int, seed: int = 0) -> Sample:
    """(anchor, near, far, negative): near of the same brand and category, far of the category and another brand, the
    negative of neither (spec A6, eq. 3)."""
    return _Sampler(_Both(category, brand), category, n, seed, 0.0, brand).sample()


class _Both(Similarity):
    """Similar by category and by brand."""

    alone = (
        "an anchor needs a document of its category and brand, and one of its category and another brand. Name a "
        "coarser category, or another field of the brand."
    )

    def __init__(self, category: SharedGroup, brand: SharedGroup) -> None:
        super().__init__(category.texts)
        self.category, self.brand = category, brand

    def known(self) -> Bool[np.ndarray, " N"]:
        return self.category.known() & self.brand.known()

    def far(self, document: int) -> Pool:
        """Of the category, and of another brand that is known."""
        found = self.category.partners(document)
        return found[~self.brand.similar(document, found) & self.brand.known()[found]]

    def anchors(self) -> Pool:
        """Documents of equal categories and brands are looked at together: their candidates are the same."""
        alike: dict[tuple[bytes, bytes], list[int]] = {}
        for d in np.intersect1d(self.category.anchors(), self.brand.anchors()).tolist():
            groups = (self.category.groups_of(d).tobytes(), self.brand.groups_of(d).tobytes())
            alike.setdefault(groups, []).append(d)
        known, found = self.brand.known(), []
        for own in alike.values():
            others = self.category.together(own[0])
            same = self.brand.similar(own[0], others)
            near, far = (np.unique(self.texts[others[which]]) for which in (same, ~same & known[others]))
            if len(near) > 1:
                found += [d for d in own if len(far) > 1 or (len(far) == 1 and far[0] != self.texts[d])]
        return np.array(sorted(found), np.int64)

    def partners(self, document: int) -> Pool:
        found = self.category.partners(document)
        return found[self.brand.similar(document, found)]

    def draw(self, document: int, generator: np.random.Generator) -> int:
        found = self.category.draw(document, generator)
        return found if found >= 0 and bool(self.brand.similar(document, np.array([found]))[0]) else -1

    def similar(self, document: int, others: Pool) -> Bool[np.ndarray, " M"]:
        return self.category.similar(document, others) & self.brand.similar(document, others)


class _Sampler:
    """`rule` makes positives, what is similar by `away` (or `brand`) is no negative."""

    def __init__(
        self, rule: Similarity, away: Similarity, n: int, seed: int, hard_ratio: float, brand: SharedGroup | None = None
    ) -> None:
        if n < 1 or not 0 <= hard_ratio <= 1:
            raise ConfigError(f"n={n} must be at least 1 and hard_ratio={hard_ratio} between 0 and 1.")
        self.rule, self.away, self.n, self.hard_ratio, self.brand = rule, away, n, hard_ratio, brand
        self.generator = np.random.default_rng(seed)
        self.pool = np.flatnonzero(rule.known())
        self.anchors = rule.anchors()
        self.taken: set[tuple[int, int]] = set()
        self.repeated = self.without_negative = 0
        self.hopeless = np.zeros(len(rule), bool)  # similar to all others, so that no pair with them has a negative
        self._check()

    def _check(self) -> None:
        if not len(self.pool):
            raise DataError(
                f"none of {len(self.rule)} documents has metadata: the field is empty everywhere. Name one that has "
                "values, or take triplets by similar texts (rouge_triplets; sample.rule = 'rouge')."
            )
        if not len(self.anchors):
            raise DataError(
                f"no document of {len(self.rule)} has a partner ({len(self.pool)} have metadata): {self.rule.alone}"
            )
        if self.away.all_similar():
            raise DataError(
                f"no negatives: all {len(self.pool)} documents with metadata are similar to each other. Give documents "
                "of more than one category, or a field with no name that they all have."
            )

    def sample(self) -> Sample:
        found: list[tuple[int, ...]] = []
        streak = 0
        while len(found) < self.n and streak < STREAK:
            anchor = int(self.anchors[self.generator.integers(len(self.anchors))])
            made = self._tuple(anchor, self._positive(anchor))
            streak = 0 if made else streak + 1
            found += [made] if made else []
        if len(found) < self.n:
            found += self._rest(self.n - len(found))
        if not found:
            raise DataError(f"no negatives: every one of {self.without_negative} pairs is similar to all the rest.")
        return Sample(np.array(found, np.int64), self._report(len(found)), symmetric=not self.hard_ratio)

    def _rest(self, wanted: int) -> list[tuple[int, ...]]:
        """Pairs are running out: every one that is left, in a drawn order. Those of a document that is similar to all
        others are counted and not looked at one by one."""
        met = self._codes(np.array(sorted(self.taken), np.int64).reshape(-1, 2))
        visited = np.zeros(len(self.rule), bool)
        found: list[tuple[int, ...]] = []

        def lost(anchor: int, positives: Pool) -> None:
            fresh = positives[~visited[positives]]
            pairs = np.stack([np.minimum(fresh, anchor), np.maximum(fresh, anchor)], 1)
            self.without_negative += int((~np.isin(self._codes(pairs), met)).sum())

        for anchor in self.generator.permutation(self.anchors).tolist():
            partners = self.generator.permutation(self.rule.partners(anchor))
            without = self.hopeless[partners] | self.hopeless[anchor]
            lost(anchor, partners[without])
            left = partners[~without]
            for at, positive in enumerate(left.tolist()):
                made = self._tuple(anchor, positive)
                found += [made] if made else []
                if len(found) == wanted:
                    return found
                if self.hopeless[anchor]:
                    lost(anchor, left[at + 1 :])
                    break
            visited[anchor] = True
        return found

    def _codes(self, pairs: Int[np.ndarray, "M 2"]) -> Int[np.ndarray, " M"]:
        return pairs[:, 0] * len(self.rule) + pairs[:, 1]

    def _positive(self, anchor: int) -> int:
        for _ in range(TRIES):
            found = self.rule.draw(anchor, self.generator)
            if found >= 0:
                return found
        return int(self.generator.choice(self.rule.partners(anchor)))

    def _tuple(self, anchor: int, positive: int) -> tuple[int, ...] | None:
        pair = (min(anchor, positive), max(anchor, positive))
        if pair in self.taken:
            self.repeated += 1
            return None
        self.taken.add(pair)
        negative = self._negative(anchor, positive)
        if negative < 0:
            self.without_negative += 1
            for one in pair:
                self.hopeless[one] = not self._apart(one, one, self.pool).any()
            return None
        if isinstance(self.rule, _Both):
            far = self.rule.far(anchor)
            far = far[self.rule.texts[far] != self.rule.texts[positive]]
            return (anchor, positive, int(self.generator.choice(far)), negative) if len(far) else None
        return anchor, positive, negative

    def _negative(self, anchor: int, positive: int) -> int:
        if self.hard_ratio and self.generator.random() < self.hard_ratio:
            assert isinstance(self.rule, Cited)
            hard = self.rule.hard(anchor)
            texts = self.rule.texts
            hard = hard[(texts[hard] != texts[anchor]) & (texts[hard] != texts[positive])]
            if len(hard):
                return int(self.generator.choice(hard))
        for _ in range(TRIES // 8):
            drawn = self.pool[self.generator.integers(len(self.pool), size=8)]
            fitting = drawn[self._apart(anchor, positive, drawn)]
            if len(fitting):
                return int(fitting[0])
        left = self._negatives(anchor, positive)
        return int(self.generator.choice(left)) if len(left) else -1

    def _negatives(self, anchor: int, positive: int) -> Pool:
        return self.pool[self._apart(anchor, positive, self.pool)]

    def _apart(self, anchor: int, positive: int, others: Pool) -> Bool[np.ndarray, " M"]:
        """Which of the others are of another text than both, and such that neither is similar to them."""
        fitting = np.ones(len(others), bool)
        for one in (anchor, positive):
            fitting &= self.rule.texts[others] != self.rule.texts[one]
            fitting &= ~self.away.similar(one, others)
            if self.brand is not None:
                fitting &= ~self.brand.similar(one, others)
        return fitting

    def _report(self, drawn: int) -> SampleReport:
        named = self.away.without_partner() if isinstance(self.away, SharedGroup) else []
        n_known = len(self.pool)
        return SampleReport(
            asked=self.n,
            drawn=drawn,
            anchors=len(self.anchors),
            without_partner=n_known - len(self.anchors),
            without_metadata=len(self.rule) - n_known,
            groups_without_partner=tuple(named),
            repeated=self.repeated,
            without_negative=self.without_negative,
        )


def shuffled(values: Sequence[Any], seed: int = 0) -> list[Any]:
    """The same metadata given to other documents: the control under which nothing but chance can be learned from it."""
    return [values[i] for i in np.random.default_rng(seed).permutation(len(values))]
