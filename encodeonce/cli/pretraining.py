"""The job behind `pretrain`: documents to tuples, an estimate, sentences into the store, training, export, a report."""

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from .. import costs
from ..corpus.taxonomy import Taxonomy
from ..encoders.export import export
from ..encoders.live import LiveBlocks
from ..encoders.masked_lm import MaskedLM
from ..encoders.pieces import load_tokenizer
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import DataError, RunError
from ..methods.fastdoc.examples import TASK, DocumentExamples
from ..methods.fastdoc.fastdoc import FastDoc, TripletScorer, projection
from ..methods.fastdoc.masking import Window, windows_of
from ..methods.fastdoc.measure import by_pieces, by_sentences, centred_share, norms, plain_means, triplet_accuracy
from ..methods.fastdoc.objective import Objective
from ..methods.fastdoc.sampling import Sample, SampleReport, shuffled
from ..methods.fastdoc.unsupervised import topics
from ..store import Store
from ..train.atomic import write_bytes
from ..train.checkpoint import differences
from ..train.fit import fit
from ..train.settings import HARMLESS, Settings
from ..types import Document
from .advice import seconds_text
from .pretrain_config import PretrainConfig
from .pretrain_material import Material, check, paths_of, prepare, sampled
from .quickstart import encoder_name
from .steps import encode

__all__ = ["pretrain"]

log = logging.getLogger("encodeonce")

PROBED = 48
"""Sentences encoded, and documents trained on, to know how fast it goes before it starts."""


