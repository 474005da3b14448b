"""All fused modules of one model: ranking parameters, architecture, and the vectors that are added (ReFusion, eq. 11).

Candidates of a module share its base map, so the integrator's output is y + sum_c softmax(alpha)_c delta_c: one base
product. Every delta is linear in the neighbours, so all modules' together are one product of weights and neighbours.
Masks are multiplied by their shares behind the product, where there are fewer numbers: the gradient of an architecture
is then a sum over them, and the product has none.

Axes: M modules   C candidates of a module   K neighbours, nearest first   D their width   B items   O a slot's width
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...errors import ConfigError
from .fusing import SLOTS, Fusing
from .ranking import gumbel, kept, mask_weights, ranks, released_weights

__all__ = ["Decision", "Fusion", "Site"]

log = logging.getLogger("encodeonce")

Masks = tuple[tuple[Float[Tensor, " M"], Float[Tensor, "M K D"]], ...]
"""Share and weights of the neighbours' features, a scheme after the other."""

Weights = tuple[Float[Tensor, "M K"] | None, Masks, frozenset[int]]
"""Of neighbours as wholes (None: no module has any) and of their features, and the modules that add nothing."""


@dataclass(frozen=True)
class Site:
    """Where a module stands: its block, the slot by our name, the slot's width."""

    block: int
    slot: str
    width: int


@dataclass(frozen=True)
class Decision:
    """What the architecture says of one module: the candidates' shares, the one chosen, how far ahead it is."""

    block: int
    slot: str
    shares: Mapping[str, float]
    chosen: str
    lead: float


