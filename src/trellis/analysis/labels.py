"""Labels of experiments: the method and the settings that differ."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]
"""Settings by full name, such as `step.max_kl`."""
METHOD, SAMPLER = "step.method", "sampling.sampler"
MOST_SHOWN = 4
"""Largest number of settings in the label of a curve."""


def curve_labels(settings: Sequence[Settings]) -> list[str]:
    """Return a label for each experiment: method, preset and the settings in which they differ."""
    base = (METHOD, "preset")
    shown = [key for key in _varied(settings) if key not in base][:MOST_SHOWN]
    columns = [_assignments(key, settings) for key in shown]
    return [
        ", ".join([*(str(each[key]) for key in base if each.get(key) is not None), *differences])
        for each, *differences in zip(settings, *columns, strict=True)
    ]


def group_labels(settings: Sequence[Settings], mixed: Collection[Any] = ()) -> list[str]:
    """Return the shortest labels that tell the experiments apart.

    A label has the method, the sampler where the method is in `mixed`, and as few other settings
    as possible.
    """
    labels = [[str(each.get(METHOD, "?"))] for each in settings]
    for each, label in zip(settings, labels, strict=True):
        if each.get(METHOD) in mixed:
            label.append(f"sampler={each.get(SAMPLER)}")
    for key in _varied(settings, first=[SAMPLER]):
        if key == METHOD:
            continue
        alike: dict[tuple[str, ...], list[int]] = {}
        for index, label in enumerate(labels):
            alike.setdefault(tuple(label), []).append(index)
        for members in alike.values():
            words = _assignments(key, [settings[index] for index in members])
            if len(set(words)) > 1:
                for index, word in zip(members, words, strict=True):
                    labels[index].append(word)
    return [", ".join(label) for label in labels]


def _varied(settings: Sequence[Settings], first: Sequence[str] = ()) -> list[str]:
    """Return the names of the settings that differ, those in `first` first."""
    keys = dict.fromkeys([*first, *(key for each in settings for key in each)])
    return [key for key in keys if len({repr(each.get(key)) for each in settings}) > 1]


def _assignments(key: str, settings: Sequence[Settings]) -> list[str]:
    return [assignment(key, text) for text in short([each.get(key) for each in settings])]


def assignment(key: str, text: str) -> str:
    """Return a setting as `name=value`, without its group."""
    return f"{key.split('.')[-1]}={text}"


def short(values: Sequence[Any]) -> list[str]:
    """Return the values of a setting as short texts; different values have different texts."""
    words = [_short(value) for value in values]
    exact = [repr(value) for value in values]
    return words if len(set(words)) == len(set(exact)) else exact


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "×".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
