"""A sample of the input before a run: missing columns, verdicts, and warnings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.errors import SourceError
from etl.job.check_columns import check_columns
from etl.job.sample_input import InputSample, sample_input
from etl.recipe.recipe import Recipe
from etl.sources import Source
from etl.sources.list_splits import list_splits


def sample(folder: Path, stages: Sequence[object], **source: object) -> InputSample:
    recipe = Recipe(name="r", source={"path": str(folder), **source}, stages=stages)
    return sample_input(recipe, list_splits(recipe.source))


def write_lines(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_verdicts_are_those_of_the_stages(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": "word " * n} for n in range(40)])
    pq.write_table(pa.table({"text": ["one two three"] * 500}), tmp_path / "b.parquet")
    shown = sample(tmp_path, [{"length": {"min_words": 3}}])
    assert shown.files == 2
    assert shown.documents == 40 + 64
    assert shown.reasons == {"length.few_words": 2, "source.empty_text": 1}
    assert shown.kept == 101
    assert len(shown.verdicts) == 10
    assert {verdict.reason for verdict in shown.verdicts} <= {None, *shown.reasons}
    assert shown.warnings == ()


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.csv"])
def test_a_mistyped_column_is_an_error(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    match file.suffix:
        case ".parquet":
            pq.write_table(pa.table({"body": ["x"]}), file)
        case ".jsonl":
            write_lines(file, [{"body": "x"}])
        case _:
            file.write_text("body\nx\n")
    with pytest.raises(SourceError, match="no column 'boddy'") as error:
        sample(tmp_path, [], columns={"text": "boddy"})
    assert error.value.where == f"file://{file}"
    assert "did you mean 'body'?" in str(error.value.hint)
    assert "--set source.columns.text=NAME" in str(error.value.hint)


def test_a_run_checks_the_columns_of_one_file(tmp_path: Path) -> None:
    source = Source(path=str(tmp_path))
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(SourceError, match="no column 'text'"):
        check_columns(source, list_splits(source))
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "c.parquet")
    check_columns(source, list_splits(source))
    write_lines(tmp_path / "a.jsonl", [{"body": "x"}])
    with pytest.raises(SourceError, match=r"a.jsonl: no column 'text'"):
        check_columns(source, list_splits(source))


def test_one_file_without_the_column_is_a_warning(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 damaged PAR1")
    shown = sample(tmp_path, [])
    assert (shown.files, shown.documents) == (1, 1)
    no_column, damaged = sorted(shown.warnings)
    assert "a.parquet: no column 'text'" in no_column
    assert "c.parquet: cannot be read as parquet" in damaged


def test_a_missing_key_of_json_lines_is_a_warning(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": "x", "uri": "u"}])
    shown = sample(tmp_path, [], columns={"url": "url"})
    assert len(shown.warnings) == 1
    assert "no key 'url'; did you mean 'uri'?" in shown.warnings[0]


def test_a_condition_that_is_null_is_a_warning(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": "x"}, {"text": "y"}])
    null, all_rejected = sample(tmp_path, [{"where": "url NOT LIKE '%forum%'"}]).warnings
    assert "is null for 2 of 2 documents: rejected as where.unknown" in null
    assert all_rejected.startswith("0 of 2 documents are kept: `where.unknown` rejects 2; ")
    kept = sample(tmp_path, [{"where": {"keep": "url NOT LIKE '%f%'", "unknown": "keep"}}])
    assert (kept.kept, kept.warnings) == (2, ())


@pytest.mark.parametrize(
    ("stage", "rule", "try_now", "try_later"),
    [
        ({"length": {"min_words": 40}}, "length.few_words` (length.min_words is 40)",
         "; try `--set length.min_words=12` now, or `etl tune LAKE ", "length.min_words=30,20,10,null"),
        ({"length": {"max_chars": 8}}, "length.many_chars` (length.max_chars is 8)",
         "`--set length.max_chars=", "length.max_chars=11,16,32,null"),
        ({"language": ["fr"]}, "language.other` (language.keep is [fr])", "; try `etl tune",
         "--set 'language.keep=[]'"),
        ({"where": "num_words > 90"}, "where.condition`", "; try `etl stages", "etl stages where"),
    ],
)  # fmt: skip
def test_where_hardly_any_are_kept_the_setting_is_named(
    stage: object, rule: str, try_now: str, try_later: str, tmp_path: Path
) -> None:
    text = "The dog runs quickly through the large garden"
    write_lines(tmp_path / "a.jsonl", [{"text": text + " and sleeps" * n} for n in range(2, 12)])
    (warning,) = sample(tmp_path, [stage]).warnings
    assert warning.startswith(f"0 of 10 documents are kept: `{rule} rejects 10")
    assert try_now in warning
    assert f"{try_later}`" in warning
    assert sample(tmp_path, ["length"]).warnings == ()


def test_the_proposed_limit_keeps_most(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": "word " * n} for n in range(1, 41)])
    stage = {"length": {"min_words": 50}}
    (warning,) = sample(tmp_path, [stage]).warnings
    limit = int(warning.partition("--set length.min_words=")[2].partition("`")[0])
    assert sample(tmp_path, [{"length": {"min_words": limit}}]).kept >= 0.9 * 40


def test_a_small_sample_is_meant(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": f"word {n}"} for n in range(60)])
    shown = sample(tmp_path, [{"sample": {"fraction": 0.0}}])
    assert (shown.kept, shown.warnings) == (0, ())


def test_unreadable_text_is_no_question_of_limits(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": ""}, {"text": " "}])
    (warning,) = sample(tmp_path, ["length"]).warnings
    assert "`source.empty_text` rejects 2" in warning
    assert "`etl init --source URL`" in warning


def test_of_many_files_a_few_are_read(tmp_path: Path) -> None:
    for number in range(40):
        write_lines(tmp_path / f"{number:02}.jsonl", [{"text": f"text {number}"}] * 3)
    shown = sample(tmp_path, [])
    assert shown.files <= 8
    assert len({verdict.source for verdict in shown.verdicts}) == shown.files


def test_the_later_pieces_of_a_file_are_not_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": f"text {number}"} for number in range(300)])
    shown = sample(tmp_path, [], split_bytes=1000)
    assert 0 < shown.documents < 64, "those of the first piece"
