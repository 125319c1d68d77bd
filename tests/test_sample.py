"""The shipped sample matches its README."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import gigatoken
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from etl import pipelines
from etl.pipelines.sample.build import SCHEMA, PageText

SAMPLE = Path(pipelines.__file__).parent / "sample"
MAX_BYTES = 8_000_000

Row = dict[str, str | None]


def _lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def _parse(line: str) -> Row | None:
    try:
        row: Row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row


@pytest.fixture(scope="module")
def files() -> dict[str, list[Row | None]]:
    """Return the rows of each file by its name; None is a line that is not JSON."""
    tables = {path.name: pq.read_table(path).to_pylist() for path in SAMPLE.glob("*.parquet")}
    lines = {path.name: [*map(_parse, _lines(path))] for path in SAMPLE.glob("*.jsonl*")}
    return {**tables, **lines}


@pytest.fixture(scope="module")
def rows(files: dict[str, list[Row | None]]) -> list[Row]:
    return [row for name in sorted(files) for row in files[name] if row is not None]


def test_the_readme_has_the_counts_of_documents_and_bytes(
    files: dict[str, list[Row | None]],
) -> None:
    readme = (SAMPLE / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w.-]+)` \| (\d*) ?\| (\d+) \|", readme, re.MULTILINE)

    documented = {name: (documents, int(size)) for name, documents, size in table}
    counts = {name: str(sum(row is not None for row in rows)) for name, rows in files.items()}
    sizes = {name: (SAMPLE / name).stat().st_size for name in documented}

    assert documented == {
        name: (counts.get(name, ""), sizes[name]) for name in [*files, "tokenizer.json"]
    }


def test_the_sample_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.glob("*.*")) < MAX_BYTES


def test_the_rows_declare_ten_languages(rows: list[Row]) -> None:
    declared = {row["lang"] for row in rows}
    assert declared == {"ar", "de", "en", "es", "fr", "ja", "nl", "pt", "ru", "zh"}


def test_every_row_has_the_same_columns_and_a_unique_id(rows: list[Row]) -> None:
    assert {tuple(row) for row in rows} == {tuple(SCHEMA.names)}
    assert len({row["doc_id"] for row in rows}) == len(rows)


def test_parquet_files_have_several_row_groups() -> None:
    groups = [pq.ParquetFile(path).num_row_groups for path in sorted(SAMPLE.glob("*.parquet"))]
    assert groups == [8, 10]


def test_the_sample_contains_damaged_rows(files: dict[str, list[Row | None]]) -> None:
    dutch = files["handbook-nl.jsonl"]
    texts = {row["doc_id"]: row["content"] for row in dutch if row is not None}

    assert dutch.count(None) == 1
    assert (texts["junk/null"], texts["junk/empty"]) == (None, "")
    assert all(None not in rows for name, rows in files.items() if name != "handbook-nl.jsonl")


def test_the_sample_contains_exact_duplicates(rows: list[Row]) -> None:
    copies = Counter(row["content"] for row in rows if row["content"])
    assert sum(copies.values()) - len(copies) == 103


def test_both_tokenizer_libraries_produce_the_same_ids(rows: list[Row]) -> None:
    path = SAMPLE / "tokenizer.json"
    reference = Tokenizer.from_file(str(path))
    texts = [row["content"] or "" for row in rows[::25]]

    expected = [
        encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)
    ]
    actual = gigatoken.Tokenizer(str(path)).encode_batch_list(texts)

    assert [list(ids) for ids in actual] == expected
    assert (reference.get_vocab_size(), reference.token_to_id("<|endoftext|>")) == (16_384, 0)
    assert reference.decode_batch(expected, skip_special_tokens=False) == texts


def test_a_page_is_split_into_paragraphs() -> None:
    page = PageText()
    page.feed(
        "<html><head><title>A  title</title><style>p {}</style></head><body>"
        '<div id="banner"><p>Buy <br/>it</p></div>'
        "<div>One <em>and\n the</em> same.<ul><li>Item</li></ul>After</div>"
        "<table><tr><td>a</td><td>b</td></tr></table><pre>  $ ls\n  x</pre></body></html>"
    )
    page.close()

    assert page.title == "A title"
    assert page.text == "One and the same.\n\nItem\n\nAfter\n\na b\n\n  $ ls\n  x"


def test_shipped_recipes_are_found_by_name() -> None:
    assert {"demo", "pretokenize"} <= set(pipelines.list_recipes())
    assert pipelines.find_recipe("demo").is_file()
    with pytest.raises(FileNotFoundError, match="recipes are c4, demo"):
        pipelines.find_recipe("dmeo")
