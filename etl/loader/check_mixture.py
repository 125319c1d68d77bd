"""Check that datasets can be mixed: their weights, the kind of their batches, and their tokenizers."""

from collections.abc import Mapping, Sequence

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Format
from etl.loader.check_table import check_same_tokenizer
from etl.loader.dataset import TokenDataset
from etl.loader.order.mixture_order import BLOCK
from etl.loader.order.schedule import Schedule
from etl.loader.plan_change import Weights
from etl.loader.ranks import Shard

_ROUNDING = 1 - 1e-9  # a weight of exactly 1/4,096 may be rounded


def check_weights(datasets: Mapping[str, TokenDataset], phases: Schedule[Weights]) -> None:
    """Raise LoaderError unless each dataset has a weight, and none is too small."""
    if not datasets:
        raise LoaderError("a mixture needs at least one dataset")
    for weights in phases.values:
        if datasets.keys() != weights.keys():
            raise LoaderError(
                f"weights are given for {', '.join(weights)}, but the datasets are {', '.join(datasets)}",
                hint="give one weight for each dataset",
            )
        total = sum(weights.values())
        for name, weight in weights.items():
            is_later = weight == 0 < total and any(value.get(name) for value in phases.values)
            if not (0 < weight < float("inf") or is_later):
                raise LoaderError(f"the weight of {name} must be positive and finite, not {weight}")
            if not is_later and weight * BLOCK < total * _ROUNDING:
                raise LoaderError(
                    f"the weight of {name} is {weight / total:.3g} of the total, less than 1/{BLOCK:,}, "
                    "the smallest share of a mixture",
                    hint=f"raise it to {total / BLOCK:.3g}, or leave {name} out",
                )


def check_compatible(datasets: Mapping[str, TokenDataset]) -> None:
    """Raise LoaderError unless all datasets have the same kind of batches."""

    def settings(dataset: TokenDataset) -> tuple[object, Shard, Format, Sequence[str], bool]:
        columns, shard = list(dataset.columns), dataset.place.shard
        lengths = [*dataset.epochs.seq_lens]
        seq_len = lengths if lengths[1:] else lengths[0][1]
        return seq_len, shard, dataset.format, columns, dataset.repeat

    first_name, first = next(iter(datasets.items()))
    for name, dataset in datasets.items():
        if settings(dataset) != settings(first):
            raise LoaderError(
                "the datasets differ in (seq_len, shard, format, columns, repeat): "
                f"{name} has {settings(dataset)}, {first_name} has {settings(first)}",
                hint="open all datasets with the same values",
            )
    tokenizers = {name: dataset.tokenizers() for name, dataset in datasets.items()}
    check_same_tokenizer(tokenizers, where=", ".join(each.where for each in datasets.values()))
