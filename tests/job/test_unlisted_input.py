"""One file that cannot be listed or read does not stop a run: it is quarantined until it can."""

import os
from pathlib import Path

from distributed import Client

from etl.audit.lake_report import report as report_lake
from etl.audit.lake_status import lake_status
from etl.job.plan_report import plan
from etl.job.run import run
from etl.lake.quarantine import Quarantine
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.odd_files import WHY, make_odd_files
from tests.helpers.paths import at


def test_the_rest_of_the_input_is_read(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_jsonl(at(folder) / "good.jsonl", records(0, 5))
    make_odd_files(folder)
    for name in ("cut.parquet", "cut.arrow"):
        (folder / name).write_bytes(b"PAR1" + name.encode())
    lake = str(tmp_path / "lake")
    source = {"path": str(folder), "columns": {"text": "body"}, "split_bytes": 8}
    recipe = Recipe(name="web", source=source, lake=lake, stages=[])
    assert len(plan(recipe).plan.problems) == len(WHY)

    for _ in range(2):  # a second run reports it again, even if nothing else remains to be done
        report = run(recipe, cluster=client)
        assert report.num_quarantined == len(WHY) + 2
        notes = {n.source.removeprefix(f"file://{folder}/"): n for n in Quarantine(lake).notes()}
        assert [note.step for note in notes.values()].count("listing") == len(WHY)
        for name, why in WHY.items():
            printable = ascii(name)[1:-1]
            assert notes[printable].error.startswith(why)
    assert len(report_lake(lake).quarantined) == len(lake_status(lake).quarantined) == len(WHY) + 2
    last = lake_status(lake).last_run
    assert last is not None
    assert last.run.quarantined == len(WHY) + 2, "in the lineage"

    (folder / os.fsdecode(b"bad\xff.jsonl")).rename(folder / "renamed.jsonl")
    (folder / "renamed.jsonl").write_text('{"body": "a text"}\n')
    (folder / "pipe_link.jsonl").unlink()
    (folder / "dangling.jsonl").unlink()
    write_jsonl(at(folder) / "dangling.jsonl", records(5, 7))
    report = run(recipe, cluster=client)
    assert report.rows == 3
    assert report.num_quarantined == len(WHY) - 3 + 2
    assert len(Quarantine(lake).notes()) == len(WHY) - 3 + 2


def test_files_and_items_of_sets_are_left_out_with_a_count(client: Client, tmp_path: Path) -> None:
    write_jsonl(at(tmp_path) / "in" / "a.jsonl", records(0, 5))
    for name in ("sets", "hosts"):
        (tmp_path / name).mkdir()
        make_odd_files(tmp_path / name)
    items = [{"text": "a question of at least eight words, is it?"}, {"text": ""}, {"text": None}]
    write_jsonl(at(tmp_path) / "sets" / "quiz.jsonl", items)
    (tmp_path / "hosts" / "a.jsonl").write_text("spam.example\n")
    stages = [
        {"url": {"hosts": f"{tmp_path}/hosts/**"}},
        {"decontaminate": {"sets": {"quiz": str(tmp_path / "sets")}}},
    ]
    source = {"path": f"{tmp_path}/in", "columns": {"text": "body"}}
    lake = str(tmp_path / "lake")
    recipe = Recipe(name="web", source=source, lake=lake, stages=stages)
    report = run(recipe, cluster=client)
    assert report.rows == 5
    assert report.num_quarantined == 2 * len(WHY)
    assert {note.step for note in Quarantine(lake).notes()} == {"listing"}
    reasons = ("source.empty_text", "source.null_text")
    counts = {f"decontaminate.quiz: {reason}": 1 for reason in reasons}
    last = lake_status(lake).last_run
    assert last is not None
    assert last.run.quarantined == 2 * len(WHY)
    assert counts == report.skipped_items == last.run.skipped_items
    assert counts == report_lake(lake).runs[0].skipped_items
    for name in ("status", "report"):
        assert "2 items of evaluation sets (1 decontaminate.quiz" in etl(name, lake).stdout
