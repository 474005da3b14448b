"""A classifier from a handful of labelled texts, under scikit-learn's conventions.

    model = FewShot("all-MiniLM-L6-v2").fit(texts, labels, unlabelled=more_texts)
    model.predict(["a fine film"]);  model.predict_proba(["a fine film"])

Several methods are tried by cross-validation on the labels: probes on stored vectors, late fusion with the neighbours
among the unlabelled texts, fine-tuning, and by name fusion inside the encoder (ReFusion). They answer together,
weighted by how likely they made the labels that they had not seen (`methods.fewshot.mixture`); a method that knew no
more of these than how frequent they are, and one of little weight, are left out. The rest are trained on all labels.

Axes: N items   C classes
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError, RunError
from ..methods.fewshot import PROBES, Mixture, TrainedProbe, stacked
from ..methods.fewshot.folds import folds_of
from ..methods.finetune import Tuning
from ..methods.refusion import FUSINGS, Decision
from ..prompts import Prompt
from ..resolve import nearest
from ..serve.folder import encoder_of
from ..types import Document, Spec
from ._asked import Asking, asked, prompt_of, prompter_for
from ._base import Schedule, plain
from ._classes import check_classes, check_kept, classes_of
from ._finding import finding
from ._fused import FUSED, Inner, Neighbourhood, fused
from ._material import Material, TextVectors, as_documents, content, copies
from ._saved import PROMPT, TUNED, Trained, save, saved, trained
from ._tried import Tried, report, summary
from ._tuned import Whole, fits_window, tuned

__all__ = ["METHODS", "FewShot", "Tried"]

log = logging.getLogger("encodeonce")

METHODS = ("cosine", "probe", "layers", "late", "self_training", "finetune")
"""What is tried unless said otherwise: "cosine" for pairs only, what needs unlabelled texts where there are some."""

Texts = Iterable[str | tuple[str, str]]

_NEEDY = {*FUSED, *(name for name, probe in PROBES.items() if probe.unlabelled)}
"""What needs unlabelled texts."""

ONE, MANY = ("a single text", "a pair of texts"), ("single texts", "pairs of texts")


class FewShot:
    """`encoder` is a folder, a hub name, or a `Pretrained`.

    `methods` are those to try: "finetune", names of `methods.fewshot.PROBES`, and of `methods.refusion.FUSINGS` but
    "release" ("refusion": neighbours fused inside the encoder, with a search over how; none is tried by default, they
    take longest). With a `prompt` (the name of one of the 15 tasks, a TOML file, or a `prompts.Prompt`) "prompt" is
    among them: the masked language model, or T5, that is asked and fine-tuned as the prompt says; fusions then go
    inside it, else inside what "finetune" trains. `neighbours` is how many unlabelled texts are added to each text.
    `folds` is the number of parts of the cross-validation (fewer where a class has fewer different examples); `steps`
    and the two learning rates are those of everything that is fine-tuned, `compute` their number type. `store` keeps
    the vectors of all texts in a folder, so that a next run encodes nothing.

    After `fit`: `classes_`, `tried_` (a `Tried` a method, and the mixture), `mixture_`, `architecture_`, `ratios_`.
    """

    def __init__(
        self,
        encoder: Any,
        *,
        methods: Sequence[str] = METHODS,
        prompt: Any = None,
        neighbours: int = 64,
        folds: int = 4,
        steps: int = 40,
        learning_rate: float = 2e-3,
        encoder_learning_rate: float = 1e-4,
        compute: str = "bf16",
        store: str | Path | None = None,
        seed: int = 42,
    ) -> None:
        self.encoder, self.methods, self.prompt = encoder, methods, prompt
        self.neighbours, self.folds, self.steps = neighbours, folds, steps
        self.learning_rate, self.encoder_learning_rate = learning_rate, encoder_learning_rate
        self.compute, self.store, self.seed = compute, store, seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name."""
        names = ("encoder", "methods", "prompt", "neighbours", "folds", "steps", "learning_rate")
        return {name: getattr(self, name) for name in (*names, "encoder_learning_rate", "compute", "store", "seed")}

    def set_params(self, **values: Any) -> "FewShot":
        """Replace some of them. ConfigError for an unknown name. Another encoder must be fitted anew: what was learned
        from the vectors of one says nothing of those of another."""
        unknown = sorted(set(values) - set(self.get_params()))
        if unknown:
            raise ConfigError(f"no parameter {unknown[0]!r}. There is: {', '.join(self.get_params())}.")
        if values.get("encoder", self.encoder) is not self.encoder:
            self.__dict__.pop("mixture_", None)
        for name, value in values.items():
            setattr(self, name, value)
        for name in ("model", "_vectors"):  # made from parameters at first use
            self.__dict__.pop(name, None)
        return self

    def __sklearn_clone__(self) -> "FewShot":
        """As `sklearn.base.clone` makes it, not fitted, for `cross_val_score` and the like; the encoder is shared."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator: a classifier of lists of texts, which needs labels."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    @cached_property
    def model(self) -> Pretrained:
        """The encoder; loaded at the first vector."""
        return self.encoder if isinstance(self.encoder, Pretrained) else Pretrained(self.encoder)

    @property
    def spec(self) -> Spec:
        """What makes the vectors that are learned from."""
        return self._vectors.spec

    def stored(self, texts: Texts) -> int:
        """How many of the texts, or pairs, the store holds."""
        return self._vectors.stored(as_documents(texts, "text"))

    @cached_property
    def _vectors(self) -> TextVectors:
        return TextVectors(self.model, None if self.store is None else Path(self.store))

    def fit(self, texts: Texts, labels: Sequence[Any], unlabelled: Texts | None = None) -> "FewShot":
        """Try, choose, and train on all labels. Pairs of texts are given as two-tuples, labels as any sortable values.

        Raises DataError where texts and labels differ in number, single texts and pairs cannot be compared, or texts
        are too long for a method that was named, for a missing label, a single class, one without two different
        examples, and an empty text; ConfigError for an unknown method, for one that needs unlabelled texts where there
        is none, and for a number out of range; TooFewVectors for one that was named where the unlabelled texts are
        fewer than the neighbours asked for, whatever text is asked; NonFinite for a method that answers NaN. What was
        fitted before is lost then.
        """
        self.__dict__.pop("mixture_", None)  # half of this fit and half of the last would answer, and be wrong
        documents, labels = as_documents(texts, "text"), list(labels)
        _check_numbers(len(documents), len(labels))
        self._check_settings()
        self.classes_, index = classes_of(labels)
        check_classes(documents, index, self.classes_.tolist())
        corpus = as_documents(() if unlabelled is None else unlabelled, "unlabelled text")
        self.pairs_, self.column_ = bool(documents[0].pair), "label"
        folds = self._folds(documents, index)
        names = self._fitting(self._names(corpus), documents, index, folds)
        self._asking = None if self.prompt is None else prompt_of(self.model, self.prompt)
        self._prompter = (
            None
            if self._asking is None
            else prompter_for(self.model, self._asking, self.classes_.tolist(), self.pairs_)
        )
        self._corpus = [content(document) for document in corpus]
        names = finding(names, corpus, self.pairs_, int(self.neighbours), tuple(self.methods) != METHODS)
        self._corpus_vectors = self._vectors(corpus) if corpus else None
        self._neighbourhood = Neighbourhood.of(corpus, self._vectors) if set(names) & set(FUSED) else None
        material = self._material(documents, np.eye(len(self.classes_))[index])
        held_out, seconds = self._cross_validated(names, material, folds)
        self.mixture_ = stacked(held_out, index)
        self.tried_ = report(held_out, self.mixture_, index, seconds)
        self._trained = {name: self._train(name, material) for name in self.mixture_.weights}
        return self

    def predict_proba(self, texts: Texts) -> Float[np.ndarray, "N C"]:
        """A probability for each of `classes_`; lines sum to 1. DataError for an empty text, and for a single text
        where training had pairs, or the other way round."""
        self._need_fit()
        documents = as_documents(texts, "text")
        if not documents:
            return np.zeros((0, len(self.classes_)))
        if bool(documents[0].pair) != self.pairs_:
            raise DataError(f"text 1 is {ONE[not self.pairs_]}, and training had {MANY[self.pairs_]}.")
        material = self._material(documents, np.zeros((len(documents), len(self.classes_))))
        answers = {name: self._answer(trained, material) for name, trained in self._trained.items()}
        return self.mixture_.mixed(answers)

    def predict(self, texts: Texts) -> np.ndarray:
        """The likeliest class of each text."""
        best = self.predict_proba(texts).argmax(1)
        found: np.ndarray = self.classes_[best]
        return found

    def score(self, texts: Texts, labels: Sequence[Any]) -> float:
        """Accuracy, from 0 to 1. DataError where texts and labels differ in number, and where there is none."""
        predicted, labels = self.predict(texts), list(labels)
        _check_numbers(len(predicted), len(labels))
        if not labels:
            raise DataError("no text to score. Give at least one, with its label.")
        return float(np.mean([own == due for own, due in zip(predicted, labels, strict=True)]))

    def summary(self) -> str:
        """What was chosen, and by how much, in a sentence."""
        self._need_fit()
        return summary(self.tried_)

    @property
    def architecture_(self) -> dict[str, tuple[Decision, ...]]:
        """What the search of each fusion in the mixture decided, module by module; {} where none was searched."""
        self._need_fit()
        return {name: own.decisions for name, own in self._trained.items() if isinstance(own, Inner) and own.decisions}

    @property
    def ratios_(self) -> dict[str, Mapping[tuple[int, str], float]]:
        """Of each fusion in the mixture how much its modules add to the labelled texts: (block, slot) -> length of the
        fused vector over that of the slot's output; modules that chose to add nothing are missing."""
        self._need_fit()
        return {name: own.ratios for name, own in self._trained.items() if isinstance(own, Inner)}

    def save(self, folder: str | Path, column: str = "", classes: Sequence[Any] | None = None) -> None:
        """Into a folder that `load` reads, and `encodeonce predict` and `evaluate`: what was trained and no encoder,
        whose hashes are kept instead. `column` is where files have their labels ("": "label", or as it was loaded),
        and `classes` what they have for each of `classes_`, where that is something else: the numbers of a file whose
        labels were given as strings.

        RunError where the folder holds something else, and for classes that no file keeps or of another number.
        """
        self._need_fit()
        kept = self.classes_ if classes is None else np.asarray(classes)
        check_kept(kept, self.classes_)
        given = {k: v for k, v in self.get_params().items() if k not in ("encoder", "store", "prompt")}
        values = {
            "parameters": {k: plain(v) for k, v in given.items()} | {"methods": list(map(str, self.methods))},
            "prompt": None if self._asking is None else self._asking.to_json(),
            "classes": kept.tolist(),
            "pairs": self.pairs_,
            "column": column or self.column_,
            "mixture": asdict(self.mixture_),
            "tried": [asdict(one) for one in self.tried_],
            "corpus": self._corpus,
        }
        save(Path(folder), self.spec, values, self._trained)

    @classmethod
    def load(cls, folder: str | Path, encoder: Any = None, store: str | Path | None = None) -> "FewShot":
        """A saved estimator, with the same answers as before. `encoder` where it is neither under the name it had nor
        in FOLDER/encoder.

        RunError names a file that is missing or changed, and each difference of another encoder; EncoderError says
        which encoder is missing.
        """
        values, spec = saved(Path(folder))
        if not isinstance(encoder, Pretrained):
            encoder = encoder_of(Path(folder), spec, None if encoder is None else str(encoder))
        prompt = None if values["prompt"] is None else Prompt(**values["prompt"])
        model = cls(encoder, prompt=prompt, store=store, **values["parameters"])
        model._asking = prompt
        model._trained = trained(Path(folder), values, spec, model._vectors, model.model)
        model.classes_, model.pairs_, model.column_ = np.asarray(values["classes"]), values["pairs"], values["column"]
        model.mixture_ = Mixture(**values["mixture"])
        model.tried_ = tuple(Tried(**one) for one in values["tried"])
        model._corpus, model._corpus_vectors, model._neighbourhood = values["corpus"], None, None
        return model

    def _check_settings(self) -> None:
        """ConfigError for a number out of range or of the wrong kind, and for methods that are no list."""
        for name, least in (("neighbours", 1), ("folds", 2), ("steps", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name}={value!r} must be a whole number of at least {least}.")
        if isinstance(self.methods, str):
            raise ConfigError(f"methods={self.methods!r} is a text. Give a list of names: [{self.methods!r}].")
        if not isinstance(self.methods, Collection) or not all(isinstance(name, str) for name in self.methods):
            raise ConfigError(f"methods={self.methods!r} is no list of names. Give one, such as {list(METHODS)}.")
        self._schedule.settings(1)
        Tuning("finetune", compute=self.compute)

    @property
    def _schedule(self) -> Schedule:
        return Schedule(*map(plain, (self.steps, self.learning_rate, self.encoder_learning_rate, self.seed)))

    def _names(self, corpus: Sequence[Document]) -> list[str]:
        """The methods to try. By default those that can be; a method named by the caller must be possible."""
        known = [*PROBES, TUNED, PROMPT, *FUSED]
        for name in self.methods:
            if name in FUSINGS and name not in known:
                raise ConfigError(
                    f"method {name!r} is the released code's arithmetic, whose weights learn from the labels that "
                    "choose its architecture. It is there to be compared (methods.refusion). Take 'refusion'."
                )
            if name not in known:
                raise ConfigError(
                    f"method {name!r} is not known. There is: {', '.join(known)}.{nearest(name, list(known))}"
                )
        if not len(self.methods):
            raise ConfigError(f"no method is named. There is: {', '.join(known)}.")
        names = list(dict.fromkeys(self.methods))
        if self.prompt is not None and tuple(self.methods) == METHODS:
            names.append(PROMPT)
        if self.prompt is None and PROMPT in names:
            raise ConfigError(
                "a prompt and the method 'prompt' go together: give --prompt (in Python prompt=...), or leave the "
                "method out."
            )
        if self.prompt is not None and not {PROMPT, *FUSED} & set(names):
            raise ConfigError(
                f"a prompt is given, and neither 'prompt' nor a fusion is among the methods: {', '.join(names)}. Add "
                "one."
            )
        needing = [name for name in names if name in _NEEDY and not corpus]
        single = [name for name in names if name in PROBES and PROBES[name].form == "cosine" and not self.pairs_]
        if tuple(self.methods) != METHODS and needing:
            raise ConfigError(
                f"method {needing[0]!r} needs unlabelled texts: give them with --unlabelled (in Python "
                "fit(..., unlabelled=texts)), or leave the method out."
            )
        if tuple(self.methods) != METHODS and single:
            raise ConfigError(f"method {single[0]!r} compares the two texts of a pair; these are single texts.")
        if needing:
            log.info("no unlabelled texts: %s not tried", ", ".join(needing))
        names = sorted((name for name in names if name not in (*needing, *single)), key=known.index)
        compared = [name for name in names if name in PROBES and name in _NEEDY]
        if corpus and compared and bool(corpus[0].pair) != self.pairs_:
            raise DataError(
                f"unlabelled text 1 is {ONE[not self.pairs_]}, and what is labelled are {MANY[self.pairs_]}: "
                f"{compared[0]!r} cannot compare the two. Give unlabelled {MANY[self.pairs_]}, or name other methods."
            )
        return names

    def _folds(self, documents: Sequence[Document], index: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """The part of the cross-validation of each text, of copies the same."""
        keys = [content(document) for document in documents]
        least = min(len({keys[i] for i in np.flatnonzero(index == label)}) for label in range(len(self.classes_)))
        return folds_of(keys, index, int(min(self.folds, least)), int(self.seed))

    def _fitting(
        self,
        names: Sequence[str],
        documents: Sequence[Document],
        index: Int[np.ndarray, " N"],
        folds: Int[np.ndarray, " N"],
    ) -> Sequence[str]:
        """The methods less those that read a text whole, where a part of the cross-validation leaves no text of a class
        that fits the window: said if the methods are the default ones, DataError for one that was named."""
        whole = [name for name in names if name == TUNED or (name in FUSED and self.prompt is None)]
        if not whole:
            return names
        fits = fits_window(self.model, documents)
        parts = [len(np.unique(folds[fits & (index == label)])) for label in range(len(self.classes_))]
        poorest = int(np.argmin(parts))
        if parts[poorest] > 1:
            return names
        found = (
            f"{int(np.sum(fits & (index == poorest)))} texts of class {self.classes_.tolist()[poorest]!r} fit the "
            f"{self.model.window} pieces that the encoder reads at once, and two must, in different parts of the "
            "cross-validation (copies of a text are in one)"
        )
        if tuple(self.methods) != METHODS:
            raise DataError(f"method {whole[0]!r}: {found}. Shorten the texts, or leave the method out.")
        log.warning("%s not tried: %s", ", ".join(whole), found)
        return [name for name in names if name not in whole]

    def _material(self, documents: Sequence[Document], targets: Float[np.ndarray, "N C"]) -> Material:
        exclude = copies(documents, self._corpus)
        found = sum(map(bool, exclude))
        if found:
            log.info("%d of %d texts are among the unlabelled ones; no text is its own neighbour", found, len(exclude))
        return Material(documents, self._vectors(documents), targets, exclude)

    def _cross_validated(
        self, names: Sequence[str], material: Material, folds: Int[np.ndarray, " N"]
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        held_out, seconds = {}, {}
        for name in names:
            began = time.perf_counter()
            answers = np.zeros(material.targets.shape)
            for fold in np.unique(folds):
                seen, unseen = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
                answers[unseen] = self._answer(self._train(name, material.take(seen)), material.take(unseen))
            held_out[name], seconds[name] = answers, time.perf_counter() - began
        return held_out, seconds

    def _train(self, name: str, material: Material) -> Trained:
        if name in PROBES:
            probe = replace(PROBES[name], k=int(self.neighbours))
            return probe.train(material.vectors, material.targets, self._corpus_vectors, material.exclude)
        base = self._base(name)
        fits = np.flatnonzero(base.fits(material.documents))
        if len(fits) < len(material):
            log.warning("%d of %d texts are too long to be fine-tuned on", len(material) - len(fits), len(material))
        own = material.take(fits)
        classes = own.targets.argmax(1)
        if name in FUSED:
            assert self._neighbourhood is not None
            fusing = replace(FUSINGS[name], k=int(self.neighbours))
            return fused(base, own.documents, classes, fusing, self._neighbourhood, self._schedule)
        if isinstance(base, Asking):
            return asked(base, own.documents, classes, self._schedule)
        return tuned(base, own.documents, classes, self._schedule)

    def _base(self, name: str) -> Whole | Asking:
        """What a method trains: where there is a prompt, fusion goes inside the model that is asked by it."""
        if self._prompter is not None and name != TUNED:
            return Asking(self.model, self._prompter, self.compute)
        return Whole(self.model, self.compute)

    def _answer(self, trained: Trained, material: Material) -> Float[np.ndarray, "N C"]:
        if isinstance(trained, TrainedProbe):
            return trained.probabilities(material.vectors, material.exclude)
        return trained.answers(material.documents, len(self.classes_))

    def _need_fit(self) -> None:
        if not hasattr(self, "mixture_"):
            raise RunError("this estimator is not fitted yet: call fit(texts, labels) first.")


def _check_numbers(n_texts: int, n_labels: int) -> None:
    if n_texts != n_labels:
        raise DataError(f"{n_texts} texts and {n_labels} labels: give each text one label.")
