"""Tokenlake turns raw text into versioned, auditable token tables for training.

>>> import etl
>>> functions = sorted(name for name in etl.__all__ if name.islower())
>>> print(*functions[:10])
apply commit_losses diff graph history make_trial optimize propose_recipe read read_table
>>> print(*functions[10:])
repair report run sample shuffle sweep trace tune vacuum verify write
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl.audit.diff import diff
    from etl.audit.lake_report import report
    from etl.audit.lineage_graph import graph, history, trace
    from etl.audit.sample import sample
    from etl.audit.tune.tune import sweep, tune
    from etl.audit.verify.verify import verify
    from etl.compute.cluster import Cluster
    from etl.dataframe import apply, read, read_table, write
    from etl.delta.table import Table
    from etl.errors import TokenlakeError
    from etl.job.progress import RunReport
    from etl.job.run import run
    from etl.job.shuffle import ShuffleReport, ShuffleSettings, shuffle
    from etl.job.trial import make_trial
    from etl.maintenance.commit_losses import commit_losses
    from etl.maintenance.optimize import optimize
    from etl.maintenance.repair import repair
    from etl.maintenance.vacuum import vacuum
    from etl.recipe.propose import propose_recipe
    from etl.recipe.recipe import Recipe
    from etl.sources import Columns, Source

# Names are imported on first use: `import etl` stays fast, and the loader does not import Dask.
_MODULES = {
    "Cluster": "etl.compute.cluster",
    "Columns": "etl.sources",
    "Recipe": "etl.recipe.recipe",
    "RunReport": "etl.job.progress",
    "ShuffleReport": "etl.job.shuffle",
    "ShuffleSettings": "etl.job.shuffle",
    "Source": "etl.sources",
    "Table": "etl.delta.table",
    "TokenlakeError": "etl.errors",
    "apply": "etl.dataframe",
    "commit_losses": "etl.maintenance.commit_losses",
    "diff": "etl.audit.lineage_graph",
    "graph": "etl.audit.lineage_graph",
    "history": "etl.audit.lineage_graph",
    "make_trial": "etl.job.trial",
    "optimize": "etl.maintenance.optimize",
    "propose_recipe": "etl.recipe.propose",
    "read": "etl.dataframe",
    "read_table": "etl.dataframe",
    "repair": "etl.maintenance.repair",
    "report": "etl.audit.lake_report",
    "run": "etl.job.run",
    "sample": "etl.audit.sample",
    "shuffle": "etl.job.shuffle",
    "sweep": "etl.audit.tune.tune",
    "trace": "etl.audit.lineage_graph",
    "tune": "etl.audit.tune.tune",
    "vacuum": "etl.maintenance.vacuum",
    "verify": "etl.audit.verify.verify",
    "write": "etl.dataframe",
}

__all__ = [
    "Cluster",
    "Columns",
    "Recipe",
    "RunReport",
    "ShuffleReport",
    "ShuffleSettings",
    "Source",
    "Table",
    "TokenlakeError",
    "apply",
    "commit_losses",
    "diff",
    "graph",
    "history",
    "make_trial",
    "optimize",
    "propose_recipe",
    "read",
    "read_table",
    "repair",
    "report",
    "run",
    "sample",
    "shuffle",
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
