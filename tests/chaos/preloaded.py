"""What the server of forked processes has ready: all modules of a run, and the machine code of its kernels.

A new driver or worker then starts in a hundredth of a second instead of more than a second. Only kernels
run here: the threads of Polars, of the tokenizer and of Dask would be missing in forked processes.
"""

import pyarrow as pa
import s3fs  # noqa: F401 - as all of these: loaded for the processes that are forked
import tokenizers  # noqa: F401

import etl.job.run_steps
import etl.job.shuffle
import etl.maintenance.optimize
import etl.maintenance.repair
import etl.maintenance.vacuum  # noqa: F401
from etl.stages.compute_signals import compute_signals
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.filters.gopher_quality import GopherQuality

_TEXTS = pa.array(
    ["The heron waded in the shallow water, and no one could say for how long.", None]
)

compute_signals(pa.table({"text": _TEXTS}), sorted(GopherQuality().signals()))
DedupMinhash().describe(_TEXTS)
