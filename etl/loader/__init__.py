"""The loader: a version of the token table as packed windows for PyTorch, in a reproducible order.

index.py     the table's log and footers as numpy arrays
plan.py      the order of an epoch: runs, stream, lanes, blocks (pure arithmetic)
pages.py     the pages of a token column, without a Parquet reader
files.py     what must be open to read a row group
remote.py    ranges of files in an object store: patience, requests
cache.py     what was fetched, kept in a folder of this machine
parcels.py   row groups that are fetched at once (pure arithmetic)
ahead.py     parcels fetched ahead for all lanes
decode.py    row groups -> tokens, piece by piece; spans of an epoch's stream
gather.py    samples of an epoch -> batches of tensors
documents.py the same for samples that are documents, padded
format.py    what stands in a batch: boundaries of documents, padding
sharded.py   what datasets share: ranks, workers, epochs, batches
message.py   how a batch travels from a DataLoader worker
state.py     what is saved, and finding it in what torchdata saves
expect.py    what a training run expects of a table
ends.py      how the documents of a table begin and end
waiting.py   items made ahead by a thread, and the time spent waiting
dataset.py   TokenDataset: one table
mixing.py    the order of a mixture (pure arithmetic)
mixture.py   TokenMixture: several tables with weights
locate.py    a sample -> the documents behind it
shard.py     which rank of how many
"""

from etl.loader.dataset import TokenDataset
from etl.loader.expect import Expect
from etl.loader.format import Format
from etl.loader.locate import Part
from etl.loader.mixture import TokenMixture
from etl.loader.plan import Shuffle
from etl.loader.remote import Remote
from etl.loader.sharded import Batches
from etl.loader.waiting import Timed

__all__ = [
    "Batches",
    "Expect",
    "Format",
    "Part",
    "Remote",
    "Shuffle",
    "Timed",
    "TokenDataset",
    "TokenMixture",
]
