"""Tokenlake: raw text in object storage -> versioned, auditable token tables -> PyTorch.

>>> import etl
>>> sorted(name for name in etl.__all__ if name.islower())
['apply', 'diff', 'graph', 'history', 'read', 'read_table', 'report', 'run', 'trace', 'verify', 'write']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl.cluster import Cluster
    from etl.errors import TokenlakeError
    from etl.frames import apply, read, read_table, write
    from etl.lineage import diff, graph, history, trace
    from etl.recipe import Recipe
    from etl.reporter import report
    from etl.runner import RunReport, run
    from etl.sources import Columns, Source
    from etl.table import Table
    from etl.verifier import verify

# Names are imported when they are first used, so that `import etl` is quick and the loader needs no Dask.
_HOMES = {
    "Cluster": "etl.cluster",
    "Columns": "etl.sources",
    "Recipe": "etl.recipe",
    "RunReport": "etl.runner",
    "Source": "etl.sources",
    "Table": "etl.table",
    "TokenlakeError": "etl.errors",
    "apply": "etl.frames",
    "diff": "etl.lineage",
    "graph": "etl.lineage",
    "history": "etl.lineage",
    "read": "etl.frames",
    "read_table": "etl.frames",
    "report": "etl.reporter",
    "run": "etl.runner",
    "trace": "etl.lineage",
    "verify": "etl.verifier",
    "write": "etl.frames",
}

__all__ = [
    "Cluster",
    "Columns",
    "Recipe",
    "RunReport",
    "Source",
    "Table",
    "TokenlakeError",
    "apply",
    "diff",
    "graph",
    "history",
    "read",
    "read_table",
    "report",
    "run",
    "trace",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'etl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
