"""The recipes that come with Tokenlake, as YAML files, and the sample that the demo reads.

>>> names()
['c4', 'demo', 'fineweb', 'gopher', 'multilingual', 'pretokenize']
>>> path("demo").name
'demo.yaml'
"""

from pathlib import Path

_HERE = Path(__file__).parent


def names() -> list[str]:
    """The names of the shipped recipes, sorted."""
    return sorted(file.stem for file in _HERE.glob("*.yaml"))


def path(name: str) -> Path:
    """The file of a shipped recipe; raises FileNotFoundError if it is none of ``names()``."""
    if name not in names():
        raise FileNotFoundError(f"no shipped recipe {name!r}; there are {', '.join(names())}")
    return _HERE / f"{name}.yaml"
