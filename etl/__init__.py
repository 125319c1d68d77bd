"""Tokenlake turns raw text into versioned, auditable token tables for training.

>>> import etl
>>> print(*sorted(name for name in etl.__all__ if name.islower()))
apply diff graph history optimize read read_table repair report run sweep trace tune vacuum verify write
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl.audit.lineage import diff, graph, history, trace
    from etl.audit.report import report
    from etl.audit.tune import sweep, tune
    from etl.audit.verify import verify
    from etl.care.optimize import optimize
    from etl.care.repair import repair
    from etl.care.vacuum import vacuum
    from etl.cluster import Cluster
    from etl.errors import TokenlakeError
    from etl.frames import apply, read, read_table, write
    from etl.job.progress import RunReport
    from etl.job.run import run
    from etl.recipe import Recipe
    from etl.sources import Columns, Source
    from etl.table import Table

# Names are imported on first use: `import etl` stays fast, and the loader does not import Dask.
_MODULES = {
    "Cluster": "etl.cluster",
    "Columns": "etl.sources",
    "Recipe": "etl.recipe",
    "RunReport": "etl.job.progress",
    "Source": "etl.sources",
    "Table": "etl.table",
    "TokenlakeError": "etl.errors",
    "apply": "etl.frames",
    "diff": "etl.audit.lineage",
    "graph": "etl.audit.lineage",
    "history": "etl.audit.lineage",
    "optimize": "etl.care.optimize",
    "read": "etl.frames",
    "read_table": "etl.frames",
    "repair": "etl.care.repair",
    "report": "etl.audit.report",
    "run": "etl.job.run",
    "sweep": "etl.audit.tune",
    "trace": "etl.audit.lineage",
    "tune": "etl.audit.tune",
    "vacuum": "etl.care.vacuum",
    "verify": "etl.audit.verify",
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
    "optimize",
    "read",
    "read_table",
    "repair",
    "report",
    "run",
    "sweep",
    "trace",
    "tune",
    "vacuum",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'etl' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
