"""Where two canonical recipes differ."""

from collections.abc import Iterator


def differences(old: object, new: object, name: str = "") -> Iterator[str]:
    """Yield the differences between two canonical recipes, as ``key: old -> new``.

    >>> list(differences({"seed": 0}, {"seed": 1}))
    ['seed: 0 -> 1']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            kind = a.get("kind", index) if isinstance(a, dict) else index
            yield from differences(a, b, f"{name}.{kind}")
    elif old != new:
        yield f"{name}: {_short(old)} -> {_short(new)}"


def _short(value: object) -> str:
    text = (
        str([v.get("kind", v) if isinstance(v, dict) else v for v in value])
        if isinstance(value, list)
        else str(value)
    )
    return text if len(text) <= 80 else text[:77] + "..."
