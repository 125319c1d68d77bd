"""The loader: a version of a token table as packed windows for PyTorch, in a reproducible order.

index.py     the table's log and footers as numpy arrays
plan.py      the order of an epoch: runs, stream, lanes, blocks (pure arithmetic)
pages.py     the pages of a token column, without a Parquet reader
files.py     open files of a token table
remote.py    byte ranges of files in an object store: retries and timeouts
cache.py     a disk cache of fetched ranges, shared by the processes of a machine
parcels.py   row groups that are fetched in one request (pure arithmetic)
ahead.py     read-ahead of parcels for all lanes
decode.py    row groups -> tokens, piece by piece; spans of an epoch's stream
gather.py    samples of an epoch -> batches of packed windows
documents.py samples of an epoch -> batches of padded documents
format.py    the contents of a batch: document boundaries, padding
sharded.py   the base of all datasets: ranks, workers, epochs, batches
message.py   the transport of batches from DataLoader workers
state.py     saved states, also inside checkpoints and torchdata's states
expect.py    the checks of a table against a model
ends.py      how the documents of a table begin and end
waiting.py   prefetch by a thread, and the time spent waiting
dataset.py   TokenDataset: one table
mixing.py    the order of a mixture (pure arithmetic)
mixture.py   TokenMixture: several tables with weights
locate.py    a sample -> the documents behind it
replay.py    a batch -> its documents and their text
shard.py     rank and world size of this process
"""

from etl.loader.batches.batch_format import Format
from etl.loader.batches.prefetch import Timed
from etl.loader.check_table import Expect
from etl.loader.dataset import TokenDataset
from etl.loader.fetch.remote import Remote
from etl.loader.find_documents import DocumentSpan
from etl.loader.mixture import TokenMixture
from etl.loader.order.shuffle import Shuffle
from etl.loader.sharded_dataset import Batches

__all__ = [
    "Batches",
    "DocumentSpan",
    "Expect",
    "Format",
    "Remote",
    "Shuffle",
    "Timed",
    "TokenDataset",
    "TokenMixture",
]
