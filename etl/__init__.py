"""Tokenlake turns raw text into versioned, auditable token tables for training.

Each command of ``etl`` has a function here, except those that operate a cluster. The public modules are
``etl``, ``etl.loader``, ``etl.errors`` and ``etl.exports.huggingface``; all others may change in any version.

>>> import etl
>>> from textwrap import fill
>>> functions = sorted(name for name in etl.__all__ if name.islower())
>>> print(fill(" ".join(functions), 72))
apply commit_losses compare_lakes diff diff_lakes doctor drop_tokens
duplicates export_documents export_megatron graph history lake_page
list_recipes list_stages make_certificates make_trial optimize plan
plan_change propose_recipe read read_table release releases
remove_release repair replay report run sample shuffle status submit
sweep trace tune tune_similarity vacuum verify warm_kernels write
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from etl.errors import torch_error, unknown_attribute

if TYPE_CHECKING:
    from etl.audit.duplicates.duplicate_report import duplicates
    from etl.audit.lake_comparison import compare_lakes
    from etl.audit.lake_diff import diff_lakes
    from etl.audit.lake_report import report
    from etl.audit.lake_status import lake_status as status
    from etl.audit.lineage_graph import graph
    from etl.audit.page.render import lake_page
    from etl.audit.sample_documents import sample
    from etl.audit.table_diff import diff
    from etl.audit.trace import trace
    from etl.audit.tune.similarity_limits import tune_similarity
    from etl.audit.tune.tune import sweep, tune
    from etl.audit.verify.verify import verify
    from etl.compute.certificates import make_certificates
    from etl.compute.cluster import Cluster
    from etl.compute.listener import Listener, Progress, RunTotals
    from etl.compute.print_listener import PrintListener
    from etl.dataframe import read, read_table, write
    from etl.delta.table import Table
    from etl.errors import TokenlakeError
    from etl.exports.documents import export_documents
    from etl.exports.megatron import export_megatron
    from etl.job.change_plan import plan_change
    from etl.job.doctor import doctor
    from etl.job.plan_report import PlanReport, plan
    from etl.job.run import run
    from etl.job.run_report import RunReport
    from etl.job.shuffle import ShuffleReport, ShuffleSettings, shuffle
    from etl.job.submit import submit
    from etl.job.trial import make_trial
    from etl.job.warm import warm_kernels
    from etl.lake.releases import create_release as release
    from etl.lake.releases import list_releases as releases
    from etl.lake.releases import remove_release
    from etl.lake.table_versions import history
    from etl.loader.replay import replay
    from etl.maintenance.commit_losses import commit_losses
    from etl.maintenance.drop_tokens import drop_tokens
    from etl.maintenance.optimize import optimize
    from etl.maintenance.repair import repair
    from etl.maintenance.vacuum import vacuum
    from etl.notebook import apply
    from etl.pipelines import list_recipes
    from etl.recipe.propose import propose_recipe
    from etl.recipe.recipe import Recipe
    from etl.recipe.stage_reference import list_stages
    from etl.sources import Columns, Source

# Names are imported on first use: `import etl` stays fast, and the loader does not import Dask.
_ORIGINS = {
    "Cluster": "etl.compute.cluster.Cluster",
    "Columns": "etl.sources.Columns",
    "Listener": "etl.compute.listener.Listener",
    "PlanReport": "etl.job.plan_report.PlanReport",
    "PrintListener": "etl.compute.print_listener.PrintListener",
    "Progress": "etl.compute.listener.Progress",
    "Recipe": "etl.recipe.recipe.Recipe",
    "RunReport": "etl.job.run_report.RunReport",
    "RunTotals": "etl.compute.listener.RunTotals",
    "ShuffleReport": "etl.job.shuffle.ShuffleReport",
    "ShuffleSettings": "etl.job.shuffle.ShuffleSettings",
    "Source": "etl.sources.Source",
    "Table": "etl.delta.table.Table",
    "TokenlakeError": "etl.errors.TokenlakeError",
    "apply": "etl.notebook.apply",
    "commit_losses": "etl.maintenance.commit_losses.commit_losses",
    "compare_lakes": "etl.audit.lake_comparison.compare_lakes",
    "diff": "etl.audit.table_diff.diff",
    "diff_lakes": "etl.audit.lake_diff.diff_lakes",
    "doctor": "etl.job.doctor.doctor",
    "drop_tokens": "etl.maintenance.drop_tokens.drop_tokens",
    "duplicates": "etl.audit.duplicates.duplicate_report.duplicates",
    "export_documents": "etl.exports.documents.export_documents",
    "export_megatron": "etl.exports.megatron.export_megatron",
    "graph": "etl.audit.lineage_graph.graph",
    "history": "etl.lake.table_versions.history",
    "lake_page": "etl.audit.page.render.lake_page",
    "list_recipes": "etl.pipelines.list_recipes",
    "list_stages": "etl.recipe.stage_reference.list_stages",
    "make_certificates": "etl.compute.certificates.make_certificates",
    "make_trial": "etl.job.trial.make_trial",
    "optimize": "etl.maintenance.optimize.optimize",
    "plan": "etl.job.plan_report.plan",
    "plan_change": "etl.job.change_plan.plan_change",
    "propose_recipe": "etl.recipe.propose.propose_recipe",
    "read": "etl.dataframe.read",
    "read_table": "etl.dataframe.read_table",
    "release": "etl.lake.releases.create_release",
    "releases": "etl.lake.releases.list_releases",
    "remove_release": "etl.lake.releases.remove_release",
    "repair": "etl.maintenance.repair.repair",
    "replay": "etl.loader.replay.replay",
    "report": "etl.audit.lake_report.report",
    "run": "etl.job.run.run",
    "sample": "etl.audit.sample_documents.sample",
    "shuffle": "etl.job.shuffle.shuffle",
    "status": "etl.audit.lake_status.lake_status",
    "submit": "etl.job.submit.submit",
    "sweep": "etl.audit.tune.tune.sweep",
    "trace": "etl.audit.trace.trace",
    "tune": "etl.audit.tune.tune.tune",
    "tune_similarity": "etl.audit.tune.similarity_limits.tune_similarity",
    "vacuum": "etl.maintenance.vacuum.vacuum",
    "verify": "etl.audit.verify.verify.verify",
    "warm_kernels": "etl.job.warm.warm_kernels",
    "write": "etl.dataframe.write",
}

__all__ = [
    "Cluster",
    "Columns",
    "Listener",
    "PlanReport",
    "PrintListener",
    "Progress",
    "Recipe",
    "RunReport",
    "RunTotals",
    "ShuffleReport",
    "ShuffleSettings",
    "Source",
    "Table",
    "TokenlakeError",
    "apply",
    "commit_losses",
    "compare_lakes",
    "diff",
    "diff_lakes",
    "doctor",
    "drop_tokens",
    "duplicates",
    "export_documents",
    "export_megatron",
    "graph",
    "history",
    "lake_page",
    "list_recipes",
    "list_stages",
    "make_certificates",
    "make_trial",
    "optimize",
    "plan",
    "plan_change",
    "propose_recipe",
    "read",
    "read_table",
    "release",
    "releases",
    "remove_release",
    "repair",
    "replay",
    "report",
    "run",
    "sample",
    "shuffle",
    "status",
    "submit",
    "sweep",
    "trace",
    "tune",
    "tune_similarity",
    "vacuum",
    "verify",
    "warm_kernels",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _ORIGINS:
        if name == "__version__":
            return import_module("importlib.metadata").version("tokenlake")  # takes 20 ms
        raise unknown_attribute("etl", name, __all__)
    module, _, attribute = _ORIGINS[name].rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise torch_error(error) or error from error


def __dir__() -> list[str]:
    return __all__
