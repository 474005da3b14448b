"""What is trained on: the named objectives and their settings (FastDoc; spec A2, A6, A10)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ...errors import ConfigError
from ...nn.linear import COMPUTE
from ...resolve import nearest

__all__ = ["OBJECTIVES", "Objective"]

OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    "triplet": {"hierarchy": False},
    "hier": {"triplet": False},
    "both": {},
    "masked": {"triplet": False, "hierarchy": False, "masked": True},
    "combined": {"masked": True},
    "release": {"padded": 64, "triplet_on": "positions"},
}
"""Name -> what it changes of the defaults."""

CHOICES = {
    "triplet_on": ("documents", "positions"),
    "reduction": ("sum", "mean"),
    "projection": ("", "linear", "frozen"),
    "scale": ("", "token"),
    "compute": COMPUTE,
}

KINDS: Mapping[type, tuple[str, Any]] = {
    bool: ("true or false", bool),
    int: ("a whole number", int),
    float: ("a number", (int, float)),
    str: ("a string", str),
}
"""Kind of a default -> what values of it are called, and what they may be."""

READERS: Mapping[str, tuple[str, ...]] = {
    "triplet": ("margin", "far", "triplet_on"),
    "hierarchy": ("reduction", "head_hidden"),
    "masked": ("probability", "whole_words", "new_head"),
    "of_documents": ("projection", "scale", "padded"),
    "lora": ("lora_alpha",),
}
"""What has to be on -> settings that nothing else reads."""


@dataclass(frozen=True)
class Objective:
    """`Objective.named("both")`, or with changes: `Objective.named("both", reduction="mean")`.

    `triplet` is eq. 1, or eq. 3 where the sample has quadruplets (`far` is its K); `hierarchy` eq. 2, summed over
    documents and levels or their "mean" (`reduction`), with heads of a hidden layer of `head_hidden`; `masked` adds the
    masked-language loss of the documents' pieces, `probability` of them hidden, whole words at once with `whole_words`;
    `new_head` lets a checkpoint without a masked-language head start with a new one.

    "release" computes what the authors' code does: every document padded with zero vectors, or cut, to `padded` rows
    and no mask, the mean over all rows, and the triplet loss between rows of equal position (`triplet_on`; spec A2, A5,
    A6). Without a mask the number of rows is in every number: padding is attended to and averaged. It is not published;
    64 is what a comment of the code says, 512 what the paper does.

    `projection` maps sentence vectors of another width ("linear": trained, "frozen": not); without it such an encoder
    is refused. `scale` "token" multiplies them to the mean length of piece vectors. `lora` is the rank of low-rank
    terms that are trained instead of the encoder's weights (0: the weights). `compute` is the number type of products.
    """

    triplet: bool = True
    hierarchy: bool = True
    masked: bool = False
    margin: float = 1.0
    far: float = 0.1
    triplet_on: str = "documents"
    padded: int = 0
    reduction: str = "sum"
    head_hidden: int = 0
    probability: float = 0.15
    whole_words: bool = False
    new_head: bool = False
    projection: str = ""
    scale: str = ""
    lora: int = 0
    lora_alpha: float = 16.0
    compute: str = "fp32"

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}.")
        if not (self.triplet or self.hierarchy or self.masked):
            raise ConfigError("nothing to train on: triplet, hierarchy and masked are all off.")
        if self.triplet_on == "positions" and not self.padded:
            raise ConfigError("triplet_on='positions' compares rows of equal number: it needs padded=64 (release).")
        if self.margin <= 0 or not 0 <= self.far < 1 or not 0 < self.probability < 1:
            raise ConfigError(
                f"margin={self.margin} must be positive, far={self.far} in [0, 1), probability={self.probability} in "
                "(0, 1)."
            )
        if min(self.lora, self.head_hidden, self.padded) < 0 or self.lora_alpha <= 0:
            raise ConfigError(
                f"lora={self.lora}, head_hidden={self.head_hidden} and padded={self.padded} must be 0 (none) or more, "
                f"lora_alpha={self.lora_alpha} greater than 0."
            )

    @classmethod
    def named(cls, name: str, **changes: Any) -> "Objective":
        """The objective of that name; ConfigError for a name or a setting that is unknown, and for a value of another
        kind, as a config file may hold it."""
        if name not in OBJECTIVES:
            known = list(OBJECTIVES)
            raise ConfigError(
                f"objective {name!r} is not known. There is: {', '.join(known)}, and in `pretrain` probe, which tries "
                f"several.{nearest(name, [*known, 'probe'])}"
            )
        defaults: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        for key, value in changes.items():
            if key not in defaults:
                known = list(defaults)
                raise ConfigError(f"objective has no {key!r}.{nearest(key, known)} It takes: {', '.join(known)}.")
            called, kinds = KINDS[type(defaults[key])]
            if not isinstance(value, kinds) or isinstance(value, bool) != (kinds is bool):
                raise ConfigError(f"{key}={value!r} must be {called}.")
        changes = {key: type(defaults[key])(value) for key, value in changes.items()}  # a whole number is a number too
        return cls(**{**OBJECTIVES[name], **changes})

    @property
    def of_documents(self) -> bool:
        """Whether there is a loss over document vectors."""
        return self.triplet or self.hierarchy

    def rows(self, lengths: Sequence[int]) -> list[int]:
        """The rows that documents of so many sentences are read as."""
        return [self.padded or length for length in lengths]

    def idle(self, names: Iterable[str]) -> list[str]:
        """Those of these settings that this objective does not read."""
        unread = [name for part, own in READERS.items() if not getattr(self, part) for name in own]
        return [name for name in names if name in unread]

    def chosen(self) -> dict[str, Any]:
        """The settings that are not left as they are by default."""
        return {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
