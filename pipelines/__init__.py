"""The recipes shipped with Tokenlake, as YAML files, and the sample data of the demo.

>>> names()
['c4', 'demo', 'fineweb', 'gopher', 'multilingual', 'pretokenize']
>>> path("demo").name
'demo.yaml'
"""

from pathlib import Path

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the shipped recipes, sorted."""
    return sorted(file.stem for file in _HERE.glob("*.yaml"))


def path(name: str) -> Path:
    """Return the file of a shipped recipe; raises FileNotFoundError for an unknown name."""
    if name not in names():
        raise FileNotFoundError(
            f"no shipped recipe is named {name!r}; the shipped recipes are {', '.join(names())}"
        )
    return _HERE / f"{name}.yaml"