class Fusion(nn.Module):
    """`sites` are the modules, `width` is D. Start values depend on `seed` where any is drawn.

    Ranks start equal, chains at ln K (41 of 64 neighbours kept on average), the architecture undecided, projections at
    0. Raises ConfigError where widths differ and nothing projects, or where `choice` names other than M schemes.
    """

    def __init__(self, fusing: Fusing, sites: Sequence[Site], width: int, seed: int = 0) -> None:
        super().__init__()
        self.fusing, self.sites, self.width = fusing, tuple(sites), width
        self.places = {(site.block, SLOTS[site.slot]): number for number, site in enumerate(self.sites)}
        self._check()
        M, K = len(self.sites), fusing.k
        used = set(fusing.choice or fusing.schemes)
        generator = torch.Generator().manual_seed(seed)
        self.rank = self._rank(M, K, generator) if "reranker" in used else None
        self.chain = nn.Parameter(torch.full((M, K - 1, width), math.log(K))) if "mask" in used else None
        self.released = nn.Parameter(_xavier((M, K, width), K + width, generator)) if "released_mask" in used else None
        C = len(fusing.schemes)
        start = _xavier((M, C), C + 1, generator) if fusing.xavier else torch.zeros(M, C)
        self.architecture = nn.Parameter(start, requires_grad=not fusing.leak) if fusing.searched else None
        self.projections = (
            nn.ParameterList(torch.zeros(site.width, width) for site in self.sites)
            if fusing.project == "linear"
            else None
        )
        self.ending = fusing.ending
        self._searching = False
        self._known: tuple[tuple[int, ...], Weights] | None = None

    def _check(self) -> None:
        fusing = self.fusing
        other = next((site for site in self.sites if site.width != self.width), None)
        if other is not None and fusing.project == "none":
            raise ConfigError(
                f"block {other.block}, {other.slot}: the slot is {other.width} wide and the retrieved vectors are "
                f"{self.width}. Use project='linear', or vectors of an encoder of that width."
            )
        if fusing.choice and len(fusing.choice) != len(self.sites):
            raise ConfigError(
                f"choice names {len(fusing.choice)} schemes for {len(self.sites)} modules; give one each."
            )

    def _rank(self, M: int, K: int, generator: torch.Generator) -> nn.Parameter:
        return nn.Parameter(_xavier((M, K), K + 1, generator) if self.fusing.xavier else torch.zeros(M, K))

    @contextmanager
    def searching(self) -> Iterator[None]:
        """While open the architecture takes gradients, mixed softly; else it is a constant of the loss."""
        before, self._searching = self._searching, True
        try:
            yield
        finally:
            self._searching = before

    def train(self, mode: bool = True) -> "Fusion":
        """As every module's; kept weights are forgotten, as an optimiser's fused step does not count as a change."""
        if mode:
            self._known = None
        return super().train(mode)

    def lower(self) -> list[nn.Parameter]:
        """What the lower level trains: all but the architecture."""
        return [parameter for parameter in self.parameters() if parameter is not self.architecture]

    def shares(self, hard: bool | None = None) -> Float[Tensor, "M C"]:
        """Each candidate's weight: the softmax, or all on the first of the likeliest. `hard` None: as used now, the
        softmax while training and where the ending is "soft"."""
        schemes = self.fusing.schemes
        if self.fusing.choice:
            chosen = torch.tensor([self._candidates.index(name) for name in self.fusing.choice])
            return torch.nn.functional.one_hot(chosen, len(self._candidates)).float()
        if self.architecture is None:
            return torch.ones(len(self.sites), len(schemes))
        alpha = self.architecture if self._searching else self.architecture.detach()
        soft = self.training or self._searching or self.ending == "soft"
        hard = not soft if hard is None else hard
        if hard:
            return torch.nn.functional.one_hot(alpha.argmax(1), len(schemes)).to(alpha.dtype)
        return alpha.softmax(1)

    @property
    def _candidates(self) -> tuple[str, ...]:
        """The columns of `shares`."""
        fixed = self.fusing.choice
        return tuple(dict.fromkeys(fixed)) if fixed else tuple(self.fusing.schemes)

    def decisions(self) -> list[Decision]:
        """The architecture as a table, a line a module."""
        shares = self.shares(hard=False).detach()
        found = []
        for site, line in zip(self.sites, shares, strict=True):
            best = int(line.argmax())
            rest = [float(share) for place, share in enumerate(line) if place != best]
            by_name = dict(zip(self._candidates, map(float, line), strict=True))
            lead = float(line[best]) - max(rest, default=0.0)
            found.append(Decision(site.block, site.slot, by_name, self._candidates[best], lead))
        return found

    def weights(self, n: int) -> Weights:
        """Each module's weights of its n nearest neighbours, n at most K; those beyond are in no softmax and no mean.

        Without gradients and training they are made once and kept until a parameter changes or training goes on.
        """
        if not 1 <= n <= self.fusing.k:
            raise ConfigError(f"{n} neighbours an item, but the model is made for k={self.fusing.k}.")
        drawn = self.released is not None
        if self.training or torch.is_grad_enabled() or drawn:
            return self._weights(n)
        ways = n, int(self.ending == "soft"), int(self._searching)
        state = (*ways, *(parameter._version for parameter in self.parameters()))
        if self._known is None or self._known[0] != state:
            wholes, masks, skipped = self._weights(n)
            if wholes is not None and not wholes.any():  # no module has chosen such a scheme
                wholes = None
            masks = tuple((share, mask) for share, mask in masks if share.any())
            self._known = (state, (wholes, masks, skipped))
        return self._known[1]

    def _weights(self, n: int) -> Weights:
        shares = dict(zip(self._candidates, self.shares().unbind(1), strict=True))
        convex = self.fusing.scale == "convex"
        wholes: Tensor | None = None
        if "add" in shares:
            wholes = shares["add"][:, None].expand(-1, n) / n
        if self.rank is not None and "reranker" in shares:
            ranked = shares["reranker"][:, None] * ranks(self.rank[:, :n], convex=convex)
            wholes = ranked if wholes is None else wholes + ranked
        masks: list[tuple[Tensor, Tensor]] = []
        if self.chain is not None and "mask" in shares:
            mask = self._mask(self.chain[:, : n - 1], n)
            masks.append((shares["mask"], mask_weights(mask, convex=convex)))
        if self.released is not None and "released_mask" in shares:
            own = self.released[:, :n]
            drawn = released_weights(own, temperature=self.fusing.temperature, noise=gumbel(own))
            masks.append((shares["released_mask"], drawn))
        return wholes, tuple(masks), self._identities

    def _mask(self, chain: Float[Tensor, "M J D"], n: int) -> Float[Tensor, "M K D"]:
        """One mask a module and step, shared by the batch; no noise in evaluation."""
        noise = gumbel(chain.new_empty(len(chain), n, chain.shape[2])) if self.training else None
        return kept(chain, temperature=self.fusing.temperature, noise=noise)

    def deltas(self, near: Float[Tensor, "B K D"]) -> list[Float[Tensor, "B O"] | None]:
        """What each module adds; None for one that has chosen to add nothing."""
        return self.each(*self.sums(near))

    def sums(self, near: Float[Tensor, "B K D"]) -> tuple[Float[Tensor, "B M D"], frozenset[int]]:
        """All modules' weighted sums of neighbours, not yet projected, and the modules that add nothing."""
        wholes, masks, skipped = self.weights(near.shape[1])
        n_items = len(near)
        if wholes is None:
            added = near.new_zeros(n_items, len(self.sites), self.width)
        else:  # `@` would lay the neighbours out anew where there are gradients
            added = torch.bmm(wholes.expand(n_items, -1, -1), near)
        turned: Tensor | None = None
        for share, mask in masks:
            if n_items == 1:  # one item: less is moved than a product a feature would
                masked = (mask * near).sum(1)
            else:
                turned = near.permute(2, 1, 0).contiguous() if turned is None else turned  # for its gradient's too
                masked = torch.matmul(mask.permute(2, 0, 1), turned).permute(2, 1, 0)
            added = added + share[:, None] * masked
        return added, skipped

    def each(self, sums: Float[Tensor, "B M D"], skipped: frozenset[int]) -> list[Float[Tensor, "B O"] | None]:
        """What `deltas` gives, of the `sums` of all items or of some."""
        own = sums.unbind(1)
        return [None if m in skipped else self._projected(m, own[m]) for m in range(len(self.sites))]

    def delta(self, number: int, near: Float[Tensor, "B K D"]) -> Float[Tensor, "B O"] | None:
        """What one module adds, from neighbours of its own."""
        wholes, masks, skipped = self.weights(near.shape[1])
        if number in skipped:
            return None
        added = near.new_zeros(len(near), self.width) if wholes is None else wholes[number] @ near
        for share, mask in masks:
            added = added + share[number] * (mask[number] * near).sum(1)
        return self._projected(number, added)

    def _projected(self, number: int, added: Float[Tensor, "B D"]) -> Float[Tensor, "B O"]:
        return added if self.projections is None else added @ self.projections[number].T

    @property
    def _identities(self) -> frozenset[int]:
        """Modules that are nothing but "identity" as used now: their base map is left alone, bit for bit."""
        if "identity" not in self._candidates:
            return frozenset()
        if self.architecture is not None and (self.training or self._searching or self.ending == "soft"):
            return frozenset()
        own = self.shares()[:, self._candidates.index("identity")]
        return frozenset(number for number, share in enumerate(own.tolist()) if share == 1)


def _xavier(shape: tuple[int, ...], fans: int, generator: torch.Generator) -> Tensor:
    """Uniform between -+sqrt(6 / (fan in + fan out))."""
    bound = math.sqrt(6 / fans)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
