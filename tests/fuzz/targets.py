"""Fuzz targets: each reader and the recipe loader as functions of bytes, and valid inputs to start from."""

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow import ipc

from etl import schemas
from etl.errors import TokenlakeError
from etl.recipe.recipe import Recipe
from etl.sources import Source
from etl.sources.formats import FORMATS
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split
from etl.sources.split import COMPRESSIONS, split_compression
from tests.helpers.warc_archives import conversion, response

_TEXTS = ("one", None, "zwei ö", "", "three\nlines\n", "x" * 700)
_TABLE = pa.table(
    {
        "text": pa.array(_TEXTS),
        "id": pa.array(range(len(_TEXTS)), pa.int64()),
        "url": pa.array(["https://a/b"] * len(_TEXTS)).dictionary_encode(),
        "tags": pa.array([["a", "b"], [], None, ["c"], ["d"], [None]]),
    }
)
_MAX_TEXT_BYTES = 1000

_DELTA_LOG_FILE = "_delta_log/00000000000000000000.json"


def file_names() -> dict[str, str]:
    """Reader target -> the name of the file that the bytes are written to."""
    names = {}
    for name, reader in FORMATS.items():
        file = f"a{reader.EXTENSIONS[0]}" if reader.EXTENSIONS else _DELTA_LOG_FILE
        for suffix in ("", *COMPRESSIONS) if reader.COMPRESSIBLE else ("",):
            names[name + suffix] = file + suffix
    return names


FILES = file_names()
TARGETS = (*FILES, "recipe")


def run(target: str, content: bytes) -> str:
    """Run a target on bytes; return "read", "loaded" or the name of a TokenlakeError. Others are raised."""
    with TemporaryDirectory() as folder:
        try:
            if target == "recipe":
                return _recipe(Path(folder), content)
            return _read(Path(folder), target, content)
        except TokenlakeError as error:
            caught = error
    assert len(str(caught)) < 20_000
    return type(caught).__name__


def _recipe(folder: Path, content: bytes) -> str:
    (folder / "recipe.yaml").write_bytes(content)
    recipe = Recipe.load(folder / "recipe.yaml")
    recipe.fingerprint(recipe.steps[-1])
    (folder / "again.yaml").write_text(recipe.to_yaml(), "utf-8")
    assert Recipe.load(folder / "again.yaml") == recipe
    return "loaded"


def _read(folder: Path, target: str, content: bytes) -> str:
    """Read the bytes in small splits and batches; check that rows are unique and have a reason or a text."""
    path = folder / "in" / FILES[target]
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    if target == "delta":
        (folder / "in" / "part.parquet").write_bytes(_delta_file().getvalue())
    source = Source(
        path=str(folder / "in" if target == "delta" else path),
        columns={"text": "text"},
        metadata="all",
        split_bytes=200,
        max_text_bytes=_MAX_TEXT_BYTES,
    )
    splits = list(list_splits(source))
    files = {split.uri for split in splits if split.first_row is None}
    cut = [split for split in splits if split.uri in files]
    numbered = list(number_splits(cut, [count_records(split) for split in cut]))
    rows: list[tuple[str, int]] = []
    for split in numbered or splits:
        for batch in read_split(split, source, batch_bytes=2000):
            assert batch.schema == schemas.RAW
            batch.validate(full=True)
            for row in batch.to_pylist():
                assert (row["text"] is None) == (row["reason"] is not None)
                assert len((row["text"] or "").encode()) <= _MAX_TEXT_BYTES
                rows.append((row["source"], row["row"]))
    assert len(rows) == len(set(rows)), "two rows have the same address"
    return "read"


WITH_RECORDS = tuple(name for name in FILES if name.startswith(("warc", "jsonl", "csv")))
"""Targets whose files have records of which each can be found without the others."""


