"""What things cost, as formulas: bytes, multiply-accumulates, seconds, and when storing pays. Nothing is measured here.

MACs are the multiply-accumulates of matrix products and weighted sums; FLOPs are twice as many (`flops`). Norms,
activations, softmaxes, dropout and the optimiser are left out, as in the papers. A training step is a forward pass and
one more product for each operand that takes a gradient, so three times the forward pass where both do.

Sources: storing and its times, spec A12 (Basirat 2024); the memory reader, spec B6 (de Jong et al. 2023); retrieval
fusion, spec B14 (Wu et al. 2024).

Axes: L views   T pieces of an item   D width   K key width
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import ConfigError
from .resolve import nearest
from .types import Spec

__all__ = [
    "TRAINING",
    "VALUE_BYTES",
    "Amount",
    "Product",
    "Shape",
    "adapter_products",
    "break_even",
    "encoder_products",
    "fid_macs",
    "flops",
    "forward_macs",
    "fusion_products",
    "inference_seconds",
    "item_bytes",
    "lumen_cross_score_macs",
    "lumen_macs",
    "lumen_question_macs",
    "lumen_score_macs",
    "memory_break_even",
    "memory_fid_macs",
    "memory_values",
    "precompute_macs",
    "reader_total_macs",
    "search_macs",
    "state_bytes",
    "step_macs",
    "tagger_products",
    "training_beats_inference",
    "training_seconds",
]

VALUE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""Bytes of one stored number."""

TRAINING = 3
"""A training step of a network in units of its forward pass (B6)."""


# Bytes


def state_bytes(rows: int, n_views: int, width: int, dtype: str) -> int:
    """Bytes of the states of `rows` pieces: rows x views x width numbers (A12), and int8's scale a row and view."""
    return rows * n_views * (width * VALUE_BYTES[dtype] + (2 if dtype == "int8" else 0))


def item_bytes(spec: Spec, rows: int) -> int:
    """Bytes one item of `rows` rows adds to a shard: states, the word of each row, key, offset and hashes."""
    n_views = len(spec.layers)
    return state_bytes(rows, n_views, spec.width, spec.dtype) + 4 * rows + 32 + 8 + 8 * (n_views + 1)


