"""A trained reader of memory (`methods.lumen`) with its encoder and a memory: what an `Answerer` asks."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..encoders.pretrained import Pretrained
from ..errors import CorruptStore, NotStored
from ..methods.lumen import Lumen, passage_document
from ..store import Store
from ..types import Answer, Question

__all__ = ["MemoryReader"]


class MemoryReader:
    """`encoder` is the design's (`Design.encoder`), `states` the memory's store: None where the method stores nothing.

    `size` questions are read at once.
    """

    def __init__(self, method: Lumen, encoder: Pretrained, states: Store | None, size: int = 8) -> None:
        self.method, self.encoder, self.states, self.size = method, encoder, states, size

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """One a question, in order; gold answers are not looked at.

        Shards that another process rewrote since they were opened are looked for once more. Raises NotStored for a
        passage that is not stored, SpecMismatch with every difference where the store is not the memory that this
        encoder makes.
        """
        try:
            return self._read(questions)
        except CorruptStore:
            if self.states is None:
                raise
            self.states.refresh()
            return self._read(questions)

    def _read(self, questions: Sequence[Question]) -> list[Answer]:
        method, found = self.method.eval(), []
        self._refuse_lost(questions)
        bare = [replace(question, answers=()) for question in questions]
        examples = method.read(bare, self.encoder, self.states)
        with torch.no_grad():
            for batch in method.batches(examples, size=self.size, order=None):
                found += [answer["answer"] for answer in method.predict(batch)]
        return found

    def _refuse_lost(self, questions: Sequence[Question]) -> None:
        if self.states is None:
            return
        passages = list({passage: None for question in questions for passage in question.passages})
        keys = [passage_document(passage, self.method.form).key for passage in passages]
        lost = self.states.missing(keys)
        if lost:
            raise NotStored(
                f"{self.states.path} lacks the states of {len(lost)} of {len(set(keys))} different passages, the first "
                f"{passages[lost[0]].id!r}. Give their files to `encodeonce memory build` or `add` again: what is lost "
                "is encoded anew."
            )