class _Job:
    """One `pretrain` from config to report."""

    def __init__(self, config: PretrainConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.objective = Objective.named(config.objective, **config.options)
        self.settings = Settings(**config.train.model_dump(exclude_none=True))
        self.base = Pretrained(encoder_name(config.encoder), overlap=0)
        frozen = encoder_name(config.sentence_encoder or config.encoder)
        self.source = Pooled(
            Pretrained(frozen, compute=config.compute), "sentence", config.pooling, normalize=config.normalize
        )
        self.seconds: dict[str, float] = {}
        self.norms: dict[str, float] = {}
        self.windows: list[Window] = []
        self.head: MaskedLM | None = None
        self.mask_id = -1

    def run(self) -> dict[str, Any]:
        material = prepare(self.config, self.fields())
        if self.agree(material):
            log.info("%s holds this run, finished", self.folder)
            return dict(json.loads((self.folder / "report.json").read_text()))
        self.refuse()
        self.store = Store.open(self.config.store, self.source.spec(dtype=self.config.dtype))
        sample, paths = self.sample(material.train)
        held = self.held_sample(material.held_out)
        self.windows = self.windows_of(material.train)
        self.estimate(material, sample, held)
        self.fill(self.used(material, sample, held))
        method, examples, taxonomy = self.method(material.train, sample, paths)
        untouched = self.measured(method, material.held_out, held)
        result = fit(method, examples, {TASK: TripletScorer()}, self.settings, folder=self.folder / "train")
        self.seconds["train"] = result.seconds
        exported = export(method.blocks, self.base.path, self.folder / "encoder", method.head)
        self.side(method)
        report = {
            "counts": material.counts,
            "sample": sample.report.to_json(),
            "tuples": len(sample.tuples),
            "taxonomy": [] if taxonomy is None else taxonomy.statistics(paths),
            "norms": self.norms,
            "held_out": {
                "tuples": 0 if held is None else len(held.tuples),
                "plain mean of sentence vectors": self.plain(material.held_out, held),
                "untouched": untouched,
                "trained": self.measured(method, material.held_out, held),
            },
            "costs": self.costs(material.train, examples, method, result.steps),
            "losses": [epoch["loss"] for epoch in result.epochs],
            "trace": method.trace,
            "export": {**exported.to_json(), "folder": "encoder"},
            "settings": self.settings.to_json(),
            "objective": self.objective.to_json(),
        }
        write_bytes(self.folder / "report.json", (json.dumps(report, indent=1) + "\n").encode())
        return report

    # before

    def refuse(self) -> None:
        """What cannot be trained, before anything is encoded: a checkpoint without a head, vectors of another width."""
        if self.objective.masked:
            self.head = MaskedLM.load(self.base.path)
            mask = load_tokenizer(self.base.path).mask_token_id
            self.mask_id = -1 if mask is None else int(mask)
        if self.objective.of_documents:
            entered = int(self.base.stack().model.get_input_embeddings().weight.shape[1])
            projection(self.source.model.width, entered, self.objective.projection)

    def fields(self) -> dict[str, str]:
        """The config's keys that name fields which this run reads, and the fields."""
        made, data = self.config.sample, self.config.data
        grouped = self.objective.of_documents and made.rule != "rouge" and not made.field
        named = {
            "data.path": data.path if grouped or (self.objective.hierarchy and not made.topic_levels) else "",
            "data.split": data.split,
            "sample.field": made.field if self.objective.of_documents and made.rule != "rouge" else "",
            "sample.brand": made.brand if self.objective.of_documents and made.rule == "brand" else "",
        }
        return {key: field for key, field in named.items() if field}

    def agree(self, material: Material) -> bool:
        """Keep what this run is made of, or compare it with that of the folder's checkpoint; whether it is finished."""
        chosen = self.config.model_dump(mode="json", exclude={"store", "encoder", "sentence_encoder"})
        for section, names in (("data", ("train", "format", "columns")), ("train", HARMLESS)):
            chosen[section] = {key: value for key, value in chosen[section].items() if key not in names}
        frozen = self.source.spec(dtype=self.config.dtype).to_json()
        now = {
            **chosen,
            "encoder": self.base.spec().weights,
            "sentences": {key: value for key, value in frozen.items() if key not in ("encoder", "revision")},
            "documents": material.digest(),
        }
        path = self.folder / "origin.json"
        if not path.is_file() or not (self.folder / "train" / "checkpoint" / "state.json").is_file():
            write_bytes(path, (json.dumps(now, indent=1) + "\n").encode())
            return False
        changed = differences(json.loads(path.read_text()), now)
        if changed:
            raise RunError(
                f"{self.folder} holds a run that was started differently, so going on would mix two runs: "
                f"{'; '.join(changed)}. Put it back as it was, choose another folder, or delete this one."
            )
        return (self.folder / "report.json").is_file() and (self.folder / "encoder" / "model.safetensors").is_file()

    def sample(self, documents: Sequence[Document]) -> tuple[Sample, list[tuple[str, ...]]]:
        """Tuples and category paths of the training documents."""
        made, seed = self.config.sample, self.settings.seed
        paths = paths_of(documents, self.config)
        if not self.objective.of_documents:
            return Sample(np.zeros((0, 3), np.int64), SampleReport(0, 0, 0, 0, 0, (), 0, 0)), paths
        sample = sampled(documents, self.config, made.n, seed, made.shuffled)
        log.info("tuples: %s", json.dumps({**sample.report.to_json(), "groups_without_partner": _named(sample)}))
        if made.doubled and sample.symmetric and sample.tuples.shape[1] == 3:
            sample = sample.doubled()
        return sample, shuffled(paths, seed) if made.shuffled else paths

    def held_sample(self, documents: Sequence[Document]) -> Sample | None:
        """Tuples of held-out documents, with their own metadata; None where there are none."""
        if not documents:
            return None
        try:
            return sampled(documents, self.config, self.config.sample.n_held_out, 0, False)
        except DataError as problem:
            log.warning("no held-out score: %s", problem)
            return None

    def used(self, material: Material, sample: Sample, held: Sample | None) -> list[Document]:
        """The documents whose sentences are needed: those of tuples (all, where topics are made of them)."""
        train = range(len(material.train)) if self.config.sample.topic_levels else np.unique(sample.tuples).tolist()
        apart = [] if held is None else np.unique(held.tuples).tolist()
        return [*(material.train[i] for i in train), *(material.held_out[i] for i in apart)]

    def estimate(self, material: Material, sample: Sample, held: Sample | None) -> None:
        """How long encoding and training will take, from a probe of each."""
        documents = self.used(material, sample, held)
        missing = [documents[i] for i in self.store.missing(self.store.keys(documents))]
        sentences = list(dict.fromkeys(s for document in missing for s in document.sentences))
        each = 0.0
        if sentences:
            picked = [sentences[i] for i in np.random.default_rng(0).permutation(len(sentences))[:PROBED]]
            cut = self.source.cut([Document(str(n), sentences=(s,)) for n, s in enumerate(picked)])
            list(self.source.encode(cut[:4]))
            began = time.perf_counter()
            list(self.source.encode(cut))
            each = (time.perf_counter() - began) / len(picked)
        steps = self.n_batches(sample)
        encoding, training = each * len(sentences), steps * self.batch_seconds(material.train, sample)
        log.info(
            "estimate: encode %s sentences %s, train %s batches %s, in all %s",
            f"{len(sentences):,}",
            seconds_text(encoding),
            f"{steps:,}",
            seconds_text(training),
            seconds_text(encoding + training),
        )

    def n_batches(self, sample: Sample) -> int:
        """Batches of the whole run."""
        size = self.settings.per_device_train_batch_size
        return -(-(len(sample.tuples) or len(self.windows)) // size) * self.settings.num_train_epochs

    def batch_seconds(self, documents: Sequence[Document], sample: Sample) -> float:
        """Of the blocks, from a part of a batch; heads and optimiser come on top."""
        size, found = self.settings.per_device_train_batch_size, 0.0
        if len(sample.tuples):
            chosen = sample.tuples[: max(1, PROBED // sample.tuples.shape[1])].T.ravel()
            lengths = [len(documents[i].sentences) for i in chosen]
            found += self.probe(lengths) * size * sample.tuples.shape[1] / len(lengths)
        n_windows = self.config.windows_per_batch if len(sample.tuples) else size
        if self.windows:
            lengths = [len(window.ids) for window in self.windows[:8]]
            found += self.probe(lengths) * n_windows / len(lengths)
        return found

    def probe(self, lengths: Sequence[int]) -> float:
        """Seconds of forward and backward through the blocks over random rows, the second time."""
        stack = self.base.stack()
        blocks = LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True, compute=self.objective.compute)
        width = int(stack.model.get_input_embeddings().weight.shape[1])
        vectors, taken = torch.randn(sum(lengths), width, generator=torch.Generator().manual_seed(0)), 0.0
        with torch.random.fork_rng(devices=[]):
            for _ in range(2):
                began = time.perf_counter()
                blocks(blocks.place(vectors, lengths), lengths).square().mean().backward()
                taken = time.perf_counter() - began
        return taken

    # the run

    def fill(self, documents: Sequence[Document]) -> None:
        """Encode what is missing; its seconds are added to those of earlier calls of the same run."""
        spent = self.folder / "encode.json"
        before = float(json.loads(spent.read_text())["seconds"]) if spent.is_file() else 0.0
        done = encode(self.store, documents, self.source) if documents else None
        self.seconds["encode"] = before + (done.seconds if done is not None and done.report.written else 0.0)
        write_bytes(spent, json.dumps({"seconds": self.seconds["encode"]}).encode())

    def method(
        self, documents: Sequence[Document], sample: Sample, paths: list[tuple[str, ...]]
    ) -> tuple[FastDoc, DocumentExamples, Taxonomy | None]:
        """The trainee and its examples."""
        made, stack, windows = self.objective, self.base.stack(), self.windows
        if self.config.sample.topic_levels:
            index = self.store.index(self.store.keys(documents))
            vectors = plain_means(self.store, index)
            found = topics(vectors, [d.text for d in documents], self.config.sample.topic_levels, seed=0)
            paths[:] = list(found.paths)
        taxonomy = Taxonomy.of(paths) if made.hierarchy else None
        labels = None if taxonomy is None else taxonomy.labels(paths)
        if made.of_documents:
            own = self.config.windows_per_batch if made.masked else 0
            examples = DocumentExamples.read(
                documents, sample.tuples, labels, source=self.store, windows=windows, windows_per_batch=own
            )
        else:
            examples = DocumentExamples(windows=tuple(windows))
        scale = 1.0
        if made.of_documents:
            some = examples.index[np.unique(sample.tuples)[:500]]
            measured = norms(stack, self.store.batch(some).views[-1].numpy())
            self.norms, scale = measured.to_json(), measured.token_scale
            log.info("mean lengths: piece %(piece).2f, position %(position).2f, sentence %(sentence).2f", self.norms)
        method = FastDoc(
            stack,
            made,
            () if taxonomy is None else taxonomy.n_classes,
            sentence_width=self.store.spec.width,
            token_scale=scale,
            head=self.head,
            mask_id=self.mask_id,
            seed=self.settings.seed,
            trace_every=self.settings.logging_steps,
        )
        return method, examples, taxonomy

    def windows_of(self, documents: Sequence[Document]) -> list[Window]:
        """Every document's pieces in windows of the config's size; none without a masked loss."""
        if not self.objective.masked:
            return []
        cutter = Pretrained(self.base.path, window=min(self.config.window, self.base.window), overlap=0)
        plain = [Document(d.id, text=" ".join(d.sentences), place=d.place) for d in documents]
        return windows_of(cutter.cut(plain), [d.place for d in documents])

    def side(self, method: FastDoc) -> None:
        """Heads and projection beside the export: they are never part of it."""
        parts = {"hierarchy": method.hierarchy, "projection": method.projection}
        tensors = {f"{n}.{k}": t for n, part in parts.items() if part is not None for k, t in part.state_dict().items()}
        if tensors:
            save_file(tensors, self.folder / "heads.safetensors")

    # after

    def plain(self, documents: Sequence[Document], held: Sample | None) -> float | None:
        """Held-out accuracy of the mean of sentence vectors."""
        if held is None:
            return None
        index, tuples = self._held(documents, held)
        return triplet_accuracy(plain_means(self.store, index), tuples)

    def measured(self, method: FastDoc, documents: Sequence[Document], held: Sample | None) -> dict[str, float]:
        """Held-out accuracy and the centred share of vectors, from sentences and from pieces.

        From sentences as the objective reads them; a masked one reads none, so its vectors enter as they are.
        """
        if held is None:
            return {}
        index, tuples = self._held(documents, held)
        vectors = by_sentences(method, self.store, index)
        found = {"sentences": triplet_accuracy(vectors, tuples), "sentences_centred": centred_share(vectors)}
        few, inside = self._few(held)
        if len(inside):
            plain = [Document(documents[i].id, text=" ".join(documents[i].sentences)) for i in few]
            vectors = by_pieces(method.blocks, [windows_of([cut], [""]) for cut in self.base.cut(plain)])
            found |= {"pieces": triplet_accuracy(vectors, inside), "pieces_centred": centred_share(vectors)}
            found["pieces_tuples"] = len(inside)
        return found

    def _few(self, held: Sample) -> tuple[list[int], np.ndarray]:
        """As many of the first held-out tuples as have at most `token_documents` documents, over these documents."""
        few: dict[int, int] = {}
        rows: list[list[int]] = []
        for row in held.tuples.tolist():
            if len(few.keys() | set(row)) > self.config.token_documents:
                break
            rows.append([few.setdefault(document, len(few)) for document in row])
        return list(few), np.array(rows, np.int64).reshape(len(rows), held.tuples.shape[1])

    def _held(self, documents: Sequence[Document], held: Sample) -> tuple[np.ndarray, np.ndarray]:
        used = np.unique(held.tuples)
        index = self.store.index(self.store.keys([documents[i] for i in used]))
        return index, np.searchsorted(used, held.tuples)

    def costs(
        self, documents: Sequence[Document], examples: DocumentExamples, method: FastDoc, steps: int
    ) -> dict[str, Any]:
        """Three lines: encode once, train, total; and one epoch of masked-language training on the same documents."""
        used = [documents[i] for i in np.unique(examples.tuples)] if len(examples.tuples) else list(documents)
        sentences = (
            [text for cut in self.source.cut(used) for text in cut.texts] if method.objective.of_documents else []
        )
        sizes = [len(text) for text in sentences]
        shape, frozen = self.base.shape, self.source.shape
        once = costs.forward_macs(costs.encoder_products(frozen, sum(sizes), sum(n * n for n in sizes)))
        lengths = examples.lengths[examples.tuples].ravel() if len(examples.tuples) else np.zeros(0, np.int64)
        real, squares = (int(n) * self.settings.num_train_epochs for n in (lengths.sum(), (lengths**2).sum()))
        seen = method.positions
        run = round(real * seen["run"] / seen["real"]) if seen["real"] else real
        train = costs.step_macs(costs.encoder_products(shape, run, squares, shape.n_blocks))
        pieces = [len(cut) for cut in self.base.cut([Document("d", text=" ".join(d.sentences)) for d in used])]
        vocabulary = int(method.blocks.stack.model.get_input_embeddings().weight.shape[0])
        hidden = int(method.objective.probability * sum(pieces))
        head = 3 * hidden * (shape.width**2 + shape.width * vocabulary)
        limit = min(self.config.window, self.base.window)
        whole = costs.encoder_products(shape, sum(pieces), sum(n * min(n, limit) for n in pieces), shape.n_blocks)
        seconds = {**self.seconds, "total": sum(self.seconds.values())}
        flops = {"encode": costs.flops(once), "train": costs.flops(train), "total": costs.flops(once + train)}
        return {
            "seconds": {name: round(value, 2) for name, value in seconds.items()},
            "flops": flops,
            "masked_epoch_flops": costs.flops(costs.step_macs(whole) + head),
            "positions": {"real": real, "run": run, "padded_share": 1 - real / run if run else 0.0},
            "pieces_per_sentence": sum(sizes) / len(sizes) if sizes else None,
            "documents": len(used),
            "visits": int(examples.tuples.size) * self.settings.num_train_epochs,
            "steps": steps,
        }


def pretrain(config: PretrainConfig, folder: Path) -> dict[str, Any]:
    """From documents to `folder/encoder`, an ordinary encoder; returns the report that `report.json` holds.

    Interrupted, it goes on where it was: stored sentences stay, and the loop resumes from its last checkpoint. A folder
    that holds the same run, finished, is left as it is. RunError where it holds another run.
    """
    job = _Job(config, folder)
    check(config.sample, job.objective)
    folder.mkdir(parents=True, exist_ok=True)
    return job.run()


def _named(sample: Sample) -> str:
    names = sample.report.groups_without_partner
    return f"{len(names)}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "0"
