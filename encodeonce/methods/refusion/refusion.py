"""The method: any fine-tuning of one task with retrieved vectors fused inside, and its search (ReFusion, section 3.3).

Lower level: weights and fusion parameters on train batches, by the loop as ever. Upper level: the architecture, on dev
batches, from gradients of it alone; first order, or second by a finite difference as in DARTS (Liu et al. 2019).

Axes: K neighbours   D width
"""

import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...batching import Batch, Examples, Source, Supervised
from ...encoders.live import LiveBlocks
from ...errors import ConfigError, RunError, SpecMismatch
from ...store.search import Search
from ...types import Corpus
from ..finetune import Finetune, Live
from ..multitask import Part, start_seed
from .fused import Fused
from .fusing import SLOTS, Fusing
from .fusion import Decision, Fusion, Site
from .retrieved import Retrieved

__all__ = ["FAINT", "Refusion", "refusion"]

log = logging.getLogger("encodeonce")

FILES = ("model.safetensors", "fusion.safetensors", "fusion.json")

FAINT = 0.01
"""Below this share of a slot's output what is added hardly counts: it is said."""


class Refusion(Finetune):
    """Made by `refusion(...)`. Items come from a `Retrieved` source; without neighbours it is the plain method."""

    def __init__(self, plain: Finetune, part: Part) -> None:
        (name,) = plain.names
        super().__init__({name: part}, plain.layers, plain.read_ahead, plain.settings, window=plain.window)
        # beside the registered modules: the plain method's parameters are this one's
        object.__setattr__(self, "_plain", plain)
        self._measured = False
        search = self.fused.search
        self.corpus: Corpus | None = None if search is None else search.corpus
        """Whose vectors are added: those of the first neighbours that were read, or of the saved fusion; None: unknown.
        """
        self._others: set[str] = set()
        self._said_undecided = False

    @property
    def name(self) -> str:
        """Of its task."""
        return self.names[0]

    @property
    def fused(self) -> Fused:
        """The adapter."""
        adapter = self.part(self.name).adapter
        assert isinstance(adapter, Fused)
        return adapter

    @property
    def fusion(self) -> Fusion:
        """Ranking parameters, architecture, projections."""
        return self.fused.fusion

    def plain(self) -> Finetune:
        """The method without fusion, its weights as they are now (identity 31)."""
        plain: Any = self._plain
        assert isinstance(plain, Finetune)
        return plain

    def described(self) -> dict[str, Any]:
        """The plain method's settings, and those of the fusion."""
        return {**super().described(), "fusing": self.fusion.fusing.to_json()}

    def read(
        self, source: Source, documents: Sequence[Any], tasks: Sequence[Supervised] = (), split: str = "these documents"
    ) -> Examples:
        """As `Finetune`. SpecMismatch for neighbours' vectors of another encoder than those learned from; other texts
        are said."""
        if isinstance(source, Retrieved):
            self._meet(source.near.search.corpus)
        return super().read(source, documents, tasks, split)

    def _meet(self, corpus: Corpus | None) -> None:
        """Neighbours of this corpus are to be added: the first known one is kept, and others are compared with it."""
        mine = self.corpus
        if mine is None or corpus is None:
            self.corpus = mine or corpus
            return
        differences = corpus.spec.differences(mine.spec)
        if differences:
            raise SpecMismatch(
                f"the fusion learned from vectors of {mine.spec.encoder}, and these neighbours' are others, of "
                f"{corpus.spec.encoder} (there: what it learned from): {'; '.join(differences)}. Retrieve from a corpus"
                " that the same encoder made, or train the fusion again."
            )
        if corpus.sha256 not in (mine.sha256, *self._others):
            self._others.add(corpus.sha256)
            log.warning(
                "the fusion learned from neighbours among %d texts (SHA-256 %.12s), and these are of another corpus, of"
                " %d texts (%.12s)",
                *(mine.texts, mine.sha256, corpus.texts, corpus.sha256),
            )

    def groups(self, name: str) -> dict[str, list[nn.Parameter]]:
        """The plain method's, and "inside": ranks, masks, projections. The architecture is the upper level's."""
        own = self.fusion.lower()
        return {**self.plain().groups(name), **({"inside": own} if own else {})}

    def losses(self, batch: Batch, names: Any) -> dict[str, Tensor]:
        """As `Multitask`; the ratios of the first batch are logged, of a pass of its own: a run that goes on after a
        stop would not be the same run if measuring moved anything."""
        if not self._measured:
            self._measured = True
            with (
                torch.random.fork_rng(devices=[]),
                torch.no_grad(),
                self.fusion.searching(),
                self._as_predicting(),
                self._watched() as seen,
            ):
                super().losses(batch, names)
            self._say(seen, "at the start")
        return super().losses(batch, names)

    def predict(self, batch: Batch, probabilities: bool = False) -> list[dict[str, Any]]:
        """As `Multitask`; an architecture that was never searched is said once: all ties, it chooses what is first."""
        alpha = self.fusion.architecture
        if alpha is not None and self.ending == "argmax" and not self._said_undecided and not alpha.any():
            self._said_undecided = True
            log.warning(
                "the architecture was not searched, so every fused module takes its first candidate, %r. Give fit(..., "
                "upper=Upper(dev)), or Fusing one scheme",
                self.fusion.fusing.schemes[0],
            )
        return super().predict(batch, probabilities)

    def ratios(self, examples: Examples, size: int = 32) -> dict[tuple[int, str], float]:
        """(block, slot) -> length of what is added over length of the slot's output, mean over the examples; logged,
        with a warning for modules below 1 %. Modules that add nothing are missing."""
        with torch.no_grad(), self._watched() as seen, self._as_predicting():
            for batch in self.batches(examples, size=size, order=None):
                self.predict(batch)
        self._say(seen, "now")
        return {self._place(number): float(np.mean(values)) for number, values in sorted(seen.items())}

    @contextmanager
    def _watched(self) -> Iterator[dict[int, list[float]]]:
        seen: dict[int, list[float]] = {}

        def watch(number: int, shares: Tensor) -> None:
            seen.setdefault(number, []).extend(shares.tolist())

        self.fused.watch = watch
        try:
            yield seen
        finally:
            self.fused.watch = None

    def _place(self, number: int) -> tuple[int, str]:
        site = self.fusion.sites[number]
        return site.block, site.slot

    def _say(self, seen: Mapping[int, Sequence[float]], when: str) -> None:
        means = {number: float(np.mean(values)) for number, values in sorted(seen.items())}
        named = [f"{slot} {block}: {100 * means[n]:.2f} %" for n in means for block, slot in (self._place(n),)]
        log.info("fused vector to slot output, %s: %s", when, ", ".join(named) or "nothing is added")
        faint = sum(value < FAINT for value in means.values())
        if faint:
            log.warning(
                "%d of %d fused modules add less than 1 %% of their slot's output, so they hardly change it; "
                "the scale 'convex' and the scheme 'add' weigh more",
                faint,
                len(means),
            )

    # the upper level (train.TwoLevel)

    def upper_parameters(self) -> list[nn.Parameter]:
        """The architecture; none where each module has one candidate."""
        alpha = self.fusion.architecture
        return [] if alpha is None else [alpha]

    def upper_gradients(self, batch: Batch, lower: Batch, rates: Mapping[Tensor, float]) -> list[Tensor | None]:
        """Of the dev loss with respect to the architecture alone; see `train.TwoLevel`.

        With `leak` what the released code does: the dev loss's gradients stay at the weights, the architecture gets
        none.
        """
        if self.fusion.fusing.leak:
            self.loss(batch).backward()
            return [None]
        if self.fusion.fusing.order == 2 and any(rates.values()):
            return [self._second_order(batch, lower, rates)]
        return [self._of_architecture(batch)]

    @contextmanager
    def _as_predicting(self) -> Iterator[None]:
        """Without dropout and noise: the architecture is for the model that answers."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    def _of_architecture(self, batch: Batch) -> Tensor:
        weights = [weight for own in self.groups(self.name).values() for weight in own if weight.requires_grad]
        with self.fusion.searching(), self._as_predicting():
            for weight in weights:  # nothing is kept for gradients that nobody asks for
                weight.requires_grad_(False)
            try:
                (gradient,) = torch.autograd.grad(self.loss(batch), self.upper_parameters())
            finally:
                for weight in weights:
                    weight.requires_grad_(True)
        return gradient

    def _second_order(self, batch: Batch, lower: Batch, rates: Mapping[Tensor, float]) -> Tensor:
        """w' = w - rate grad L_train(w), then grad_a L_dev(w') - (grad_a L_train(w+) - grad_a L_train(w-)) / 2 eps with
        w+- = w +- eps rate grad_w' L_dev(w'), every weight at its own rate, and eps = 0.01 over the norm of
        rate grad_w' L_dev(w'); without dropout and noise."""
        alpha = self.upper_parameters()[0]
        weights = [weight for own in self.groups(self.name).values() for weight in own]
        before = [weight.detach().clone() for weight in weights]
        with self.fusion.searching(), self._as_predicting():  # the mixture is what the loop trains
            slopes = torch.autograd.grad(self.loss(lower), weights, allow_unused=True)
        _move(weights, before, _scaled(slopes, weights, rates), -1.0)
        with self.fusion.searching(), self._as_predicting():
            first, *onward = torch.autograd.grad(self.loss(batch), [alpha, *weights], allow_unused=True)
        ahead = _scaled(onward, weights, rates)
        norm = torch.sqrt(sum((slope.square().sum() for slope in ahead if slope is not None), torch.zeros(())))
        step = 0.01 / float(norm.clamp(min=1e-12))
        sides = []
        for sign in (step, -step):
            _move(weights, before, ahead, sign)
            sides.append(self._of_architecture(lower))
        _move(weights, before, ahead, 0.0)
        return first - (sides[0] - sides[1]) / (2 * step)

    # the architecture, and what is kept

    @property
    def ending(self) -> str:
        """How predictions use the architecture: "argmax" or "soft"."""
        return self.fusion.ending

    @ending.setter
    def ending(self, value: str) -> None:
        self.fusion.ending = Fusing(ending=value).ending

    def architecture(self) -> list[Decision]:
        """A line a module: the candidates' shares, the chosen one and its lead."""
        return self.fusion.decisions()

    def choice(self) -> tuple[str, ...]:
        """The scheme of every module, for `Fusing(choice=...)`: the retrained ending."""
        return tuple(decision.chosen for decision in self.architecture())

    def save(self, folder: str | Path) -> None:
        """`model.safetensors` holds blocks and head as the plain method names them, `fusion.safetensors` and
        `fusion.json` what fusion adds and of which corpus. RunError where the folder holds something else, a checkpoint
        say."""
        folder = Path(folder)
        if (folder / "model.safetensors").exists() and not (folder / "fusion.json").exists():
            raise RunError(f"{folder} holds another model, whose weights would be lost. Choose another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(_tensors(self.fusion), folder / "fusion.safetensors")
        described = {
            "fusing": self.fusion.fusing.to_json(),
            "width": self.fusion.width,
            "sites": [asdict(site) for site in self.fusion.sites],
            "choice": list(self.choice()),
            "corpus": None if self.corpus is None else self.corpus.to_json(),
        }
        (folder / "fusion.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        save_file(_tensors(self.plain()), folder / "model.safetensors")

    def restore(self, folder: str | Path) -> None:
        """The inverse, into a method that was made alike; RunError with the difference where it was not, and for files
        that are missing or not those of a fusion. Neighbours read before or after are compared as in `read`."""
        folder = Path(folder)
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise RunError(f"{folder / missing[0]} is missing: {folder} holds no fusion, or was not copied whole.")
        try:
            described = json.loads((folder / "fusion.json").read_text(encoding="utf-8"))
            theirs = {**described["fusing"], "width": described["width"], "sites": described["sites"]}
            corpus = None if described["corpus"] is None else Corpus.from_json(described["corpus"])
        except (ValueError, KeyError, TypeError, ConfigError) as problem:
            raise RunError(f"{folder / 'fusion.json'} does not describe a fusion: {problem!r}.") from None
        sites = [asdict(site) for site in self.fusion.sites]
        mine = {**self.fusion.fusing.to_json(), "width": self.fusion.width, "sites": sites}
        other = {key: value for key, value in mine.items() if theirs.get(key) != value}
        if other:
            raise RunError(
                f"{folder} holds fusion made with { ({key: theirs.get(key) for key in other}) }; this one has {other}. "
                "Make it with the saved settings."
            )
        here, self.corpus = self.corpus, corpus
        self._meet(here)
        for module, name in ((self.plain(), "model.safetensors"), (self.fusion, "fusion.safetensors")):
            try:
                module.load_state_dict(load_file(folder / name))
            except (RuntimeError, SafetensorError) as problem:
                first = str(problem).strip().splitlines()[-1].strip()
                raise RunError(f"{folder / name} is not of a method made like this one: {first}") from None


def refusion(plain: Finetune, fusing: Fusing, width: int, *, search: Search | None = None, seed: int = 42) -> Refusion:
    """Fusion of vectors of this width inside the trained blocks of `plain`, a method of one task; `search` where
    queries are hidden states.

    Raises ConfigError for several tasks, for blocks that are not trained or read a mix of views, for slots that the
    encoder lacks and for widths that differ.
    """
    if len(plain.names) != 1:
        raise ConfigError(f"fusion is for one task at a time; there is {', '.join(plain.names)}.")
    (name,) = plain.names
    old = plain.part(name)
    if not isinstance(old.adapter, Live) or old.adapter.mix is not None:
        raise ConfigError(
            "fusion needs trained blocks over piece ids or one stored view: finetune, top1, top2 or lora."
        )
    live = old.adapter.blocks
    asked = fusing.blocks or live.blocks
    other = [block for block in asked if block not in live.blocks]
    if other:
        shown = ", ".join(map(str, other))
        raise ConfigError(f"blocks={list(asked)}: {shown} not trained; fusion is for trained ones: {[*live.blocks]}.")
    sites = [Site(block, slot, _width(live, block, slot)) for block, slot in itertools.product(asked, fusing.slots)]
    fusion = Fusion(fusing, sites, width, start_seed(seed, f"{name}/fusion"))
    part = Part(Fused(old.adapter, fusion, search), old.head, old.piece)
    part.train(old.training)
    return Refusion(plain, part)


def _width(live: LiveBlocks, block: int, slot: str) -> int:
    """The width of a slot's output."""
    path = live.stack.paths.get(SLOTS[slot])
    if path is None:
        raise ConfigError(f"slot {slot!r}: this encoder has {', '.join(live.stack.slots)} ({SLOTS[slot]} is missing).")
    module, _, third = path.partition("/")
    linear: Any = live.stack.blocks[block].get_submodule(module)
    width = getattr(linear, "nf", None) or linear.out_features  # nf: GPT-2's transposed maps
    return int(width) // (3 if third else 1)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}


def _scaled(
    slopes: Sequence[Tensor | None], weights: Sequence[Tensor], rates: Mapping[Tensor, float]
) -> list[Tensor | None]:
    """Each gradient times its weight's rate; 0 where the loop does not train that weight."""
    return [
        None if slope is None else slope * rates.get(weight, 0.0) for slope, weight in zip(slopes, weights, strict=True)
    ]


def _move(
    weights: Sequence[nn.Parameter], origin: Sequence[Tensor], slopes: Sequence[Tensor | None], by: float
) -> None:
    """weights = origin + by * slopes, in place."""
    with torch.no_grad():
        for weight, start, slope in zip(weights, origin, slopes, strict=True):
            weight.copy_(start if slope is None or not by else start + by * slope)