# Multiply-accumulates of encoders, adapters and heads


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a batch, or a corpus, holds: items, their pieces and words.

    `squares` is the sum over items of pieces^2 (what self-attention grows with), `pairs` that of words x pieces.
    """

    items: int
    pieces: int
    words: int
    squares: int
    pairs: int

    @classmethod
    def of(cls, pieces: Sequence[int], words: Sequence[int]) -> "Amount":
        """From every item's number of pieces and of words."""
        return cls(
            items=len(pieces),
            pieces=sum(pieces),
            words=sum(words),
            squares=sum(n * n for n in pieces),
            pairs=sum(n * w for n, w in zip(pieces, words, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product (or weighted sum): its MACs, and how many of its two operands take a gradient in training."""

    name: str
    macs: int
    gradients: int


def forward_macs(products: Iterable[Product]) -> int:
    """One forward pass."""
    return sum(product.macs for product in products)


def step_macs(products: Iterable[Product]) -> int:
    """One training step: forward, and a product of the same size for each operand with a gradient."""
    return sum(product.macs * (1 + product.gradients) for product in products)


def flops(macs: int) -> int:
    """Floating point operations: a multiplication and an addition each."""
    return 2 * macs


@dataclass(frozen=True, slots=True)
class Shape:
    """An encoder in numbers. `attention` is the width of all heads together, `feed` the inner width of the feed-forward
    part, `matrices` its number of weight matrices (3 where it is gated).

    `embedding` is the width of piece vectors where these are projected to `width`, else 0. `relative` counts the
    relative positions that every piece is multiplied with in a block (DeBERTa), else 0. `norm_first`: a block begins
    with a norm, which is trained too, so that its first products have two gradients even over stored states.
    """

    n_blocks: int
    width: int
    attention: int
    feed: int
    matrices: int = 2
    embedding: int = 0
    relative: int = 0
    norm_first: bool = False

    @property
    def linear(self) -> int:
        """MACs of one block a piece, whatever the length of its item."""
        own = 4 * self.width * self.attention + self.matrices * self.width * self.feed
        return own + self.relative * self.attention

    @property
    def quadratic(self) -> int:
        """MACs of one block a pair of pieces of an item: the score, and the weighted sum."""
        return 2 * self.attention


def encoder_products(shape: Shape, pieces: int, squares: int, live: int | None = None) -> list[Product]:
    """The products of the top `live` blocks in training; of all blocks and nothing trained where it is None.

    `live = n_blocks` is fine-tuning, embeddings included. Below that the lowest live block reads stored states, which
    take no gradient. `pieces` and `squares` are of what is really shown: windows, and padding where there is any.
    Raises ConfigError for a `live` that the encoder has not.
    """
    if live is not None and not 0 <= live <= shape.n_blocks:
        raise ConfigError(f"live={live} must lie between 0 and the encoder's {shape.n_blocks} blocks.")
    n_run = shape.n_blocks if live is None else live
    if n_run == 0:
        return []
    trained = 0 if live is None else 2
    whole = n_run == shape.n_blocks
    inputs = pieces * 3 * shape.width * shape.attention
    rest = pieces * shape.linear - inputs
    lowest = 1 if trained and not whole and not shape.norm_first else trained
    return [
        *([Product("embedding", pieces * shape.embedding * shape.width, trained)] if whole and shape.embedding else []),
        Product("query, key and value of the lowest block", inputs, lowest),
        Product("query, key and value", (n_run - 1) * inputs, trained),
        Product("attention", n_run * squares * shape.quadratic, trained),
        Product("output and feed-forward", n_run * rest, trained),
    ]


def adapter_products(name: str, amount: Amount, n_views: int, width: int, key_width: int = 16) -> list[Product]:
    """The products of an adapter (A2 to A6) over stored views, which take no gradient; `frozen` has none.

    Raises ConfigError for a name that has no formula.
    """
    if name == "frozen":
        return []
    if name == "linear":
        return [Product("mix", amount.words * n_views * width, 1)]
    if name == "fusion":
        return [Product(part, amount.words * n_views * width, 1) for part in ("scores", "mix")]
    if name == "agg":
        return _aggregation(amount, amount.words, n_views, width, key_width)
    if name in ("agg_tailor", "adapted"):
        return [*_aggregation(amount, amount.pieces, n_views, width, key_width), *_tailor(amount, width, key_width)]
    known = ["frozen", "linear", "fusion", "agg", "agg_tailor", "adapted"]
    raise ConfigError(f"no formula for the adapter {name!r}. There is: {', '.join(known)}.{nearest(name, known)}")


def _aggregation(amount: Amount, rows: int, n_views: int, width: int, key_width: int) -> list[Product]:
    """Attention of `rows` rows over the views; the means over views and over pieces are sums, not products."""
    keys = amount.items * n_views
    return [
        Product("layer queries and keys", (rows + keys) * width * key_width, 1),
        Product("layer queries and keys, second projection", (rows + keys) * key_width**2, 2),
        Product("layer scores", rows * n_views * key_width, 2),
        Product("mix", rows * n_views * width, 1),
    ]


def _tailor(amount: Amount, width: int, key_width: int) -> list[Product]:
    """All pieces are keys and values, words alone are queries."""
    return [
        Product("tailor's layer", amount.pieces * width**2, 2),
        Product("tailor's reducer", amount.pieces * width * key_width, 2),
        Product("tailor's queries and keys", (amount.words + amount.pieces) * key_width**2, 2),
        Product("tailor's scores", amount.pairs * key_width, 2),
        Product("tailor's sum", amount.pairs * width, 2),
    ]


def tagger_products(words: int, width: int, n_labels: int, trained_below: bool = True) -> list[Product]:
    """The tagging head (A-10). Its first product has one gradient where nothing below it is trained (Frozen)."""
    return [
        Product("inner", words * width**2, 2 if trained_below else 1),
        Product("outer", words * width * n_labels, 2),
    ]


def fusion_products(
    items: int, n_modules: int, k: int, width: int, *, by_rank: bool, by_feature: bool, projected: int = 0
) -> list[Product]:
    """What fusion adds to a forward pass (spec B14): `k` neighbours of this width weighed for each module, as wholes
    `by_rank` (RF-add, reranker) and each feature by itself `by_feature` (ordered mask), once an item whatever its
    length; `projected` is the width of slots that they are projected to, 0 where nothing projects."""
    summed = Product("neighbours by rank", items * n_modules * k * width, 1)
    masked = Product("neighbours by feature", items * n_modules * k * width, 1)
    to_slot = Product("projection", items * n_modules * width * projected, 2)
    return [*([summed] if by_rank else []), *([masked] if by_feature else []), *([to_slot] if projected else [])]


def search_macs(queries: int, rows: int, width: int) -> int:
    """Exact search: every query against every row."""
    return queries * rows * width


# Seconds, and when storing pays (A12)


def training_seconds(encode: float, forward: float, backward: float, epochs: int) -> float:
    """A12: (t_e + e (t_f + t_b)) / e, seconds of a training batch with the one encoding pass spread over the epochs."""
    if epochs < 1:
        raise ConfigError(f"epochs={epochs} must be at least 1.")
    return (encode + epochs * (forward + backward)) / epochs


def inference_seconds(encode: float, forward: float) -> float:
    """A12: t_e + t_f, seconds of a batch that was never stored."""
    return encode + forward


def training_beats_inference(encode: float, backward: float, epochs: int) -> bool:
    """A12: a training batch is cheaper than one of inference exactly where t_b < t_e (e - 1) / e."""
    return backward < encode * (epochs - 1) / epochs


def break_even(once: float, cached: float, live: float) -> float | None:
    """From how many on paying `once`, and `cached` for each, costs less than `live` for each; None where never.

    Epochs: one encoding pass, an epoch cached, an epoch live. Tasks: the same with whole trainings.
    """
    return once / (live - cached) if live > cached else None


# The memory reader (B6): n_source pieces over all passages, n_target pieces of the answer, a block counted as 12 D^2


def lumen_macs(n_source: int, n_target: int, width: int, n_live: int, n_decoder: int) -> int:
    """MACs of answering one question: live blocks, cross-attention's keys and values, decoder. Scores are left out."""
    return width**2 * (12 * n_source * n_live + 2 * n_source * n_decoder + 14 * n_target * n_decoder)


def fid_macs(n_source: int, n_target: int, width: int, n_blocks: int) -> int:
    """Everything live (alpha = 1): the whole encoder runs over every passage."""
    return lumen_macs(n_source, n_target, width, n_blocks, n_blocks)


def memory_fid_macs(n_source: int, n_target: int, width: int, n_blocks: int) -> int:
    """Nothing live (alpha = 0): passages come from memory."""
    return lumen_macs(n_source, n_target, width, 0, n_blocks)


def lumen_question_macs(n_question: int, width: int, n_memory: int) -> int:
    """What the paper leaves out: the question's own pass through the blocks below the live ones."""
    return 12 * width**2 * n_question * n_memory


def lumen_score_macs(n_source: int, n_together: int, width: int, n_live: int) -> int:
    """What the paper leaves out: self-attention's scores and sums, `n_together` pieces of question and passage."""
    return 2 * n_source * n_live * n_together * width


def lumen_cross_score_macs(n_source: int, n_target: int, width: int, n_decoder: int) -> int:
    """What the paper leaves out: cross-attention's scores and sums."""
    return 2 * n_target * n_decoder * n_source * width


def precompute_macs(n_passages: int, passage_pieces: int, width: int, n_memory: int) -> int:
    """Encoding all passages once through the `n_memory` blocks of the memory."""
    return 12 * width**2 * n_passages * passage_pieces * n_memory


def memory_values(n_passages: int, passage_pieces: int, width: int) -> int:
    """Numbers kept for all passages; of the passages of one question: numbers read for it."""
    return n_passages * passage_pieces * width


def reader_total_macs(
    inference: int, n_pretraining: int = 0, n_finetuning: int = 0, n_tasks: int = 1, n_inference: int = 0
) -> int:
    """A reader's whole life: examples of pre-training and of fine-tuning (for each task) cost three forward passes of
    `inference` MACs each, questions one."""
    return inference * (TRAINING * (n_pretraining + n_finetuning * n_tasks) + n_inference)


def memory_break_even(n_passages: int, passage_pieces: int, n_source: int, n_finetuning: int = 0) -> float:
    """Questions from which a memory of the whole corpus has paid for itself; the model's size cancels."""
    return n_passages * passage_pieces / n_source - TRAINING * n_finetuning
