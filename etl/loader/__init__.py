"""The loader: a version of the token table as packed windows for PyTorch, in a reproducible order.

index.py     the table's log and footers as numpy arrays
plan.py      the order of an epoch: runs, stream, lanes, blocks (pure arithmetic)
pages.py     the pages of a token column, without a Parquet reader
decode.py    row groups -> tokens, piece by piece; spans of an epoch's stream
gather.py    samples of an epoch -> batches of tensors
dataset.py   TokenDataset: shards, workers, state
locate.py    a sample -> the documents behind it
shard.py     which rank of how many
"""

from etl.loader.dataset import Batches, TokenDataset
from etl.loader.locate import Part
from etl.loader.plan import Shuffle

__all__ = ["Batches", "Part", "Shuffle", "TokenDataset"]
