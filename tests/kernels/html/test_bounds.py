"""Mutated and hostile pages: no index is out of bounds, and results are consistent."""

import os
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.kernels.bytes.utf8 import texts
from etl.text.main_text import KINDS, extract_main_text
from tests.kernels.html.pages import HOSTILE, PIECES, SMALL

# A child process, since numba reads the setting when it is imported.
CHECKED = """
import sys, pyarrow as pa
from etl.kernels.bytes.utf8 import texts
from etl.text.main_text import KINDS, extract_main_text
from etl.kernels.html.describe import describe_page
import numpy as np

def check(pages):
    # One page at a time, so that buffers have just the room that a page of its size needs.
    found = []
    for page in pages:
        array = pa.array([page], pa.large_binary())
        array = pa.Array.from_buffers(pa.large_string(), 1, array.buffers())
        found.append(extract_main_text(texts(array), pa.array([True]), keep=KINDS))
        blocks = describe_page(page)
        assert np.isfinite(blocks.features).all()
        try:
            page.decode()
        except UnicodeDecodeError:
            continue
        found[-1].text.validate(full=True)
        found[-1].metadata.validate(full=True)
        if b"&" not in page and "\\ufffd".encode() not in page:
            assert not any("\\ufffd" in text for text in blocks.texts)
    return found

reader = pa.ipc.open_stream(sys.stdin.buffer)
count = 0
for batch in reader:
    count += len(check(batch["page"].to_pylist()))
print(count)
"""


def mutate(page: bytes, rng: random.Random) -> bytes:
    """Return a part of a page with some bytes inserted, deleted, replaced or repeated."""
    at = rng.randrange(max(1, len(page) - 20_000))
    part = bytearray(page[at : at + rng.randrange(1, 20_000)])
    for _ in range(rng.randrange(1, 40)):
        kind, i = rng.randrange(5), rng.randrange(len(part) + 1)
        if kind == 0:
            part[i:i] = rng.choice(PIECES) * rng.randrange(1, 5)
        elif kind == 1:
            del part[i : i + rng.randrange(1, 200)]
        elif kind == 2 and i < len(part):
            part[i] = rng.randrange(256)
        elif kind == 3:
            part[i:i] = part[max(0, i - rng.randrange(1, 300)) : i]
        else:
            part[i:i] = rng.randbytes(rng.randrange(1, 12))
    return bytes(part)


def run_checked(pages: list[bytes], cache: os.PathLike[str]) -> int:
    """Extract pages in a process with bounds checks, and return how many there were."""
    batches = [pages[k : k + 500] for k in range(0, len(pages), 500)]
    sink = pa.BufferOutputStream()
    schema = pa.schema({"page": pa.binary()})
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch([pa.array(batch, pa.binary())], schema=schema))
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": os.fspath(cache)}
    run = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env=environment,
        input=sink.getvalue().to_pybytes(),
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    return int(run.stdout)


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path, data):
    """20,000 mutated pages, half of which are valid UTF-8; numba checks each index."""
    rng, pages = random.Random(1), []
    files = [data / "web/mdn-html-00000.parquet", *(data / "extraction").glob("[as]*.parquet")]
    for file in files:
        table = pq.read_table(file)
        column = table["html" if "html" in table.column_names else "text"].to_pylist()
        pages += [each.encode() if isinstance(each, str) else each for each in column if each]
    mutated = [mutate(rng.choice(pages), rng) for _ in range(20_000)]
    mutated[::2] = [page.decode("utf-8", "replace").encode() for page in mutated[::2]]
    assert run_checked(mutated, tmp_path) == 20_000


@pytest.mark.slow
def test_bounds_are_checked(tmp_path):
    """The check itself: a page that is longer than its buffers is found."""
    code = (
        "import numpy as np\n"
        "from etl.kernels.html.describe import _read\n"
        "from etl.kernels.html.page import make_page\n"
        "from etl.kernels.bytes.utf8 import frozen\n"
        "page = b'<p>x' * 1000\n"
        "_read(frozen(np.frombuffer(page, np.uint8)), len(page), False, make_page(100))\n"
    )
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": os.fspath(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=False
    )
    assert b"IndexError" in run.stderr


@pytest.mark.slow
def test_hostile_pages_are_in_bounds(tmp_path):
    pages = [*SMALL, *(page[:200_000] for page in HOSTILE.values())]
    assert run_checked(pages, tmp_path) == len(pages)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_have_a_result(name):
    found = extract_main_text(
        texts(pa.array([HOSTILE[name].decode()])), pa.array([True]), keep=KINDS
    )
    assert found.text[0].is_valid
    assert len(found.text[0].as_py()) <= 2 * len(HOSTILE[name])
    assert 0 <= (found.main_ratio[0].as_py() or 0) <= 1
