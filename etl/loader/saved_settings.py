"""The settings of a dataset in a saved state, as arguments that open it again."""

from collections.abc import Mapping
from typing import Any

from etl.loader.batches.document_boundaries import Format
from etl.loader.fill_in_the_middle import transform_from_json
from etl.loader.order.schedule import Schedule
from etl.loader.order.shuffle_settings import Shuffle
from etl.loader.views.view import View


def saved_options(state: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a TokenDataset with the settings of a state; ``options`` replace them.

    Raises LoaderError for a transform of your own that the options lack.
    """
    shuffle = None
    if state["lanes"] != 0:
        names = ("lanes", "block_tokens", "run_tokens")
        shuffle = Shuffle(**{name: state[name] for name in names})
    seq_len = state["seq_len"]
    if isinstance(seq_len, list):
        seq_len = Schedule([(start, value) for start, value in seq_len])
    return {
        "format": Format(**state["tensors"]),
        "view": View.from_json(state["view"]) if state.get("view") else None,
        **options,
        "transform": transform_from_json(state.get("transform"), options.get("transform")),
        "seq_len": seq_len,
        "version": state["version"],
        "seed": state["seed"],
        "shuffle": shuffle or False,
    }
