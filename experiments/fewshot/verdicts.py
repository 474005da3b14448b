"""What rows of the few-shot experiment say of fusion: a sentence a fusion and its controls, a table a setting of it."""

from tables import Difference, Found, Grid, controls_of, plain_of

from encodeonce.methods.refusion import FUSINGS
from encodeonce.metrics.few_shot import over_tasks

__all__ = ["settings", "verdicts"]

TITLES = {
    "k": "Number of neighbours (the paper's Table 10)",
    "slots": "Slots (the paper's Table 8)",
    "metric": "Metric (the paper's Table 9)",
    "queries": "Queries, the text or the hidden state (the paper's Table 3)",
    "texts": "Texts before the prompt (the paper's Figure 1)",
}
"""Of a table a setting; another setting has its own name."""

METRIC, TEXTS = "l2", "8"
"""Those of a fusion, and of "concat", that name none."""


def verdicts(found: Found) -> list[str]:
    """A sentence for each fusion that was run with what it adds to: its gain; where it was run with controls too, the
    largest gain of one, how far fusion is above that, and what follows, all over the cells that the three have."""
    sentences = []
    for name, own in found.items():
        plain = plain_of(name)
        if plain not in found or not controls_of(name) or of_setting(name) is not None:
            continue
        gains = {
            control: gain
            for control in controls_of(name)
            if control in found and (gain := Difference.of(found[control], found[plain], own)) is not None
        }
        best = max(gains, key=lambda one: gains[one].mean) if gains else plain
        gain, above = (
            Difference.of(own, *others) for others in ((found[plain], found[best]), (found[best], found[plain]))
        )
        if gain is None or above is None:
            continue
        sentence = f"`{name}` over `{plain}`: {gain}."
        if gains:
            sentence += (
                f" In its place `{best}`, the best of {len(gains)} controls, has {gains[best].mean:+.2f}, and "
                f"`{name}` over that: {above}. {follows(gain, gains[best], above)}"
            )
        else:
            sentence += " None of its controls has been run."
        sentences.append(sentence)
    return sentences


def follows(gain: Difference, explained: Difference, above: Difference) -> str:
    """What the three differences say together; "told from 0" is by the 95 % interval over tasks."""
    if not gain.told:
        return "There is no gain that can be told from 0, so nothing for a control to explain."
    if gain.mean < 0:
        return "It costs more than it gives."
    share = f"The control explains {100 * explained.mean / gain.mean:.0f} % of the gain"
    if above.told:
        return f"{share}; the rest can be told from 0, so what is retrieved {'helps' if above.mean > 0 else 'hurts'}."
    return f"{share}; the rest cannot be told from 0."


def settings(found: Found) -> list[tuple[str, Grid]]:
    """A table for each setting of each method that was run with several values of that setting alone: its mean over its
    own cells and how many these are, then paired differences to what it adds to and to the usual value."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name in found:
        if (varied := of_setting(name)) is not None:
            base, setting, value = varied
            groups.setdefault((setting, base), {})[value] = name
    tables = []
    for setting, base in sorted(groups, key=lambda group: list(TITLES).index(group[0]) if group[0] in TITLES else 9):
        own = groups[setting, base]
        usual = usual_value(base, setting)
        every = {**({usual: base} if base in found else {}), **own}
        if len(every) < 2:
            continue
        plain = plain_of(base)
        lines = []
        for value in sorted(every, key=lambda one: (0, int(one)) if one.isdigit() else (1, 0)):
            name = every[value]
            mean, _ = over_tasks({task: list(seeds.values()) for task, seeds in found[name].items()})
            line = [f"{value} (usual)" if name == base else value, f"{mean:.2f}"]
            line.append(str(sum(map(len, found[name].values()))))
            for rival in (plain, base):
                other = Difference.of(found[name], found[rival]) if rival in found and rival != name else None
                line += shown(other)
            lines.append(line)
        header = [f"`{base}`", "mean", "cells", f"over `{plain}`", "error", "cells", "over the usual", "error", "cells"]
        tables.append((f"{TITLES.get(setting, setting)}:", (header, lines)))
    return tables


def shown(one: Difference | None) -> list[str]:
    """Mean, error and cells of a difference; empty where there is none."""
    if one is None:
        return ["", "", ""]
    return [f"{one.mean:+.2f}", "" if one.error is None else f"{one.error:.2f}", str(one.cells)]


def of_setting(name: str) -> tuple[str, str, str] | None:
    """A method's name without its one setting, the setting and its value; None for a control, and for a name with
    another number of settings. The number of texts before a prompt counts as one."""
    if name.startswith("concat."):
        number, plus, part = name.removeprefix("concat.").partition("+")
        return f"concat{plus}{part}", "texts", number
    whole, plus, part = name.partition("+")
    base, _, given = whole.partition(",")
    if given.count("=") != 1 or ":" in base:
        return None
    setting, _, value = given.partition("=")
    return f"{base}{plus}{part}", setting, value


def usual_value(base: str, setting: str) -> str:
    """What `base` has where its name says nothing."""
    if setting == "texts":
        return TEXTS
    if setting == "metric":
        return METRIC
    name = base.partition("+")[0].partition(".")[2].partition(":")[0]
    value = getattr(FUSINGS[name], setting)
    return "/".join(value) if isinstance(value, tuple) else str(value)
