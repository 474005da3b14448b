"""Methods by name as a config has them: which settings a method gets, and how it is trained.

A value is looked for in the values that are tried, then in `[methods.NAME]`, then in `[adapter]` or `[finetune]` and in
`[train]`. A contender is a line of a comparison: a method, or the same one again with options of its own.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, count, islice, product
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..methods.aggregate import VARIANTS, Variant
from ..methods.finetune import ENCODER_RATES, TUNINGS, Tuning
from ..resolve import nearest
from ..serve.methods import MethodSettings
from ..train.settings import Settings
from .config import AdapterSection, FinetuneSection, MethodSection, TrainSection, parse

if TYPE_CHECKING:
    from .config import Config

__all__ = ["NAMES", "SEEDS", "Contender", "contender", "contenders", "say_unused"]

log = logging.getLogger("encodeonce")

NAMES = (*VARIANTS, *TUNINGS)
"""Every method that the command line knows."""

SEEDS = (13, 21, 42, 87, 100)
"""The first seeds of every experiment, in order; 1, 2, 3 and so on follow."""

RATES = ("encoder_learning_rate", "inside_learning_rate")
"""Keys of `[train]` that not every method has a use for."""

Point = Mapping[str, Any]
"""Values of settings that were chosen among those tried; empty where nothing is tried."""


@dataclass(frozen=True)
class Contender:
    """`options` are the method's settings that are set anywhere, `own` the keys of `[train]` that are its own."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def reads_only(self) -> bool:
        """Whether it trains nothing of the encoder."""
        return self.method in VARIANTS

    @cached_property
    def possible(self) -> tuple[MethodSettings, ...]:
        """The method's settings at every point of the grid; ConfigError for values that it cannot have."""
        tried = [key for key in self.grid if key in _options_of(self.method)]
        points = product(*(self.grid[key] for key in tried))
        return tuple(self.settings(dict(zip(tried, values, strict=True))) for values in points)

    @cached_property
    def uses(self) -> tuple[str, ...]:
        """The keys of `[adapter]` or `[finetune]` and of `[train]` that make a difference at some point of the grid."""
        found = {key for key in TrainSection.model_fields if key not in RATES}
        for settings in self.possible:
            found |= {*settings.uses, *(RATES[:1] if isinstance(settings, Tuning) and settings.trains_blocks else ())}
        section = AdapterSection if self.reads_only else FinetuneSection
        return tuple(key for key in (*section.model_fields, *TrainSection.model_fields) if key in found)

    def settings(self, point: Point | None = None) -> MethodSettings:
        """The method's settings; ConfigError for values that it cannot have."""
        known = _options_of(self.method)
        options = {**self.options, **{key: value for key, value in (point or {}).items() if key in known}}
        return Variant(self.method, **options) if self.reads_only else Tuning(self.method, **options)

    def training(self, config: "Config", point: Point | None = None, **changes: float | int) -> Settings:
        """The loop's settings; where no rate of the encoder's blocks is set, the method's own (`ENCODER_RATES`), where
        it is 0 the rate of all else. ConfigError for values that it cannot have."""
        tried = {key: value for key, value in (point or {}).items() if key in TrainSection.model_fields}
        values = {**config.train.model_dump(), **self.own, **tried, **changes}
        if values["encoder_learning_rate"] is None:
            settings = self.settings(point)
            has_own = isinstance(settings, Tuning) and settings.trains_blocks
            values["encoder_learning_rate"] = ENCODER_RATES.get(self.method, 0.0) if has_own else 0.0
        if values["early_stopping_patience"] and not (config.data.dev or config.data.dev_fraction):
            raise ConfigError(
                f"train.early_stopping_patience = {values['early_stopping_patience']} counts epochs without a better "
                "score on dev, and there is no dev. Set data.dev or data.dev_fraction, or patience to 0."
            )
        return Settings(**values)


def contender(config: "Config", name: str | None = None) -> Contender:
    """The config's own method, or another one, with all that the config says of it.

    Raises ConfigError for a name that is neither a method nor one of the config's `[methods]`, for values that the
    method cannot have, and for a table of `[methods]` that is of no method.
    """
    for table, own in config.methods.items():
        _refuse_unknown(own.method or table, NAMES, f"[methods.{table}]: ")
    name = name or config.method
    section = config.methods.get(name)
    method = (section.method if section is not None else None) or name
    _refuse_unknown(method, [*NAMES, *(one for one in config.methods if one not in NAMES)])
    kind = "adapter" if method in VARIANTS else "finetune"
    options = getattr(config, kind).chosen()
    if section is None:
        return _checked(Contender(name, method, options), MethodSection())
    stray = {"adapter": "finetune", "finetune": "adapter"}[kind]
    if getattr(section, stray).chosen():
        raise ConfigError(f"[methods.{name}.{stray}]: {method} takes its options from [methods.{name}.{kind}].")
    options |= getattr(section, kind).chosen()
    seeds = seeds_of(section.seeds) if section.seeds is not None else ()
    return _checked(Contender(name, method, options, section.own(), seeds, section.grid), section)


