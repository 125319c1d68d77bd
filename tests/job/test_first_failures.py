"""A run stops if its first splits all fail with the same error, and continues with a corrected recipe."""

from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.compute import dask_tasks
from etl.errors import MismatchError, QuarantineError, TokenlakeError
from etl.job import commit_policy, packs
from etl.job.run import run
from etl.lake.quarantine import Quarantine
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.paths import at

FILES = 12


@pytest.fixture
def source(tmp_path: Path) -> UPath:
    """Return a folder of twelve files of five records."""
    folder = at(tmp_path / "in")
    for number in range(FILES):
        write_jsonl(folder / f"{number}.jsonl", records(5 * number, 5 * number + 5))
    return folder


def make_recipe(tmp_path: Path, source: UPath, code: str) -> Recipe:
    """Return a recipe with a filter of this code."""
    (tmp_path / "filters.py").write_text(
        f"from pathlib import Path\n\n\ndef keep(document):\n    {code}\n"
    )
    return Recipe(
        name="web",
        source={"path": str(source), "columns": {"text": "body"}},
        lake=str(tmp_path / "lake"),
        stages=[
            {"kind": "python", "call": "filters:keep", "per": "document", "folder": str(tmp_path)},
            "dedup_exact",
        ],
    )


def test_a_run_stops_and_continues_with_the_corrected_recipe(
    client: Client, tmp_path: Path, source: UPath
) -> None:
    recipe = make_recipe(tmp_path, source, "return document['no such']")
    with pytest.raises(QuarantineError, match=r"failed at filters\.py:5: KeyError") as caught:
        run(recipe, cluster=client)
    assert str(caught.value.where).startswith(f"file://{source}")
    notes = Quarantine(str(recipe.lake)).notes()
    assert len(notes) == 10
    assert len({note.cause for note in notes}) == 1
    report = run(make_recipe(tmp_path, source, "return True"), cluster=client)
    assert report.rows == 5 * FILES
    assert report.ok
    assert Quarantine(str(recipe.lake)).notes() == []
    with pytest.raises(MismatchError, match="was created by a different recipe"):
        run(make_recipe(tmp_path, source, "return False"), cluster=client)


def test_a_run_continues_if_the_first_units_fail_in_different_ways(
    client: Client, tmp_path: Path, source: UPath
) -> None:
    code = "raise [KeyError, IndexError][int(Path(document['source']).stem) % 2]('x')"
    report = run(make_recipe(tmp_path, source, code), cluster=client)
    assert report.num_quarantined == FILES


def test_quarantined_units_of_a_lake_with_rows_do_not_stop_a_run(
    client: Client, tmp_path: Path, source: UPath
) -> None:
    good = source / "good.jsonl"
    write_jsonl(good, records(900, 905))
    code = "return document['no such'] if 'good' not in document['source'] else True"
    recipe = make_recipe(tmp_path, good, code)
    assert run(recipe, cluster=client).rows == 5
    recipe = make_recipe(tmp_path, source, code)
    for _ in range(2):
        assert run(recipe, cluster=client).num_quarantined == FILES


def test_values_in_messages_do_not_tell_errors_apart(
    client: Client, tmp_path: Path, source: UPath
) -> None:
    recipe = make_recipe(tmp_path, source, "raise ValueError(document['source'] + ' 7')")
    with pytest.raises(TokenlakeError, match="the first 10 units of work all failed in this way"):
        run(recipe, cluster=client)


def test_a_run_of_small_files_stops_before_all_packs(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "MAX_UNITS", 12)
    monkeypatch.setattr(commit_policy, "_RESULTS", 12)
    for name in ("_MIN_LIVE", "_LIVE_PER_THREAD"):  # tasks that are submitted ahead
        monkeypatch.setattr(dask_tasks, name, 2)
    source = at(tmp_path / "in")
    for number in range(240):
        write_jsonl(source / f"{number:03}.jsonl", [{"body": f"Text {number}"}])
    tried = tmp_path / "tried"
    code = f"Path({str(tried)!r}).open('a').write('x'); return document['no such']"
    with pytest.raises(QuarantineError, match="the first 10 units of work all failed"):
        run(make_recipe(tmp_path, source, code), cluster=client)
    assert len(tried.read_text()) < 200
    assert len(Quarantine(str(tmp_path / "lake")).notes()) == 10
