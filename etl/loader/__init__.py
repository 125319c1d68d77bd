"""Read a version of a token table as batches for PyTorch, in a reproducible order.

A dataset (``dataset.py``, ``mixture.py``) combines three packages; each imports only those before it:

order      which samples an epoch has, and in which order: arithmetic, no files
fetch      the tokens of row groups, from local files or an object store
batches    tokens to tensors: packed windows, best-fit windows or padded documents

``views`` selects documents by their columns, before the order is planned, and adds columns to the batches.
``fill_in_the_middle.py`` is a transform of their tokens (``fetch/token_transform.py``), before packing, too.

``plan_epochs.py`` chooses the kind of samples. ``sharded_dataset.py`` is what all datasets share. It joins
the windows of a table (``table_windows.py``) or of several (``mixture_reader.py``), the place of this process
among ranks (``place.py``, ``ranks.py``, and ``prepared_loaders.py`` for accelerate), and the position in the
epochs (``position.py``). A position begins passes, which are divided into steps (``one_pass.py``,
``steps.py``) and agreed with DataLoader workers (``pass_starts.py``), and is saved as a state (``state.py``).
``batch_loop.py`` is what a loop iterates, and ``skipped_steps.py`` what it leaves out.
``plan_change.py`` says what a training does differently from a state on, and ``changed_plans.py`` reads each
epoch by the plan that it began with; ``saved_settings.py`` opens a dataset as a state names it.
``evaluation.py`` reads each window once, on any number of ranks. ``open_once.py`` opens a dataset on rank 0
for all, and ``version_lease.py`` keeps vacuums from its files.
``check_table.py`` compares a table with the model, ``find_documents.py`` returns the documents behind a
sample, and ``document_samples.py`` the samples of a document. ``read_parts.py`` records what a training has
read: with it, ``replay.py`` returns a batch with its documents and their text, and ``exposures.py`` the
batches that had a document. ``measure_evenness.py`` measures how evenly batches mix the input files.
``loss_log.py`` writes the losses of documents while training.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from etl.errors import torch_error, unknown_attribute

if TYPE_CHECKING:
    from etl.loader.batch_loop import Batches
    from etl.loader.batches.document_boundaries import Format
    from etl.loader.batches.prefetch import Timed
    from etl.loader.check_table import Expect
    from etl.loader.dataset import TokenDataset
    from etl.loader.evaluation import Evaluation
    from etl.loader.fetch.range_requests import Remote
    from etl.loader.fetch.token_transform import TokenTransform
    from etl.loader.fill_in_the_middle import FillInTheMiddle
    from etl.loader.find_documents import DocumentSpan
    from etl.loader.loss_log import LossLog
    from etl.loader.mixture import TokenMixture
    from etl.loader.open_once import open_shared
    from etl.loader.order.evenness import Evenness
    from etl.loader.order.schedule import Schedule
    from etl.loader.order.shuffle_settings import Shuffle
    from etl.loader.plan_change import PlanChange
    from etl.loader.ranks import Shard
    from etl.loader.views.view import Prefix, Split, View

# Names are imported on first use: the modules that need no torch stay without it.
_MODULES = {
    "Batches": "etl.loader.batch_loop",
    "PlanChange": "etl.loader.plan_change",
    "DocumentSpan": "etl.loader.find_documents",
    "Evaluation": "etl.loader.evaluation",
    "Evenness": "etl.loader.order.evenness",
    "Expect": "etl.loader.check_table",
    "FillInTheMiddle": "etl.loader.fill_in_the_middle",
    "Format": "etl.loader.batches.document_boundaries",
    "LossLog": "etl.loader.loss_log",
    "Prefix": "etl.loader.views.view",
    "Remote": "etl.loader.fetch.range_requests",
    "Schedule": "etl.loader.order.schedule",
    "Shard": "etl.loader.ranks",
    "Shuffle": "etl.loader.order.shuffle_settings",
    "Split": "etl.loader.views.view",
    "Timed": "etl.loader.batches.prefetch",
    "TokenDataset": "etl.loader.dataset",
    "TokenMixture": "etl.loader.mixture",
    "TokenTransform": "etl.loader.fetch.token_transform",
    "View": "etl.loader.views.view",
    "open_shared": "etl.loader.open_once",
}

__all__ = [
    "Batches",
    "DocumentSpan",
    "Evaluation",
    "Evenness",
    "Expect",
    "FillInTheMiddle",
    "Format",
    "LossLog",
    "PlanChange",
    "Prefix",
    "Remote",
    "Schedule",
    "Shard",
    "Shuffle",
    "Split",
    "Timed",
    "TokenDataset",
    "TokenMixture",
    "TokenTransform",
    "View",
    "open_shared",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise unknown_attribute("etl.loader", name, __all__)
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        raise torch_error(error) or error from error


def __dir__() -> list[str]:
    return __all__
