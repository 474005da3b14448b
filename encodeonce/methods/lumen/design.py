"""Where the encoder is cut, what is stored, what is live and what may read what (de Jong et al. 2023; spec B1 to B4).

`live` from 0 to L covers the whole range: L is Fusion-in-Decoder, 0 is MemoryFiD, LUMEN lies between. The cut and the
blocks that the live ones start from are choices of their own (ours): a second copy of middle blocks over the memory.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...encoders.pretrained import Pretrained
from ...errors import ConfigError
from ...heads.span_reader import LONGEST
from ...nn.linear import COMPUTE
from ...resolve import nearest

__all__ = ["Design", "Plan", "n_live", "nearby_cuts"]

log = logging.getLogger("encodeonce")

CHOICES = {
    "memory": ("stored", "finetuned", "conditioned"),
    "question_encoder": ("trained", "frozen"),
    "attention": ("both", "no_q2mem", "no_mem2q", "neither"),
    "embeddings": ("trained", "frozen"),
    "targets": ("located", "occurrences"),
    "reader": ("span", "generate"),
    "positions": ("compact", "static"),
    "decoder_question": ("auto", "in_memory_each", "in_memory_once", "prefix", "none"),
    "compute": COMPUTE,
}
WRITING = ("decoder_question", "decoder_blocks", "n_beams", "length_penalty", "z_loss")
"""Settings of a reader that writes its answers."""


def n_live(alpha: float, n_blocks: int) -> int:
    """L-01: alpha L rounded half up, clamped to 0 ... L."""
    return min(n_blocks, max(0, math.floor(alpha * n_blocks + 0.5 + 1e-9)))


def nearby_cuts(n_blocks: int, live: int) -> list[tuple[int, tuple[int, ...]]]:
    """Cuts with the blocks that `live` live ones could start from, ours to try beside the paper's, which is first: the
    paper's cut and one block lower, with the next blocks, a second copy of the ones below, and what lies between."""
    cuts = [cut for cut in (n_blocks - live, n_blocks - live - 1) if cut > 0]
    starts = [(cut, cut - back) for cut in cuts for back in dict.fromkeys((0, live // 2, live)) if cut >= back]
    return [(cut, tuple(range(start, start + live))) for cut, start in starts]


@dataclass(frozen=True)
class Plan:
    """What a Design comes to for an encoder of `n_blocks`: the memory is the view after block `cut` (or a mix of the
    `stored` views), and copies of `blocks` run over [question; memory]. In distances between the two, passages stand
    at `together`, None: right behind the question. `dtype` is what the memory is best stored as: the stream of blocks
    that begin with a norm grows beyond fp16 (spec B8)."""

    n_blocks: int
    cut: int
    blocks: tuple[int, ...]
    stored: tuple[int, ...]
    first_position: int
    segment: int
    together: int | None = None
    dtype: str = "fp16"

    @property
    def alpha(self) -> float:
        """The live share that came out."""
        return len(self.blocks) / self.n_blocks


@dataclass(frozen=True)
class Design:
    """Settings of the method; one of `live`, `alpha` and `blocks` says how much is live (default: a third).

    `cut` is the view that is stored, by default L - live (the paper's). `blocks` are those that the live ones start as
    copies of, by default the ones above the cut. `layers` stores these views in place of the one and learns a mix of
    them. `question_pieces` is the longest question (L-06: 48); passages stand behind it (L-10).

    Ablations (B4): `memory` "finetuned" is trained and run on the fly, "conditioned" is frozen and run over [question;
    passage]; `question_encoder="frozen"`; `attention` "no_q2mem": question rows cannot read the passage, "no_mem2q":
    passage rows cannot read the question. `positions="static"` (L-04, as in T5X): where questions and passages meet,
    passages stand at `question_pieces` however short the question is, not right behind it; absolute positions are so
    in any case. `embeddings="frozen"` trains no piece vectors, which is cheaper.

    `targets`: the gold is where the file says, or every occurrence of an answer in any passage; a question whose
    answers stand nowhere in particular takes the occurrences. `compute` is the number type of live products, `dropout`
    the span reader's rate; blocks and decoder drop as their checkpoint says. No answer is given of more than
    `longest_answer` pieces: by default 30 of a span, 32 of what is written.

    `reader="generate"` writes the answer with T5's decoder, or with one that starts as the first `decoder_blocks`
    blocks of the encoder, by `n_beams`. `decoder_question` says how it sees the
    question (L-07); "auto" is "in_memory_each", and "in_memory_once" where nothing is live. `z_loss` is T5X's
    (1e-4 there).
    """

    live: int | None = None
    alpha: float | None = None
    cut: int | None = None
    blocks: Sequence[int] | None = None
    layers: Sequence[int] = ()
    memory: str = "stored"
    question_encoder: str = "trained"
    attention: str = "both"
    positions: str = "compact"
    embeddings: str = "trained"
    targets: str = "located"
    question_pieces: int = 48
    dropout: float = 0.1
    compute: str = "fp32"
    reader: str = "span"
    decoder_question: str = "auto"
    decoder_blocks: int | None = None
    longest_answer: int | None = None
    n_beams: int = 1
    length_penalty: float = 1.0
    z_loss: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if self.blocks is not None:
            object.__setattr__(self, "blocks", tuple(self.blocks))
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(
                    f"{name}={value!r} is not known. There is: {', '.join(allowed)}.{nearest(value, list(allowed))}"
                )
        given = [name for name in ("live", "alpha", "blocks") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} each say how much is live: give one.")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha={self.alpha} must lie between 0 (all from memory) and 1 (all live).")
        if self.question_pieces < 3:
            raise ConfigError(f"question_pieces={self.question_pieces} must be at least 3.")
        if self.longest < 1:
            raise ConfigError(f"longest_answer={self.longest_answer} must be at least 1.")
        idle = [name for name in WRITING if self.reader == "span" and getattr(self, name) != getattr(Design, name)]
        if idle:
            raise ConfigError(
                f"{' and '.join(idle)} are of a reader that writes, and this one points at spans. Set "
                "reader='generate', or leave them out."
            )

    @property
    def longest(self) -> int:
        """Pieces of the longest answer that is given."""
        if self.longest_answer is not None:
            return self.longest_answer
        return LONGEST if self.reader == "span" else 32

    def plan(self, encoder: Pretrained) -> Plan:
        """For an encoder. ConfigError for blocks or views that it has not, and for a cut that leaves none over it."""
        total = encoder.n_blocks
        if self.blocks is not None:
            blocks = tuple(self.blocks)
        else:
            live = self._live(total)
            cut = total - live if self.cut is None else self.cut
            blocks = tuple(range(cut, cut + live))
        cut = total - len(blocks) if self.cut is None else self.cut
        if not 0 <= cut <= total:
            raise ConfigError(f"cut={cut} must lie between 0 (nothing stored) and {total}, the encoder's blocks.")
        if blocks and not 0 <= min(blocks) <= max(blocks) < total:
            raise ConfigError(
                f"live blocks {list(blocks)} over cut={cut} must be among 0 to {total - 1}. Name others: blocks=..."
            )
        if self.layers and (cut not in self.layers or not 0 <= min(self.layers) <= max(self.layers) <= total):
            raise ConfigError(f"layers={list(self.layers)} must hold the cut, {cut}, and lie between 0 and {total}.")
        self._check_memory(cut)
        stored = () if cut == 0 or self.memory != "stored" else tuple(sorted(self.layers)) or (cut,)
        absolute = encoder.counts_positions
        return Plan(
            n_blocks=total,
            cut=cut,
            blocks=blocks,
            stored=stored,
            first_position=self.question_pieces if absolute else 0,
            segment=1 if absolute and encoder.n_segments > 1 else 0,
            together=self.question_pieces if self.positions == "static" else None,
            dtype="bf16" if encoder.shape.norm_first else "fp16",
        )

    def question_for_decoder(self, plan: Plan) -> str:
        """How a decoder sees the question."""
        if self.decoder_question != "auto":
            return self.decoder_question
        return "in_memory_each" if plan.blocks else "in_memory_once"

    def encoder(self, name: str | Path, **options: Any) -> Pretrained:
        """The checkpoint as this design needs it: what encodes passages into the memory, and cuts questions.

        `options` go to `Pretrained`. A store that it fills holds passages at their place behind a question; ConfigError
        where that leaves them no room.
        """
        whole = Pretrained(name)
        plan = self.plan(whole)
        if plan.first_position >= whole.window:
            raise ConfigError(
                f"question_pieces={self.question_pieces} leaves no room for a passage: {whole.path} can hold "
                f"{whole.window} pieces in all. Give less."
            )
        return Pretrained(name, **{"first_position": plan.first_position, "segment": plan.segment, **options})

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def chosen(self) -> dict[str, Any]:
        """What is not left as it is by default."""
        usual = Design().to_json()
        return {name: value for name, value in self.to_json().items() if value != usual[name]}

    def _live(self, total: int) -> int:
        if self.live is None:
            wanted = 1 / 3 if self.alpha is None else self.alpha
            live = n_live(wanted, total)
            if self.alpha is not None and abs(live / total - wanted) > 1e-9:
                log.warning("alpha=%g of %d blocks is %d live blocks, alpha=%.4f", wanted, total, live, live / total)
            return live
        if not 0 <= self.live <= total:
            raise ConfigError(f"live={self.live} must lie between 0 and {total}, the encoder's blocks.")
        return self.live

    def _check_memory(self, cut: int) -> None:
        if cut == 0 and (self.memory != "stored" or self.question_encoder == "frozen" or self.layers):
            raise ConfigError(
                "with cut=0 there is no memory and no block below the live ones: memory, question_encoder and layers"
                " must stay as they are."
            )
        if self.layers and self.memory != "stored":
            raise ConfigError(f"layers={list(self.layers)} are of a stored memory; this one is {self.memory}.")