def contenders(
    config: "Config", names: Sequence[str], seeds: Sequence[int], rates: Sequence[float] = ()
) -> list[Contender]:
    """One a name. `seeds` and learning `rates` are those of contenders without any of their own; rates are tried by
    methods that only read, for one that trains the encoder has others. ConfigError as `contender`, and for a `seed`
    without `seeds` in a method's table."""
    found = []
    for name in dict.fromkeys(names):
        one = contender(config, name)
        if "seed" in one.own and not one.seeds:
            raise ConfigError(
                f"[methods.{name}]: seed = {one.own['seed']} is of `train`; a comparison trains every one of its seeds."
                f" Write seeds = [{one.own['seed']}] there for these alone, or take it out."
            )
        grid = one.grid or ({"learning_rate": tuple(rates)} if rates and one.reads_only else {})
        found.append(Contender(one.name, one.method, one.options, one.own, one.seeds or tuple(seeds), grid))
    return found


def seeds_of(wanted: int | Sequence[int]) -> tuple[int, ...]:
    """So many seeds, `SEEDS` first, or the seeds themselves. ConfigError where there is none, or one below 0."""
    if min([wanted - 1] if isinstance(wanted, int) else wanted, default=-1) < 0:
        raise ConfigError(
            f"seeds = {wanted!r}: give at least one, as a number of seeds or as a list of them, 0 or more."
        )
    following = (seed for seed in count(1) if seed not in SEEDS)
    return tuple(islice(chain(SEEDS, following), wanted)) if isinstance(wanted, int) else tuple(wanted)


def _refuse_unknown(method: str, known: Sequence[str], place: str = "") -> None:
    if method not in NAMES:
        raise ConfigError(
            f"{place}method {method!r} is not known. There is: {', '.join(known)}.{nearest(method, list(known))}"
        )


def _options_of(method: str) -> list[str]:
    made = Variant if method in VARIANTS else Tuning
    return [one.name for one in fields(made) if one.name != "name"]


def _checked(one: Contender, section: MethodSection) -> Contender:
    """The same; ConfigError where it cannot be made, or where its own table sets or tries what it has no use for."""
    one.settings()
    for key, values in one.grid.items():
        if not values:
            raise ConfigError(f"[methods.{one.name}.grid]: {key} = [] tries nothing. List values, or take it out.")
    if "shared" in one.grid:
        raise ConfigError(
            f"[methods.{one.name}.grid]: shared says which tasks are trained together, and a grid is chosen from task "
            "by task. Give each its own table of [methods]."
        )
    kind, own = ("adapter", AdapterSection) if one.reads_only else ("finetune", FinetuneSection)
    place = f"[methods.{one.name}.grid]"
    one = replace(one, grid={key: _values(key, values, own, place) for key, values in one.grid.items()})
    train = [key for key in one.uses if key in TrainSection.model_fields]
    options = [key for key in one.uses if key in own.model_fields]
    for table, keys, known in (
        (f".{kind}", getattr(section, kind).chosen(), options),
        ("", section.own(), train),
        (".grid", one.grid, [key for key in (*options, *train) if key != "seed"]),
    ):
        for key in keys:
            if key not in known:
                raise ConfigError(
                    f"[methods.{one.name}{table}]: {one.method} has no use for {key!r}.{nearest(key, known)} "
                    f"It takes: {', '.join(known)}."
                )
    return one


def _values(key: str, values: Sequence[Any], own: type[AdapterSection | FinetuneSection], place: str) -> list[Any]:
    """As the key's own table would take them, lists as tuples. ConfigError for one that it would not."""
    section = next((table for table in (own, TrainSection) if key in table.model_fields), None)
    if section is None:  # refused as unknown
        return list(values)
    found = [getattr(parse({key: value}, place, model=section), key) for value in values]
    return [tuple(value) if isinstance(value, list) else value for value in found]


def say_unused(config: "Config", taking_part: Iterable[Contender]) -> None:
    """Warn of keys in the tables for all methods that none of those taking part has a use for."""
    members = list(taking_part)
    for table, reads_only in (("adapter", True), ("finetune", False)):
        own = [one for one in members if one.reads_only == reads_only]
        if own:
            _warn(table, getattr(config, table).chosen(), own)
    _warn("train", [key for key in RATES if getattr(config.train, key)], members)


def _warn(table: str, keys: Iterable[str], members: Sequence[Contender]) -> None:
    unused = [key for key in keys if not any(key in one.uses for one in members)]
    if unused:
        names = ", ".join(dict.fromkeys(one.name for one in members))
        log.warning("[%s] sets %s, which changes nothing in %s", table, ", ".join(unused), names)
