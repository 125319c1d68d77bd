"""The export for Megatron: its files, read as its format describes them, have the rows of the table."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.exports.megatron import export_megatron
from etl.lake.commit_info import to_commit_info
from etl.lake.table_specs import SPECS
from etl.parquet.data_file import DataFileWriter
from etl.recipe.recipe import Recipe
from etl.schemas import TOKENIZED, TOKENS, Lineage, TokenizerRecord
from tests.helpers.cli import etl
from tests.helpers.megatron_files import read_megatron
from tests.helpers.paths import at
from tests.helpers.token_tables import SMALL, documents, make_lake


def test_an_export_has_the_documents_with_their_addresses(place: Any) -> None:
    lake = make_lake(place, SMALL)
    prefix = str(place / "out" / "web")
    exported = export_megatron(lake, prefix)
    expected = [d for d in documents(SMALL) if len(d.tokens)]
    empty = sum(not len(d.tokens) for d in documents(SMALL))
    assert [*read_megatron(prefix)] == [[*d.tokens] for d in expected]
    with at(f"{prefix}.addresses.parquet").open("rb") as file:
        rows = pq.read_table(file).to_pylist()
    assert [(r["source"], r["row"], r["num_tokens"]) for r in rows] == [
        (d.source, d.row, len(d.tokens)) for d in expected
    ]
    assert (exported.documents, exported.empty, exported.tokens) == (len(expected), empty, 266)
    assert exported.dtype == "int32"  # the lineage names no tokenizer
    with pytest.raises(LoaderError, match="there is an index already"):
        export_megatron(lake, prefix)


@pytest.mark.parametrize(
    ("vocab_size", "ids", "dtype"),
    [
        (65_499, [0, 1, 65_498], "uint16"),
        (65_500, [0, 65_499], "int32"),
        (151_669, [0, 151_668], "int32"),
        (512, [0, 70_000], None),
    ],
)
def test_small_vocabularies_take_two_bytes(
    tmp_path: Path, vocab_size: int, ids: list[int], dtype: str | None
) -> None:
    lake = write_lake(tmp_path, vocab_size, ids)
    if dtype is None:
        with pytest.raises(LoaderError, match="token id 70000 does not fit"):
            export_megatron(lake, str(tmp_path / "web"))
        assert not (tmp_path / "web.idx").exists()
        return
    assert export_megatron(lake, str(tmp_path / "web")).dtype == dtype
    assert [*read_megatron(tmp_path / "web")] == [ids]


def write_lake(folder: Path, vocab_size: int, ids: list[int]) -> str:
    """Write a table of one document, with a tokenizer in its lineage."""
    table = Table.create(str(folder / "lake" / "tokens"), TOKENS, SPECS["tokens"].layout)
    writer = DataFileWriter(table.url, TOKENS, SPECS["tokens"].layout, name="a" * 32)
    row = {"source": "s", "row": 0, "tokens": ids, "num_tokens": len(ids), "token_end": len(ids)}
    writer.append(pa.Table.from_pylist([row], TOKENIZED))
    recipe = Recipe(name="r", source={"path": "a.jsonl"}, stages=["dedup_exact"])
    ends = {"bos_id": None, "eos_id": None, "append_eos": False, "prepend_bos": False}
    tokenizer = TokenizerRecord(name="t", sha256="0", vocab_size=vocab_size, **ends)
    record = Lineage(
        run_id="r",
        recipe=recipe.name,
        step="tokens",
        fingerprint="f",
        canonical={},
        generation=1,
        versions={},
        tokenizer=tokenizer,
        started="",
        committed="",
    )
    info = to_commit_info(record.model_dump(mode="json"))
    table.commit(writer.close(), transactions={}, commit_info=info)
    return str(folder / "lake")


def test_the_command_exports_a_version(place: Any) -> None:
    lake = make_lake(place, SMALL)
    done = etl("export", lake, "--to", place / "web", "--format", "megatron", "--version", "1")
    assert (done.exit_code, "266 as int32" in done.stdout) == (0, True)
    assert sum(map(len, read_megatron(place / "web"))) == 266
    assert (
        etl(
            "export", lake, "--to", place / "other", "--format", "megatron", "--version", "9"
        ).exit_code
        == 1
    )


def test_megatron_reads_an_export(tmp_path: Path) -> None:
    """With its own reader."""
    megatron = pytest.importorskip(
        "megatron.core.datasets.indexed_dataset", reason="needs megatron-core"
    )
    lake = make_lake(at(tmp_path), SMALL)
    export_megatron(lake, str(tmp_path / "web"))
    dataset = megatron.IndexedDataset(str(tmp_path / "web"))
    expected = [[*d.tokens] for d in documents(SMALL) if len(d.tokens)]
    assert [dataset[i].tolist() for i in range(len(dataset))] == expected
    assert dataset.document_indices.tolist() == list(range(len(expected) + 1))
