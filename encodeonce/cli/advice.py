"""From a plan's numbers to what to do, each with its reason in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Advice", "Facts", "advised", "bytes_text", "seconds_text"]

ROOM = 0.9
"""Part of the free disk that a store may take."""
FP16_LARGEST = 65504.0
QUARTER = 0.25
"""A live part is worth its price while an epoch of it costs at most this part of one of fine-tuning."""


@dataclass(frozen=True)
class Advice:
    """What to choose (`choice`: store, layers, dtype or live), and why."""

    choice: str
    value: str
    reason: str


@dataclass(frozen=True)
class Facts:
    """What advice is drawn from. `bytes` by layer choice and type, `held` by the store already (of the config's own
    layers and type, and `complete` where nothing is missing); seconds are `first` (until all is stored), one epoch
    `cached`, one epoch `live` by depth (none: no item is short enough), one with a whole live block and the `attention`
    of the next (None: cannot be had). `largest` is the largest absolute value seen, `memory` None where unknown.
    `view` is the only one that the method reads, as a config says it ("last", "[2]"); "" where it mixes all."""

    method: str
    epochs: int
    live_epochs: int
    largest: float
    bytes: Mapping[tuple[str, str], float]
    held: int
    complete: bool
    disk: int
    memory: int | None
    first: float
    cached: float
    live: Mapping[int, float]
    attention: float | None = None
    view: str = ""


def advised(facts: Facts) -> list[Advice]:
    """Whether to store, which layers, which type, how many live blocks."""
    chosen = _chosen(facts)
    layers, dtype = chosen or ("last", "int8")
    advice = [_store(facts, chosen)]
    if chosen is not None:
        advice += [_layers(facts, layers, dtype), _dtype(facts, layers, dtype)]
    return [*advice, _live(facts, store=chosen is not None)]


def _half(facts: Facts) -> str:
    """The two-byte type that holds what was seen."""
    return "fp16" if facts.largest <= FP16_LARGEST else "bf16"


def _preferred(facts: Facts) -> list[tuple[str, str]]:
    """From best to smallest. Fewer bits come before fewer layers: int8 cost no accuracy where leaving out two of seven
    layers cost a point (English-EWT relations)."""
    half = _half(facts)
    names = [name for name in ("all", "4", "last") if (name, half) in facts.bytes]
    names = ["last"] if facts.view else names  # any one view takes as much
    return [(name, dtype) for name in names for dtype in (half, "int8")]


def _chosen(facts: Facts) -> tuple[str, str] | None:
    """The first preference that fits disk and memory, else the first that fits the disk."""
    room = ROOM * (facts.disk + facts.held)
    fits = [choice for choice in _preferred(facts) if facts.bytes[choice] <= room]
    cached = [choice for choice in fits if facts.memory is None or facts.bytes[choice] <= facts.memory]
    return next(iter([*cached, *fits]), None)


def _store(facts: Facts, chosen: tuple[str, str] | None) -> Advice:
    if chosen is None:
        least = facts.bytes[_preferred(facts)[-1]]
        text = f"the smallest choice takes {bytes_text(least)}, and the disk has {bytes_text(facts.disk)} free"
        return Advice("store", "no", text)
    if facts.complete:
        return Advice("store", "yes", "everything is stored already; only training is left to pay")
    if not facts.live:
        return Advice("store", "yes", "every training item is longer than live blocks can be given, in fine-tuning too")
    cached, live = facts.first + facts.epochs * facts.cached, facts.live_epochs * facts.live[max(facts.live)]
    text = (
        f"encoding once and {facts.epochs} epochs of {facts.method} take {seconds_text(cached)}, "
        f"{facts.live_epochs} epochs of fine-tuning {seconds_text(live)}"
    )
    if cached <= live:
        return Advice("store", "yes", text)
    if facts.live_epochs * facts.live[max(facts.live)] > facts.epochs * facts.cached:
        return Advice("store", "yes, for several tasks or runs", f"{text}; the pass is paid once, for all of them")
    return Advice("store", "no", text)


def _layers(facts: Facts, layers: str, dtype: str) -> Advice:
    size = bytes_text(facts.bytes[layers, dtype])
    if facts.view:
        which = "the last view" if facts.view == "last" else f"view {facts.view.strip('[]')}"
        return Advice("layers", facts.view, f"{facts.method} reads {which} only: {size}")
    if layers == "all":
        return Advice("layers", layers, f"every view can be mixed, which is where the gain over one lies; {size} fit")
    whole = bytes_text(facts.bytes["all", dtype])
    return Advice("layers", layers, f"all would take {whole}, more than there is room for; these take {size}")


def _dtype(facts: Facts, layers: str, dtype: str) -> Advice:
    half = _half(facts)
    if dtype == "int8":
        text = f"{half} would take {bytes_text(facts.bytes[layers, half])}, more than {_bound(facts, layers, half)}"
        return Advice("dtype", dtype, f"{text}; relative error below 1e-2")
    if dtype == "bf16":
        return Advice("dtype", dtype, f"values up to {facts.largest:.3g} were seen, and fp16 ends at {FP16_LARGEST:g}")
    return Advice(
        "dtype", dtype, f"half of fp32's bytes at a relative error of 2e-4; largest value {facts.largest:.3g}"
    )


def _bound(facts: Facts, layers: str, dtype: str) -> str:
    """What a choice does not fit into."""
    disk = facts.bytes[layers, dtype] > ROOM * (facts.disk + facts.held)
    room = facts.disk if disk or facts.memory is None else facts.memory
    return f"the {bytes_text(room)} of {'free disk' if disk else 'memory'}"


def _live(facts: Facts, store: bool) -> Advice:
    """The deepest live part within a quarter of fine-tuning's epoch."""
    if not facts.live:
        return Advice("live", "0", "every training item is longer than live blocks can be given")
    all_ = max(facts.live)
    whole = facts.live[all_]
    if not store:
        return Advice("live", str(all_), f"nothing is stored, so all blocks run anyway: {seconds_text(whole)} an epoch")
    within = [depth for depth, seconds in facts.live.items() if depth < all_ and seconds <= QUARTER * whole]
    deepest = max(within, default=0)
    if facts.attention is not None and deepest < 2 and facts.attention <= QUARTER * whole:
        text = f"a whole block and the attention of the next take {_part(facts.attention, whole)}"
        return Advice("live", "2, attention_only = [-1]", f"{text}; with both whole it would be over a quarter")
    if not within:
        return Advice("live", "0", f"one live block already costs over a quarter of all {all_} an epoch")
    text = f"live_mix takes {_part(facts.live[deepest], whole)}"
    return Advice("live", str(deepest), f"{text}; with more blocks it would be over a quarter")


def _part(seconds: float, whole: float) -> str:
    return f"{seconds_text(seconds)} an epoch, {100 * seconds / whole:.0f} % of fine-tuning's"


def bytes_text(n: int | float) -> str:
    """With three digits and a unit of a thousand."""
    units: Sequence[str] = ("B", "kB", "MB", "GB", "TB", "PB")
    power = 0
    while n >= 999.5 and power < len(units) - 1:
        n, power = n / 1000, power + 1
    return f"{_three(n)} {units[power]}"


def seconds_text(seconds: int | float) -> str:
    """Milliseconds to days, with three digits."""
    if seconds < 1:
        return f"{_three(1e3 * seconds)} ms"
    for unit, length, last in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < length * last:
            return f"{_three(seconds / length)} {unit}"
    return f"{_three(seconds / 86400)} days"


def _three(n: int | float) -> str:
    """Three digits: 1.70, 85.4, 854."""
    return f"{n:#.3g}".rstrip(".") if n < 1000 else f"{n:,.0f}"
