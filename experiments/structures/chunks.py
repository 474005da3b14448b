"""A chunking set derived from a UD treebank by rule. It is not CoNLL-2000, whose text may not be passed on.

    python experiments/structures/chunks.py ../shared/data/ud/en_ewt -o .work/chunks

writes FOLDER/{train,dev,test}.conll.gz: form, UPOS and IOB2 chunk tag, a word a row. What is written is a work derived
from UD English-EWT and under its licence, CC BY-SA 4.0; it stays in the ignored folder `.work`.

A chunk is what Tjong Kim Sang and Buchholz (2000) call a base phrase: a head with what stands before it, and no phrase
inside. Trees have no phrases, so the rule goes by relation and part of speech:

NP     NOUN, PROPN, PRON, NUM, DET, SYM, X; ADJ with a determiner, or as a subject or object. Before the head
       its det, amod, nummod, compound, nmod:desc, nmod:unmarked, possessive pronoun and, unless it is a predicate with
       a copula, advmod, each with what it is modified or coordinated by in turn; behind it flat, goeswith, fixed, a
       number, and a year after a comma. A genitive "'s" begins the chunk of what is possessed, as in CoNLL-2000.
VP     VERB and AUX: the last verb of a predicate and the aux, cop, "to" and "not" before it, with adverbs between.
       An infinitive right behind its governor's chunk (xcomp) is of the same chunk.
PP     case, and any other ADP, with what is fixed to it: the preposition alone
SBAR   mark, and any other SCONJ        PRT    compound:prt
ADJP   ADJ, with its modifiers before   ADVP   ADV, and "not" apart from a verb, likewise
CONJP  cc with fixed words ("as well as")          INTJ   INTJ
O      other cc and CCONJ, PUNCT, and SYM and X that stand for no word (discourse, such as smileys)

It differs from CoNLL-2000 where trees do not tell: coordinated heads are apart ("[cats] and [dogs]"), "enough" is no
part of "[good] enough", clause adverbs before an adjective are of its chunk ("is [always happy]"), and there is no LST.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from encodeonce.corpus import columns, read
from encodeonce.corpus.conllu import gold_heads
from encodeonce.errors import DataError
from encodeonce.nn.trees import is_tree
from encodeonce.spans import Span, from_spans
from encodeonce.types import Document

__all__ = ["base_chunks", "derive"]

NOMINAL = {"NOUN", "PROPN", "PRON", "NUM", "DET", "SYM", "X"}
BEFORE = {"det", "det:predet", "amod", "nummod", "compound", "nmod:poss", "nmod:desc", "nmod:unmarked", "advmod"}
"""Relations of what stands before a head and in its chunk."""
INNER = BEFORE | {"conj", "cc", "punct", "goeswith", "flat", "fixed"}
"""Relations inside what stands before a head."""
BEHIND = {"flat", "goeswith", "fixed", "nummod"}
ARGUMENTS = {"nsubj", "nsubj:pass", "obj", "iobj"}
VERBAL = {"aux", "aux:pass", "cop"}
BY_RELATION = {"case": "PP", "mark": "SBAR", "compound:prt": "PRT", "punct": "O"}
BY_CLASS = {"VERB": "VP", "AUX": "VP", "ADP": "PP", "SCONJ": "SBAR", "ADJ": "ADJP", "ADV": "ADVP", "PART": "ADVP"}
BY_CLASS |= {"INTJ": "INTJ", "CCONJ": "O", "PUNCT": "O", **dict.fromkeys(NOMINAL, "NP")}
SPLITS = ("train", "dev", "test")


def base_chunks(heads: Sequence[int], deprels: Sequence[str], upos: Sequence[str]) -> list[Span]:
    """The chunks of one tree in order. `heads[i]` is the head of word i + 1, words counted from 1, 0 the root.

    Chunks do not overlap. All words of one are below one of them, or below the predicate of its auxiliaries and copula.
    """
    return _Chunker([head - 1 for head in heads], deprels, upos).chunks()


class _Chunker:
    """One tree, words counted from 0. `chunk[i]` is the chunk of word i so far: its number, or -1."""

    def __init__(self, heads: list[int], deprels: Sequence[str], upos: Sequence[str]) -> None:
        self.heads, self.deprels, self.upos = heads, deprels, upos
        self.below: list[list[int]] = [[] for _ in heads]
        for word, head in enumerate(heads):
            if head >= 0:
                self.below[head].append(word)
        self.found: list[Span] = []
        self.chunk = [-1] * len(heads)

    def chunks(self) -> list[Span]:
        """From the root down, so that a governor takes its words before they could head a chunk."""
        waiting = [word for word, head in enumerate(self.heads) if head < 0]
        for word in waiting:
            self._take(word)
            waiting += self.below[word]
        for word, kind in enumerate(map(self.kind, range(len(self.heads)))):
            if self.chunk[word] < 0 and kind != "O":  # a word that its governor's chunk did not reach
                self._grow(kind, word, lambda _: False)
        return self._joined()

    def kind(self, word: int) -> str:
        """The type of the chunk that this word heads, "O" for none."""
        relation, upos = self.deprels[word], self.upos[word]
        if upos == "PART" and relation in ("case", "mark"):
            return {"case": "NP", "mark": "VP"}[relation]
        if relation == "cc":
            return "CONJP" if any(self.deprels[one] == "fixed" for one in self.below[word]) else "O"
        if relation in BY_RELATION:
            return BY_RELATION[relation]
        if relation == "discourse" and upos in ("SYM", "X"):
            return "O"
        if upos == "ADJ" and (relation in ARGUMENTS or any(self.deprels[one] == "det" for one in self.below[word])):
            return "NP"
        return BY_CLASS[upos]

    def _take(self, word: int) -> None:
        """The chunk that `word` heads, and that of the auxiliaries and the copula of what is no verb."""
        kind = self.kind(word)
        if self.chunk[word] < 0 and kind == "VP":
            self._grow("VP", word, lambda one: self._is_verbal(one, word) or self._is_adverb(one, word))
        elif self.chunk[word] < 0 and kind != "O":
            self._grow(kind, word, lambda one: self._stands_before(one, word))
        free = [one for one in self.below[word] if self.chunk[one] < 0 and self._is_verbal(one, word)]
        verbs = [one for one in free if self.upos[one] != "PART"]
        if kind != "VP" and verbs:
            last = verbs[-1]
            while last + 1 in free:  # "is not"
                last += 1
            self._grow("VP", last, lambda one: self._is_verbal(one, word) or self._is_adverb(one, word))

    def _grow(self, kind: str, head: int, joins: Callable[[int], bool]) -> None:
        """Mark `head` and the words before it that join without a gap, then those fixed behind it, as one chunk."""
        start = head
        while start > 0 and self.chunk[start - 1] < 0 and joins(start - 1):
            start -= 1
        while start < head and self._is_loose(start, kind):
            start += 1
        stop = head + 1
        while stop < len(self.heads) and self.chunk[stop] < 0 and self._stands_behind(stop, head):
            stop += 1
        while self.upos[stop - 1] == "PUNCT" and stop > head + 1:
            stop -= 1
        self.chunk[start:stop] = [len(self.found)] * (stop - start)
        self.found.append(Span(kind, start, stop))

    def _is_loose(self, word: int, kind: str) -> bool:
        """Whether a chunk cannot begin with this word."""
        return self.upos[word] in ("PUNCT", "CCONJ") or (kind == "VP" and self.deprels[word].startswith("advmod"))

    def _is_verbal(self, word: int, predicate: int) -> bool:
        """An auxiliary, a copula, "to" or "not" of this predicate."""
        part = self.upos[word] == "PART" and self.deprels[word] in ("mark", "advmod")
        return self.heads[word] == predicate and (part or self.deprels[word] in VERBAL)

    def _is_adverb(self, word: int, predicate: int) -> bool:
        """An adverb of this predicate, or a word of one ("has very often been")."""
        while self.heads[word] != predicate:
            if self.deprels[word] != "advmod" or self.heads[word] < 0:
                return False
            word = self.heads[word]
        return self.deprels[word] == "advmod"

    def _stands_before(self, word: int, head: int) -> bool:
        """Whether the relations from this word up to the head are all those of a chunk."""
        if self.heads[word] == head and self.deprels[word] == "punct":
            return True
        if self.deprels[word] == "case" and self.upos[word] == "PART":  # "'s": as its possessor's governor
            possessor = self.heads[word]
            word = self.heads[possessor]
            return self.deprels[possessor] == "nmod:poss" and (word == head or self._stands_before(word, head))
        while self.heads[word] != head:
            if self.deprels[word] not in INNER or self._is_apart(word) or self.heads[word] < 0:
                return False
            word = self.heads[word]
        return self.deprels[word] in BEFORE and not self._is_apart(word)

    def _is_apart(self, word: int) -> bool:
        """A possessor with "'s", a "not", and an adverb of a predicate are no part of the phrase they modify."""
        if self.deprels[word] == "nmod:poss":
            return any(self.upos[one] == "PART" for one in self.below[word])
        of_predicate = any(self.deprels[one] == "cop" for one in self.below[self.heads[word]])
        nominal = self.kind(self.heads[word]) == "NP"
        return self.deprels[word] == "advmod" and (self.upos[word] == "PART" or (of_predicate and nominal))

    def _stands_behind(self, word: int, head: int) -> bool:
        """A word of a name or a fixed expression, a number, a year, or the comma before it."""
        if self.upos[word] == "PUNCT":
            following = word + 1 < len(self.heads) and self.upos[word + 1] != "PUNCT"
            return following and self.heads[word] in (head, word + 1) and self._stands_behind(word + 1, head)
        while self.heads[word] != head and self.heads[word] > head and self.deprels[word] in INNER:
            word = self.heads[word]
        year = self.deprels[word] == "nmod:unmarked" and self.upos[word] == "NUM"
        return self.heads[word] == head and (self.deprels[word] in BEHIND or year)

    def _joined(self) -> list[Span]:
        """In order, an infinitive's chunk joined to its governor's where this stands right before it."""
        joined: list[Span] = []
        for span in sorted(self.found, key=lambda span: span.start):
            if joined and joined[-1].type == span.type == "VP" and joined[-1].stop == span.start:
                predicates = {self._predicate(word) for word in range(span.start, span.stop)}
                before = {self._predicate(word) for word in range(joined[-1].start, joined[-1].stop)}
                if any(self.deprels[one] == "xcomp" and self.heads[one] in before for one in predicates):
                    span = Span("VP", joined.pop().start, span.stop)
            joined.append(span)
        return joined

    def _predicate(self, word: int) -> int:
        """The word itself, or what it is an auxiliary, a copula, a "to" or a "not" of."""
        return self.heads[word] if self._is_verbal(word, self.heads[word]) else word


def derive(document: Document) -> Document:
    """The same words with the columns form, upos and tag (IOB2). DataError for what is no tree."""
    upos, heads = document.columns["upos"], gold_heads(document)
    if not is_tree(heads):
        raise DataError(f"{document.place}: {document.id!r} is no tree of one root; chunks are derived from trees.")
    spans = base_chunks(heads, document.columns["deprel"], upos)
    tags = tuple(from_spans(spans, len(document.words)))
    return Document(document.id, document.words, columns={"form": document.words, "upos": upos, "tag": tags})


def main() -> None:
    """Derive the three splits of the treebank in a folder."""
    parser = argparse.ArgumentParser(description="Derive a chunking set from a UD treebank.")
    parser.add_argument(
        "treebank", type=Path, help="folder with one CoNLL-U file a split, named ...train..., ...dev..."
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of {train,dev,test}.conll.gz")
    arguments = parser.parse_args()
    for split in SPLITS:
        (path,) = arguments.treebank.glob(f"*-{split}.conllu*")
        documents = [derive(document) for document in read(path)]
        arguments.output.mkdir(parents=True, exist_ok=True)
        columns.write(arguments.output / f"{split}.conll.gz", documents, {})
        n = sum(tag.startswith("B-") for document in documents for tag in document.columns["tag"])
        print(f"{split}: {len(documents)} sentences, {n} chunks")


if __name__ == "__main__":
    main()
