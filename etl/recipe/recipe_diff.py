"""Where two canonical recipes differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any


def differences(old: object, new: object, name: str = "") -> Iterator[str]:
    """Yield the differences between two canonical recipes, as ``key: old -> new``.

    Stages are compared in their order, by kind.

    >>> list(differences({"seed": 0}, {"seed": 1}))
    ['seed: 0 -> 1']
    >>> old, new = [{"kind": "c4"}, {"kind": "sample", "share": 0.5}], [{"kind": "sample", "share": 0.9}]
    >>> list(differences({"stages": old}, {"stages": new}))
    ['stages.c4: removed', 'stages.sample.share: 0.5 -> 0.9']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and _are_stages([*old, *new]):
        yield from _stage_differences(old, new, name)
    elif old != new:
        yield f"{name}: {_short(old)} -> {_short(new)}"


def _are_stages(values: Sequence[object]) -> bool:
    return bool(values) and all(isinstance(value, dict) and "kind" in value for value in values)


def _stage_differences(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], name: str
) -> Iterator[str]:
    before, after = ([str(stage["kind"]) for stage in stages] for stages in (old, new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for change, start, stop, other, end in matcher.get_opcodes():
        if change == "equal":
            for one, another in zip(old[start:stop], new[other:end], strict=True):
                yield from differences(one, another, f"{name}.{one['kind']}")
        else:
            yield from (f"{name}.{kind}: removed" for kind in before[start:stop])
            yield from (f"{name}.{kind}: added" for kind in after[other:end])


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
