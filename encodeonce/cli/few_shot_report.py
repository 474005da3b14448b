"""What `fewshot` says: what was tried and chosen, what a search decided, scores on the test, as values and as text."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..integrations._material import content
from ..integrations.few_shot import FewShot
from ..methods.refusion.near import leakage, same, texts_of
from ..methods.refusion.refusion import FAINT
from ..metrics.classification import label_scores
from ..report.architecture import architecture_picture, architecture_table
from ..report.table import aligned
from ..report.table import shown as value_of
from .few_shot_material import Given, shown

__all__ = ["as_text", "draw", "report_of", "tested"]

log = logging.getLogger("encodeonce")


def report_of(model: FewShot) -> dict[str, Any]:
    """What was tried and chosen."""
    ratios = {
        name: [{"block": block, "slot": slot, "ratio": ratio} for (block, slot), ratio in own.items()]
        for name, own in model.ratios_.items()
    }
    decided = {name: [asdict(one) for one in lines] for name, lines in model.architecture_.items()}
    return {
        "tried": [asdict(one) for one in model.tried_],
        "chosen": model.mixture_.weights,
        **({"architecture": decided} if decided else {}),
        **({"ratios": ratios} if ratios else {}),
    }


def tested(model: FewShot, given: Given) -> dict[str, Any]:
    """ "test": accuracy, macro F1 and Matthews's correlation, per cent; "leakage": how many of the documents are also
    among the labelled ones, how many have a text among the unlabelled ones (up to case and white space), and the scores
    without both, None where none is left. Labels that training did not have are said."""
    documents, gold = given.test, given.gold
    unseen = sorted(set(gold) - {str(one) for one in model.classes_})
    if unseen:
        log.warning("labels of the test that training did not have, so all wrong: %s", ", ".join(unseen))
    predicted = [str(one) for one in model.predict(shown(documents))]
    learned = {content(document) for document in given.labelled}
    seen = {n for n, document in enumerate(documents) if content(document) in learned}
    found = set(leakage(documents, {same(text) for one in given.unlabelled for text in texts_of(one)}).found)
    clean = [n for n in range(len(documents)) if n not in seen | found]
    without = label_scores([gold[n] for n in clean], [predicted[n] for n in clean]) if clean else None
    return {
        "test": label_scores(list(gold), predicted),
        "leakage": {"labelled": len(seen), "unlabelled": len(found), "without": without},
    }


def draw(model: FewShot, picture: Path) -> None:
    """A picture of each architecture; several have their method's name in the file's. None is said."""
    for name, decided in model.architecture_.items():
        several = len(model.architecture_) > 1
        path = picture.with_stem(f"{picture.stem}-{name}") if several else picture
        log.info("%s written", architecture_picture(decided, path, name))
    if not model.architecture_:
        log.warning("no picture: no fusion that was searched has a weight in what was chosen")


def as_text(model: FewShot, result: Mapping[str, Any]) -> str:
    """A table of what was tried, the choice in a sentence, scores, answers."""
    header = ["method", "held out, % right", "log-likelihood", "weight", "seconds"]
    rows = [
        [one.name, f"{one.accuracy:.1f}", f"{one.log_likelihood:.3f}", f"{one.weight:.2f}", f"{one.seconds:.1f}"]
        for one in model.tried_
    ]
    lines = [aligned(header, rows), "", model.summary()]
    for name, decided in model.architecture_.items():
        lines += ["", f"{name}: what the search weighed and chose, per cent", architecture_table(decided)]
    lines += [f"{name}: {_share(list(own.values()))}" for name, own in model.ratios_.items()]
    if "test" in result:
        lines += _of_test(result["test"], result["leakage"])
    return "\n".join([*lines, *result.get("answers", [])])


def _share(ratios: Sequence[float]) -> str:
    """How much the modules of a fusion add, in a sentence."""
    if not ratios:
        return "no module adds anything"
    faint = sum(ratio < FAINT for ratio in ratios)
    least, most = (f"{100 * value:.2f}" for value in (min(ratios), max(ratios)))
    return f"{len(ratios)} modules add {least} to {most} % of their slot's output; {faint} of them add less than 1 %"


def _of_test(scores: Mapping[str, float | None], leaked: Mapping[str, Any]) -> list[str]:
    """A line of scores; where texts of the test were seen, one of those without them."""
    lines = [f"test: {_scores(scores)}"]
    if leaked["labelled"] or leaked["unlabelled"]:
        without = _scores(leaked["without"]) if leaked["without"] else "none is left"
        lines.append(
            f"of these texts {leaked['labelled']} are among the labelled ones and {leaked['unlabelled']} among the "
            f"unlabelled ones; without them: {without}"
        )
    return lines


def _scores(found: Mapping[str, float | None]) -> str:
    counted = {name: f"{value:,.0f}" if name == "n" and value else value_of(value) for name, value in found.items()}
    return ", ".join(f"{name} {value}" for name, value in counted.items())
