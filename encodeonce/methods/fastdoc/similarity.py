"""Which documents are similar: the rules of spec A7 as arrays, for a million documents as for ten.

A rule answers three questions: who has a partner at all, who are the partners of one document, and which of some
documents are similar to one. Documents of the same text are never each other's partner.

Axes: N documents   E entries (a document and one of its groups)   M candidates
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from ...errors import DataError

__all__ = ["Cited", "SharedGroup", "Similarity", "text_ids"]

Ids = Int[np.ndarray, " M"]


def text_ids(keys: Sequence[str]) -> Int[np.ndarray, " N"]:
    """A number a document, equal for equal content keys."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


class Similarity(ABC):
    """`texts[n]` is equal for documents of the same text; `alone` says why none may have a partner, and what to do."""

    alone = "every group holds a single text. Name a coarser field, or cut the category paths at a higher level."

    def __init__(self, texts: Int[np.ndarray, " N"]) -> None:
        self.texts = np.asarray(texts, np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    @abstractmethod
    def anchors(self) -> Ids:
        """Documents with at least one partner, ascending."""

    @abstractmethod
    def partners(self, document: int) -> Ids:
        """All similar documents of another text, ascending, each once."""

    @abstractmethod
    def draw(self, document: int, generator: np.random.Generator) -> int:
        """One partner, each as likely as the others; -1 where this draw met none (draw again)."""

    @abstractmethod
    def similar(self, document: int, others: Ids) -> Bool[np.ndarray, " M"]:
        """Which of the others are similar to the document."""

    def all_similar(self) -> bool:
        """Whether one look shows that all documents with metadata are similar to each other."""
        return False

    @abstractmethod
    def known(self) -> Bool[np.ndarray, " N"]:
        """Which documents have metadata: without any, nothing says that they are dissimilar either."""


class SharedGroup(Similarity):
    """Similar: at least one group in common. One group a document: equal category; several: shared concepts.

    `owner` and `group` [E] list the groups of each document; `names` are the groups', for reports.
    """

    def __init__(
        self,
        texts: Int[np.ndarray, " N"],
        owner: Int[np.ndarray, " E"],
        group: Int[np.ndarray, " E"],
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(texts)
        self.names = tuple(names)
        order = np.lexsort((group, owner))
        self.group = np.asarray(group, np.int64)[order]
        owner = np.asarray(owner, np.int64)[order]
        self.first = np.searchsorted(owner, np.arange(len(self) + 1))
        by_group = np.lexsort((owner, self.group))
        self.members = owner[by_group]
        n_groups = int(self.group.max(initial=-1)) + 1
        self.begin = np.searchsorted(self.group[by_group], np.arange(n_groups + 1))
        n_texts = int(self.texts.max(initial=0)) + 1
        pairs = np.unique(self.group * n_texts + self.texts[owner])
        self.n_texts = np.bincount(pairs // n_texts, minlength=n_groups)

    @classmethod
    def of(cls, keys: Sequence[str], groups: Sequence[Sequence[str]]) -> "SharedGroup":
        """From each document's content key and the names of its groups (none: no metadata)."""
        known: dict[str, int] = {}
        named = [dict.fromkeys(own) for own in groups]  # a name that stands twice is one group
        owner = [n for n, own in enumerate(named) for _ in own]
        group = [known.setdefault(name, len(known)) for own in named for name in own]
        return cls(text_ids(keys), np.array(owner, np.int64), np.array(group, np.int64), list(known))

    def groups_of(self, document: int) -> Ids:
        """The groups of one document."""
        return self.group[self.first[document] : self.first[document + 1]]

    def without_partner(self) -> list[str]:
        """Names of the groups that hold a single text."""
        return [self.names[g] if self.names else str(g) for g in np.flatnonzero(self.n_texts == 1)]

    def known(self) -> Bool[np.ndarray, " N"]:
        return np.diff(self.first) > 0

    def all_similar(self) -> bool:
        """One group holds every document: a single category, or a concept at the root of all others."""
        return int(np.diff(self.begin).max(initial=0)) == int(self.known().sum())

    def anchors(self) -> Ids:
        useful = np.concatenate([[0], np.cumsum(self.n_texts[self.group] > 1)])
        return np.flatnonzero(useful[self.first[1:]] > useful[self.first[:-1]])

    def together(self, document: int) -> Ids:
        """All documents of its groups, itself and others of its text among them, ascending."""
        own = [self.members[self.begin[g] : self.begin[g + 1]] for g in self.groups_of(document)]
        return np.unique(np.concatenate(own)) if own else np.zeros(0, np.int64)

    def partners(self, document: int) -> Ids:
        found = self.together(document)
        return found[self.texts[found] != self.texts[document]]

    def draw(self, document: int, generator: np.random.Generator) -> int:
        own = self.groups_of(document)
        sizes = self.begin[own + 1] - self.begin[own]
        place = int(generator.integers(int(sizes.sum())))
        which = int(np.searchsorted(np.cumsum(sizes), place, side="right"))
        found = int(self.members[self.begin[own[which]] + place - int(sizes[:which].sum())])
        if self.texts[found] == self.texts[document]:
            return -1
        if len(own) > 1:
            shared = len(np.intersect1d(own, self.groups_of(found), assume_unique=True))
            if generator.random() * shared >= 1:  # met once for every shared group
                return -1
        return found

    def similar(self, document: int, others: Ids) -> Bool[np.ndarray, " M"]:
        own, sizes = self.groups_of(document), self.first[others + 1] - self.first[others]
        flat = np.repeat(self.first[others] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        hits = np.concatenate([[0], np.cumsum(np.isin(self.group[flat], own))])
        stops = np.cumsum(sizes)
        return hits[stops] > hits[stops - sizes]


class Cited(Similarity):
    """Similar: the document cites the other, or one of its text. `source` cites `target` [E]; not symmetric, spec A7's
    last rule."""

    alone = "none cites another one. Name the field of the cited ids, or give the documents cited."

    def __init__(
        self, texts: Int[np.ndarray, " N"], source: Int[np.ndarray, " E"], target: Int[np.ndarray, " E"]
    ) -> None:
        super().__init__(texts)
        edges = np.unique(np.stack([source, target], 1).astype(np.int64), axis=0)
        edges = edges[self.texts[edges[:, 0]] != self.texts[edges[:, 1]]]
        self.target = edges[:, 1]
        self.first = np.searchsorted(edges[:, 0], np.arange(len(self) + 1))

    @classmethod
    def of(cls, keys: Sequence[str], ids: Sequence[str], cited: Sequence[Sequence[str]]) -> "Cited":
        """From keys, ids and the cited ids of each document; ids that are not among the documents are no partners.

        DataError where documents of several texts have the id that is cited.
        """
        place = {name: n for n, name in enumerate(ids)}
        several = {name for n, name in enumerate(ids) if keys[place[name]] != keys[n]}
        torn = next(((n, name) for n, own in enumerate(cited) for name in own if name in several), None)
        if torn is not None:
            raise DataError(
                f"{ids[torn[0]]!r} cites {torn[1]!r}, which is the id of {ids.count(torn[1])} documents, of different "
                "texts. Give each document an id of its own (data.columns = { id = 'NAME' })."
            )
        edges = [(n, place[name]) for n, own in enumerate(cited) for name in own if name in place]
        ends = np.array(edges, np.int64).reshape(-1, 2)
        made = cls(text_ids(keys), ends[:, 0], ends[:, 1])
        named = next((name for own in cited for name in own), None)
        if named is not None and not edges:
            made.alone = (
                f"they cite {named!r} and the like, and none of these is the id of one of them; ids are {ids[0]!r} and "
                "the like. Name the field of the ids (data.columns = { id = 'NAME' }), or give the documents cited."
            )
        return made

    def known(self) -> Bool[np.ndarray, " N"]:
        return np.ones(len(self), bool)

    def anchors(self) -> Ids:
        return np.flatnonzero(np.diff(self.first) > 0)

    def partners(self, document: int) -> Ids:
        return self.target[self.first[document] : self.first[document + 1]]

    def draw(self, document: int, generator: np.random.Generator) -> int:
        return int(generator.choice(self.partners(document)))

    def similar(self, document: int, others: Ids) -> Bool[np.ndarray, " M"]:
        return np.isin(self.texts[others], self.texts[self.partners(document)])

    def hard(self, document: int) -> Ids:
        """Cited by a cited document, but not by this one: SPECTER's hard negatives."""
        own = self.partners(document)
        further = [self.partners(int(one)) for one in own]
        found = np.unique(np.concatenate(further)) if further else np.zeros(0, np.int64)
        return found[~self.similar(document, found) & (self.texts[found] != self.texts[document])]
