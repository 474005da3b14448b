"""The methods that a plan times, each with the settings that training by the same config would give it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..encoders.pretrained import Pretrained
from ..methods.aggregate import VARIANTS, Variant
from ..methods.finetune import Tuning
from ..types import Spec
from . import learning
from .contenders import Contender, contender
from .sampling import Estimate

if TYPE_CHECKING:
    from .config import Config

__all__ = ["Timed", "only_view"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Timed:
    """`variants` read stored views, `live` train blocks, by how many: on the mix of stored views (`live_mix`), and all
    of them from piece ids (fine-tuning), which is the last. `attention` trains two on the mix, of the second its
    attention alone; None where no block has a half of its own, and where two are all of them or such a choice already.

    `weighed` is compared with fine-tuning: the config's own method, or Adapted where that reads no stored view;
    `tuning` are its settings where it trains blocks.
    """

    variants: Mapping[str, Variant]
    live: Mapping[int, Tuning]
    attention: Tuning | None
    weighed: Contender
    tuning: Tuning | None

    @classmethod
    def of(cls, config: "Config", own: Contender, spec: Spec, *, repeats: bool = False) -> "Timed":
        """The methods that can read these layers, and the config's own, which must. ConfigError where it cannot, and
        for settings that one of them cannot have. `repeats`: a block's weights run more than once (`Stack`)."""
        learning.layers_of(own.settings(), spec)
        settings, tuning = own.settings(), None
        live = _live(config, settings, spec)
        if isinstance(settings, Tuning):
            blocks = settings.plan(spec).blocks
            mixed = settings.name == "live_mix" and len(blocks) < spec.n_blocks
            tuning = live[len(blocks)] if mixed else settings
        weighed = own
        if tuning is not None and not _trains_on_views(tuning, spec):
            log.info("%s trains no block on stored views; adapted is what it is weighed against", own.method)
            weighed, tuning = contender(config, "adapted"), None
        attention = None if repeats else _attention(live, spec)
        return cls(_variants(config, own, weighed, spec), live, attention, weighed, tuning)

    @property
    def tunings(self) -> list[Tuning]:
        """All that train blocks, each once."""
        more = [one for one in (self.attention, self.tuning) if one is not None]
        return list(dict.fromkeys([*self.live.values(), *more]))

    def by_depth(self, epochs: Mapping[Tuning, Estimate]) -> dict[int, Estimate]:
        """An epoch by the number of live blocks; of a number that was not timed, on the line between its neighbours.
        None of nothing."""
        if not epochs:
            return {}
        timed = {depth: epochs[tuning] for depth, tuning in self.live.items()}
        return {depth: _between(timed, depth) for depth in range(1, max(timed) + 1)}


def only_view(weighed: Contender, spec: Spec, model: Pretrained) -> str:
    """The one view that a method reads whatever a store holds, as a config says it; "" where it mixes all."""
    read = learning.layers_of(weighed.settings(), replace(spec, layers=model.layers("all")))
    if len(read) != 1:
        return ""
    return "last" if read == model.layers("last") else str(list(read))


def _variants(config: "Config", own: Contender, weighed: Contender, spec: Spec) -> dict[str, Variant]:
    last = spec.layers[-1] == spec.n_blocks
    names = [name for name in VARIANTS if name != "agg_tailor" and (name != "frozen" or last)]
    members = {**{name: contender(config, name) for name in names}, own.method: own, weighed.method: weighed}
    found = {name: one.settings() for name, one in members.items()}
    return {name: one for name, one in found.items() if isinstance(one, Variant)}


def _live(config: "Config", own: Variant | Tuning, spec: Spec) -> dict[int, Tuning]:
    """One and two blocks on the mix, as many as the config's own method trains where it is such a one, and all."""
    all_, mine = spec.n_blocks, own if isinstance(own, Tuning) else None
    depths = {1, min(2, all_)}
    if mine is not None and mine.name == "live_mix":
        mix = mine
        depths.add(len(mine.plan(spec).blocks))
    else:
        mix = replace(_settings(config, "live_mix", "live", "blocks", "attention_only"), live=min(2, all_))
    chosen = mix.plan(spec).blocks
    found = {
        depth: mix if len(chosen) == depth else replace(mix, live=depth, blocks=(), attention_only=())
        for depth in sorted(depths)
        if depth < all_
    }
    if mine is not None and mine.plan(spec).pieces:
        return {**found, all_: mine}
    whole = _settings(config, "finetune", "live", "blocks", "attention_only", "lora")
    return {**found, all_: replace(whole, live=None, blocks=(), lora=None)}


def _attention(live: Mapping[int, Tuning], spec: Spec) -> Tuning | None:
    """Two blocks on the mix, without the second's feed-forward network."""
    two = live[min(2, spec.n_blocks)]
    return None if two.name != "live_mix" or two.attention_only else replace(two, attention_only=(-1,))


def _settings(config: "Config", name: str, *without: str) -> Tuning:
    """Of a method that trains blocks, without what `[finetune]` says of these keys, which may be for another one."""
    rest = config.finetune.model_copy(update=dict.fromkeys(without))
    lines = {line: section for line, section in config.methods.items() if section.method in (None, line)}
    found = contender(config.model_copy(update={"finetune": rest, "methods": lines}), name).settings()
    assert isinstance(found, Tuning)
    return found


def _trains_on_views(tuning: Tuning, spec: Spec) -> bool:
    plan = tuning.plan(spec)
    return bool(plan.layers and plan.blocks)


def _between(timed: Mapping[int, Estimate], depth: int) -> Estimate:
    """An epoch with `depth` live blocks, on the line between the next smaller and the next larger timed number."""
    if depth in timed:
        return timed[depth]
    below, above = max(d for d in timed if d < depth), min(d for d in timed if d > depth)
    part = (depth - below) / (above - below)
    less, more = timed[below].times(1 - part), timed[above].times(part)
    return Estimate(less.value + more.value, less.low + more.low, less.high + more.high)
