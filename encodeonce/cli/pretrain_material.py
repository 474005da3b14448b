"""What `pretrain` trains on: documents with sentences, training and held out, and tuples of them under its rule.

Axes: N documents
"""

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from ..corpus.taxonomy import names_of, path_of
from ..corpus.text import joined, with_sentences
from ..encoders.pooled import Pooled
from ..errors import ConfigError, DataError
from ..methods.fastdoc.examples import too_long
from ..methods.fastdoc.objective import Objective
from ..methods.fastdoc.sampling import Sample, quadruplets, shuffled, triplets
from ..methods.fastdoc.similarity import Cited, SharedGroup
from ..methods.fastdoc.unsupervised import rouge_triplets
from ..resolve import nearest
from ..types import Document
from .pretrain_config import PROBE, DocumentsSection, PretrainConfig, ProbeSection
from .pretrain_costs import Budget
from .steps import documents_of

__all__ = ["Material", "check", "paths_of", "prepare", "sampled", "say_unread", "topics_in", "unread", "within"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Material:
    """Documents with sentences, training and held out; what was counted on the way."""

    train: list[Document]
    held_out: list[Document]
    counts: dict[str, Any]

    def digest(self) -> str:
        """Equal for equal documents on both sides, in this order, with equal metadata."""
        digest = hashlib.sha256()
        for document in (*self.train, *self.held_out):
            content = [document.id, document.key, document.sentences, document.meta]
            digest.update(json.dumps(content, sort_keys=True, default=str).encode())
        return digest.hexdigest()


def check(config: PretrainConfig, objective: Objective) -> None:
    """ConfigError for settings that would do nothing, for `full` where no sentence encoder learns, and for a budget
    that is none or stands beside a number of epochs."""
    made = config.sample
    if config.budget:
        Budget.read(config.budget)
    if config.budget and config.train.num_train_epochs > 1:
        raise ConfigError(
            f"budget={config.budget!r} says how much is read; train.num_train_epochs={config.train.num_train_epochs} "
            "does too."
        )
    if config.data.min_cosine is not None and config.data.taxonomy is None:
        raise ConfigError(
            f"data.min_cosine = {config.data.min_cosine} is of categories that are put into a taxonomy; set "
            "data.taxonomy, too, or leave it out."
        )
    if config.full and not objective.of_documents:
        raise ConfigError(f"full = true: objective = {config.objective!r} reads no sentences; leave it out.")
    if config.full and (config.pooling != "mean" or config.normalize):
        raise ConfigError(
            f"full = true trains on means of pieces; pooling = {config.pooling!r}, normalize = {config.normalize} are "
            "of stored vectors. Leave these out."
        )
    if made.rule == "citations" and not made.field:
        raise ConfigError("sample.rule = 'citations' needs sample.field, the field of the cited ids.")
    if made.hard_ratio and made.rule != "citations":
        raise ConfigError(f"sample.hard_ratio = {made.hard_ratio} is of rule = 'citations'; this is {made.rule!r}.")
    if config.train.early_stopping_patience or config.train.per_device_train_batch_pieces:
        raise ConfigError(
            f"train.early_stopping_patience = {config.train.early_stopping_patience} needs a dev part, "
            f"train.per_device_train_batch_pieces = {config.train.per_device_train_batch_pieces} batches of pieces: "
            "pretrain has neither. Leave these out; train.per_device_train_batch_size counts tuples."
        )
    if made.topic_levels and not objective.hierarchy:
        raise ConfigError(f"sample.topic_levels = {made.topic_levels}: this objective reads no classes; leave it out.")
    if made.topics and not made.topic_levels:
        raise ConfigError(f"sample.topics = {made.topics!r}: set sample.topic_levels, too.")
    if (made.topics or not made.topic_levels) and (made.n_topics or made.min_documents != 5):
        raise ConfigError(
            f"sample.n_topics = {made.n_topics}, sample.min_documents = {made.min_documents} are of topics that are "
            "clusters; set sample.topic_levels without sample.topics, or leave these out."
        )
    if made.min_children != 2 and not made.topic_levels:
        raise ConfigError(f"sample.min_children = {made.min_children} is of topics: set sample.topic_levels, too.")
    if made.shuffled and (made.rule == "rouge" or made.topic_levels):
        raise ConfigError(
            "sample.shuffled gives documents each other's metadata; rule = 'rouge' and topic_levels read the texts, so "
            "such a run would be no control."
        )


def say_unread(config: PretrainConfig, objectives: Sequence[Objective]) -> None:
    """A warning for each setting that was given and that none of these objectives reads."""
    first, *others = [unread(config, one) for one in objectives]
    for name, value in first.items():
        if all(name in other for other in others):
            log.warning("%s = %r: this run does not read it", name, value)


def unread(config: PretrainConfig, objective: Objective) -> dict[str, Any]:
    """Settings that were given and change nothing in a run of this objective: name -> value."""
    made, data = config.sample, config.data
    held_out = bool(data.split or data.held_out)
    drawn = objective.of_documents or config.windows_of == "tuples"  # tuples of documents that are trained on
    grouped = (drawn or held_out) and made.rule != "rouge"  # documents by their metadata
    by_path = (grouped and not made.field) or (objective.hierarchy and not made.topic_levels)
    names = {
        "windows_of": not objective.masked,
        "windows_per_batch": not (objective.masked and objective.of_documents),
        "token_documents": not held_out,
        "train.inside_learning_rate": True,
        "train.per_device_eval_batch_size": True,
        "sample.rule": not (drawn or held_out),
        "sample.field": not grouped,
        "sample.brand": not grouped or made.rule != "brand",
        "sample.hard_ratio": not grouped,
        "sample.n": not drawn,
        "sample.doubled": not objective.of_documents or made.rule == "brand" or bool(made.hard_ratio),
        "sample.shuffled": not drawn,
        "sample.n_held_out": not held_out,
        "data.path": not by_path and data.taxonomy is None,
        "data.levels": not by_path,
        "data.keep": not data.max_sentences,
        "data.held_out": bool(data.split),
        "data.held_out_name": not data.split,
        **{f"probe.{name}": config.objective != PROBE for name in ProbeSection.model_fields},
    }
    options = {*objective.idle(config.options), *(() if made.rule == "brand" else ("far",))}
    found = {f"options.{name}": value for name, value in config.options.items() if name in options}
    for name in (name for name, idle in names.items() if idle):
        section, _, key = name.rpartition(".")
        part = getattr(config, section) if section else config
        if getattr(part, key) != type(part).model_fields[key].get_default(call_default_factory=True):
            found[name] = getattr(part, key)
    return found


def prepare(config: PretrainConfig, fields: Mapping[str, str]) -> Material:
    """Read, cut into sentences, limit, hold out. Documents without a sentence are counted and left out; the text of one
    that brings its own sentences is these, by which it is known.

    DataError where no document has one of `fields` (the config's key -> its name), or where a side is empty.
    """
    data = config.data
    config.need("data.train")
    read = documents_of(data.train, data.format, data.columns)
    documents = with_sentences([joined(document) if document.sentences else document for document in read])
    known = sorted({name for document in documents for name in document.meta})
    for key, field in fields.items():
        if field not in known:
            without = " Without metadata: sample.rule = 'rouge' and sample.topic_levels." if key == "data.path" else ""
            raise DataError(
                f"{key} = {field!r}: none of {len(documents)} documents has this field.{nearest(field, known)} "
                f"There is: {', '.join(known) or 'none'}.{without}"
            )
    kept = [document for document in documents if document.sentences]
    if not kept:
        raise DataError(f"none of {len(documents)} documents has a sentence: their texts are empty or white space.")
    limited = [_limited(document, data.max_sentences, data.keep) for document in kept]
    held = _held(limited, data)
    counts: dict[str, Any] = {
        "documents": len(documents),
        "without_sentence": len(documents) - len(kept),
        "shortened": sum(len(a.sentences) < len(b.sentences) for a, b in zip(limited, kept, strict=True)),
        "sentences": sum(len(document.sentences) for document in limited),
    }
    if counts["without_sentence"] or counts["shortened"]:
        log.info("%(without_sentence)d documents without a sentence left out, %(shortened)d shortened", counts)
    copies = {d.key for d, out in zip(limited, held, strict=True) if not out}
    counts["held_out_copies"] = sum(out and d.key in copies for d, out in zip(limited, held, strict=True))
    if counts["held_out_copies"]:
        log.warning("%d held-out documents have a text that is trained on, too", counts["held_out_copies"])
    train, apart = ([d for d, out in zip(limited, held, strict=True) if out is side] for side in (False, True))
    if data.split:
        counts["trained_on"] = _sides(train, data.split)
    return Material(train, apart, counts)


def _held(documents: Sequence[Document], data: DocumentsSection) -> list[bool]:
    """Which documents are held out: those that the field says, or a part by content. DataError for none, where the
    field says it, and for all."""
    if data.split:
        held = [document.meta.get(data.split) == data.held_out_name for document in documents]
        if not any(held) or all(held):
            there = sorted({repr(document.meta.get(data.split)) for document in documents})
            raise DataError(
                f"{sum(held)} of {len(held)} documents have {data.split} = {data.held_out_name!r}: not some. "
                f"There is: {', '.join(there[:8])}{' ...' if len(there) > 8 else ''}."
            )
        return held
    held = [int(document.key[:8], 16) < data.held_out * 16**8 for document in documents]
    if data.held_out and not any(held):
        log.warning("no held-out score: data.held_out = %g holds none of %d documents out", data.held_out, len(held))
    if all(held):
        raise DataError(
            f"data.held_out = {data.held_out} holds all {len(held)} documents out, by their content: none is left to "
            "train on. Lower it, or give more documents."
        )
    return held


def _sides(documents: Sequence[Document], field: str) -> dict[str, int]:
    """How many documents have which value of the field ("none" for without one), the most first; several are said."""
    values = [document.meta.get(field) for document in documents]
    found = dict(Counter("none" if value is None else str(value) for value in values).most_common())
    if len(found) > 1:
        shown = [f"{n} with {field} = {value}" for value, n in list(found.items())[:8]]
        log.warning(
            "trained on is all that is not held out: %s%s. Leave out of the files what should be neither",
            ", ".join(shown),
            " ..." if len(found) > 8 else "",
        )
    return found


def within(material: Material, source: Pooled) -> Material:
    """Without the documents that have a sentence longer than the window of a sentence encoder that is trained; how many
    these are is counted."""
    sides = [
        [d for d, cut in zip(side, source.cut(side), strict=True) if not too_long(cut)]
        for side in (material.train, material.held_out)
    ]
    gone = len(material.train) + len(material.held_out) - sum(map(len, sides))
    if gone:
        log.info("%d documents left out, which have a sentence longer than %d pieces", gone, source.model.window)
    return Material(sides[0], sides[1], {**material.counts, "over_the_window": gone})


def _limited(document: Document, most: int, keep: str) -> Document:
    extra = len(document.sentences) - most
    if not most or extra <= 0:
        return document
    first = {"head": 0, "middle": extra // 2, "tail": extra}[keep]
    return replace(document, sentences=document.sentences[first : first + most])


def paths_of(documents: Sequence[Document], config: PretrainConfig) -> list[tuple[str, ...]]:
    """The category paths, cut at the config's level."""
    levels = config.data.levels or None
    return [path_of(document, config.data.path)[:levels] for document in documents]


def topics_in(documents: Sequence[Document], field: str) -> Int[np.ndarray, " N"]:
    """The topics that documents have under a field: whole numbers, or these as text; negative: none.

    DataError for any other value, and where there are fewer than two topics.
    """
    found = [str(document.meta.get(field)) for document in documents]
    odd = next((n for n, value in enumerate(found) if not re.fullmatch(r"-?\d+", value)), None)
    if odd is not None:
        value = documents[odd].meta.get(field)
        raise DataError(
            f"{documents[odd].place or documents[odd].id}: {field!r} is {value!r}; a topic is a whole number, -1 for a "
            "document in none."
        )
    labels = np.array(found, dtype=np.int64)
    if (n := len(np.unique(labels[labels >= 0]))) < 2:
        raise DataError(f"sample.topics = {field!r}: {n} topics in {len(found)} documents; a hierarchy needs two.")
    return labels


def sampled(documents: Sequence[Document], config: PretrainConfig, n: int, seed: int, mixed: bool) -> Sample:
    """Tuples of these documents under the config's rule; with `mixed`, their metadata belongs to others."""
    made = config.sample
    keys = [document.key for document in documents]
    if made.rule == "rouge":
        return rouge_triplets([document.text for document in documents], n, seed)
    order = shuffled(range(len(documents)), seed) if mixed else list(range(len(documents)))
    whole = [[" > ".join(path)] if path else [] for path in paths_of(documents, config)]
    groups = [list(names_of(document, made.field)) for document in documents] if made.field else whole
    if made.rule in ("category", "brand") and any(len(own) > 1 for own in groups):
        raise DataError(
            f"rule={made.rule!r}: {made.field!r} holds several names; use rule='concepts', or, where they are the path "
            f"of one category, data.path={made.field!r} and no sample.field."
        )
    groups = [groups[i] for i in order]
    if made.rule == "citations":
        rule = Cited.of(keys, [document.id for document in documents], groups)
        return triplets(rule, n, seed, made.hard_ratio)
    if made.rule == "brand":
        brands = [list(names_of(documents[i], made.brand)) for i in order]
        return quadruplets(SharedGroup.of(keys, groups), SharedGroup.of(keys, brands), n, seed)
    return triplets(SharedGroup.of(keys, groups), n, seed)
