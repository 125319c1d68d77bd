"""What is not plausible in files is noticed: columns, delimiters, lines, nested text, mixed data sets."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.errors import SourceError
from etl.sources import Source
from etl.sources.inspect import SourceFacts, inspect_source
from etl.sources.list_splits import list_splits
from etl.sources.plausible import kind_of_column
from etl.sources.read_split import read_split

PROSE = [
    f"Number {n} is a text, with commas; it has\nseveral lines, and a few words more than a title has."
    for n in range(40)
]


def inspect_rows(folder: Path, rows: Sequence[dict[str, object]]) -> SourceFacts:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return inspect_source([str(folder / "a.jsonl")])


def csv_bytes(delimiter: str) -> bytes:
    text = io.StringIO(newline="")
    rows = [["title", "body", "n"], *([f"T{n}", text, n] for n, text in enumerate(PROSE))]
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue().encode()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.tsv.gz"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_delimiter_is_found_and_read(name: str, delimiter: str, tmp_path: Path) -> None:
    content = csv_bytes(delimiter)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    facts = inspect_source([str(tmp_path / name)])
    default = "\t" if ".tsv" in name else ","
    assert facts.source.delimiter == (None if delimiter == default else delimiter)
    assert (facts.source.columns.text, facts.other_columns) == ("body", ("title", "n"))
    assert facts.documents["text"].to_pylist() == PROSE
    assert facts.doubts == ()
    (split,) = list_splits(facts.source)
    assert pa.concat_tables(read_split(split, facts.source))["text"].to_pylist() == PROSE


def test_a_delimiter_is_for_csv_only() -> None:
    assert Source(path="a", delimiter=";").identity() != Source(path="a").identity()
    with pytest.raises(Exception, match="delimiter is set, but format jsonl has none"):
        Source(path="a", delimiter=";", format="jsonl")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2026-01-31T10:00:00+01:00", "2026-02-01 10:00"], "dates or numbers"),
        (["31 Jan 2026", "Mon, 5 January 2026 10:00:00 GMT"], "dates or numbers"),
        (["1,234.50", "-3e5"], "dates or numbers"),
        (["9f86d081884c7d65", "550e8400-e29b-41d4-a716-446655440000"], "single words or codes"),
        (["a@example.org", "YmFzZTY0IGlzIG5vdCBwcm9zZQ=="], "single words or codes"),
        (["QUJD" * 400, "\n".join(["QUJDREVG" * 9] * 9)], "single words or codes"),
        (["https://example.org/a", "s3://bucket/key"], "URLs"),
        (['{"a": "Some words here"}', '["b", "c d"]'], "JSON"),
        (["All rights are reserved"] * 30, "few distinct values"),
        (["In 2026 it was cold.", "A text."], None),
        (["犬が庭を走る。", "猫は眠る。"], None),
        (["<p>A page</p>", "<b>two words</b>"], None),
        ([], None),
    ],
)
def test_values_that_are_not_prose(values: list[str], kind: str | None) -> None:
    assert kind_of_column(values) == kind


@pytest.mark.parametrize(
    "other",
    ["2026-01-31T10:00:00.000000+00:00", f"{2**300:x}", "https://example.org/" + "a" * 99,
     json.dumps({"some words": 1} | dict.fromkeys("abcdefghijklmnop", 0)),
     "The same long sentence about a license, in each of all these many records."],
)  # fmt: skip
def test_a_short_text_is_preferred_to_what_is_not_prose(other: str, tmp_path: Path) -> None:
    rows = [{"ts": other, "msg": f"The disk {n} of host 7 has failed"} for n in range(40)]
    facts = inspect_rows(tmp_path, rows)
    assert facts.source.columns.text == "msg"
    assert facts.doubts == ()


@pytest.mark.parametrize(
    ("rows", "doubt"),
    [
        ([{"ts": f"2026-01-{n:02}T10:00"} for n in range(1, 30)], "'ts' holds dates or numbers"),
        ([{"text": "yes" * n, "n": n} for n in range(1, 30)], "'text' holds single words or codes"),
        ([{"title": f"Title {n}", "n": n} for n in range(30)], "at most 8 characters"),
        ([{"text": text, "split": part} for text, part in zip(PROSE, ["train", "test"] * 20, strict=True)],
         "'split' mixes data sets (train, test)"),
        ([{"text": "for (i = 0; i < n[0]; i++) { f(x[i], y); }"} for _ in range(3)], "source code"),
        ([{"text": PROSE[0]}] * 30, "30 sampled texts have only 1 distinct"),
    ],
)  # fmt: skip
def test_doubts_about_columns(rows: list[dict[str, object]], doubt: str, tmp_path: Path) -> None:
    assert doubt in "; ".join(inspect_rows(tmp_path, rows).doubts)


@pytest.mark.parametrize(
    ("record", "path", "jq"),
    [
        (lambda text: {"data": {"content": {"body": text}}}, "data.content.body", "(.data.content.body)"),
        (lambda text: {"payload": json.dumps({"a": {"b": text}})}, "payload.a.b",
         "((.payload | fromjson).a.b)"),
        (lambda text: {"messages": [{"role": "user", "content": text}]}, "messages[].content",
         '([.messages[].content] | join("\\n"))'),
    ],
)  # fmt: skip
def test_nested_text_is_found(record, path: str, jq: str, tmp_path: Path) -> None:
    rows = [{"id": n, "kind": "page", **record(text)} for n, text in enumerate(PROSE)]
    doubts = "; ".join(inspect_rows(tmp_path, rows).doubts)
    assert f"the text seems to be in {path!r}" in doubts
    assert f"jq -c '. + {{text: {jq}}}'" in doubts


def test_nested_text_is_named_where_no_column_holds_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "doc": [{"body": PROSE[0]}]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="no column holds text") as error:
        inspect_source([str(tmp_path)])
    assert "pl.col('doc').struct.field('body')" in str(error.value.hint)


@pytest.mark.parametrize(
    ("lines", "doubt"),
    [
        ([text.replace("\n", " ") for text in PROSE], "if each line is a document"),
        ([json.dumps({"text": text}) for text in PROSE], "set source.format to jsonl"),
        (["id\ttext", *(f"{n}\tA text, {n}." for n in range(30))], "source.delimiter to '\\t'"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_of_a_text_file_may_be_documents(
    lines: list[str], doubt: str, name: str, tmp_path: Path
) -> None:
    content = "\n".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert doubt in inspect_source([str(tmp_path)]).doubts[0]


@pytest.mark.parametrize("text", ["\n\n".join(PROSE), "A short note.\nIn two lines."])
def test_paragraphs_are_not_doubted(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert inspect_source([str(tmp_path)]).doubts == ()


@pytest.mark.parametrize(
    ("names", "held_out"),
    [
        (["train-0.jsonl", "test-0.jsonl"], "test-0.jsonl"),
        (["training/a.jsonl", "validation/a.jsonl"], "validation/a.jsonl"),
        (["wiki_train.jsonl", "wiki_dev.jsonl"], "wiki_dev.jsonl"),
        (["train-0.jsonl", "latest.jsonl", "contest.jsonl"], None),
        (["test-0.jsonl", "test-1.jsonl"], None),
    ],
)
def test_training_and_held_out_files_are_not_mixed(
    names: list[str], held_out: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "test" / "train"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"text": PROSE[0]}))
    doubts = inspect_source([str(folder)]).doubts
    assert [f"held-out data, such as {folder}/{held_out}:" in doubt for doubt in doubts] == (
        [] if held_out is None else [True]
    )


def test_a_file_without_a_header_is_doubted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f'2026-01-{n:02},"{t}"\n' for n, t in enumerate(PROSE)))
    (doubt,) = inspect_source([str(tmp_path)]).doubts
    assert "'2026-01-00' seems to be a value" in doubt