def check_no_loss(target: str, index: int, piece: bytes, offset: int) -> None:
    """Put bytes into one record of a file; check that the others are read, and that one is reported."""
    texts = [f"text {number} " * 9 for number in range(5)]
    name, compression = split_compression(target)
    records = _RECORDS[name](texts)
    bad = records[index + 1]
    offset = min(offset, len(bad) - 1)
    records[index + 1] = bad[:offset] + piece.replace(b"WARC/", b"") + bad[offset + len(piece) :]
    if name != "warc":  # a record is a line
        records[index + 1] = records[index + 1].replace(b"\n", b"").replace(b'"', b"") + b"\n"
    members = [_HEADERS.get(name, b""), *records]
    compressions: dict[str | None, Callable[[bytes], bytes]] = {
        None: bytes,
        "gzip": gzip.compress,
        "zstd": zstandard.compress,
    }
    compress = compressions[compression]
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILES[target]
        path.write_bytes(b"".join(map(compress, members)))
        source = Source(path=str(path), max_text_bytes=_MAX_TEXT_BYTES)
        [split] = list_splits(source)
        rows = [row for table in read_split(split, source) for row in table.to_pylist()]
    expected = [text for number, text in enumerate(texts) if number != index + 1]
    found = [row["text"] for row in rows]
    if (
        target == "warc"
    ):  # without members, the length of the record before the damage cannot be verified
        found += [
            texts[index] for row in rows if row["id"] == f"<urn:uuid:{index}>" and row["reason"]
        ]
    lost = [text for text in expected if text not in found]
    assert not lost, (lost, rows)


def seeds(target: str) -> list[bytes]:
    """Valid inputs, from which a fuzzer starts."""
    name, compression = split_compression(target)
    contents = SEEDS[name]()
    match compression:
        case None:
            return contents
        case "gzip":
            return [gzip.compress(content, mtime=0) for content in contents]
        case "zstd":
            return [zstandard.compress(content) for content in contents]


def _lines() -> list[bytes]:
    return ["".join(json.dumps(row) + "\n" for row in _TABLE.to_pylist()).encode()]


def _csv() -> list[bytes]:
    return [b'text,id\none,1\n"two\nlines, ""quoted""",2\n,3\n']


def _parquet() -> list[bytes]:
    files = []
    for settings in ({}, {"compression": "zstd", "row_group_size": 2, "data_page_version": "2.0"}):
        file = io.BytesIO()
        pq.write_table(_TABLE, file, **settings)
        files.append(file.getvalue())
    return files


def _arrow() -> list[bytes]:
    files = []
    for kind in (ipc.new_file, ipc.new_stream):
        file = io.BytesIO()
        with kind(file, _TABLE.schema) as writer:
            writer.write_table(_TABLE, max_chunksize=2)
        files.append(file.getvalue())
    return files


def _warc() -> list[bytes]:
    return [response(1), conversion(2, "Text of a page\n") + response(3)]


def _delta() -> list[bytes]:
    with TemporaryDirectory() as folder:
        deltalake.write_deltalake(folder, _TABLE.select(["text", "id"]))
        log = (Path(folder) / _DELTA_LOG_FILE).read_text()
    size = _delta_file().tell()
    log = re.sub(r'"path":"[^"]*"', '"path":"part.parquet"', log)
    return [re.sub(r'"size":\d+', f'"size":{size}', log).encode()]


def _delta_file() -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(_TABLE.select(["text", "id"]), file)
    return file


def _recipes() -> list[bytes]:
    return [_RECIPE.encode()]


_RECIPE = """\
name: web
source:
  path: s3://crawl/**/*.parquet
  columns: {text: content, id: doc_id}
  metadata: [date]
lake: ${TOKENLAKE_LAKE:-lake}
seed: 0x1F
stages:
  - unicode
  - language: {keep: [de, en], min_score: 0.65}
  - gopher_quality
  - where: "num_words > 50 AND url NOT LIKE '%forum%'"
  - dedup_exact
  - dedup_minhash: &near {ngram: 5, bands: 14, rows: 8, keep: longest}
"""


_HEADERS = {"csv": b"text,id\n"}
_RECORDS: dict[str, Callable[[list[str]], list[bytes]]] = {
    "warc": lambda texts: [conversion(number, text) for number, text in enumerate(texts)],
    "jsonl": lambda texts: [json.dumps({"text": text}).encode() + b"\n" for text in texts],
    "csv": lambda texts: [f'"{text}",1\n'.encode() for text in texts],
}

SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "parquet": _parquet,
    "jsonl": _lines,
    "csv": _csv,
    "arrow": _arrow,
    "warc": _warc,
    "text": lambda: ["Ein Satz: schön.\n".encode()],
    "delta": _delta,
    "recipe": _recipes,
}
"""Format, or recipe -> its valid inputs, uncompressed."""
