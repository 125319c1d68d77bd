"""The interface of deduplication stages: a stage that only tests have is found wherever it must appear."""

import json
import subprocess
import sys
from typing import Any

import pytest

from etl import schemas
from etl.dedup.run_passes import PASSES
from etl.stages import STAGES
from etl.stages.dedup_base import DedupStage

DEDUP_STAGES = [model for model in STAGES.values() if issubclass(model, DedupStage)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run a job with the stage of ``title_stage.py`` in another process, where the union has it."""
    command = [
        sys.executable,
        "-m",
        "tests.helpers.title_job",
        str(tmp_path_factory.mktemp("titles")),
    ]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    output: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return output


def test_every_stage_has_a_pass_and_its_columns_and_kinds_are_in_the_schemas() -> None:
    assert list(PASSES) == DEDUP_STAGES
    stages = [model.model_validate({}) for model in DEDUP_STAGES]
    kinds = dict.fromkeys(kind for stage in stages for kind in stage.kinds)
    assert [*kinds] == [*schemas.WHOLE, schemas.CUT, schemas.SHORT]
    columns = [field for stage in stages for field in stage.document_columns()]
    assert columns == list(schemas.DEDUP_COLUMNS)


def test_a_new_stage_is_in_the_schemas_and_the_plan(job: dict[str, Any]) -> None:
    assert job["columns"][-6:] == [
        "content_hash",
        "title_hash",
        "unit_hashes",
        "unit_chars",
        "text_hash",
        "verdict",
    ]
    assert job["json_schema"]
    assert "title       first lines of 1 characters and more" in job["plan"]
    stages = "dedup_exact -> dedup_title -> dedup_paragraphs"
    assert f"duplicates  {stages}; does not exist, will be created" in job["plan"]


def test_the_settings_of_a_new_stage_are_in_the_fingerprints(job: dict[str, Any]) -> None:
    documents, texts, duplicates = zip(*job["fingerprints"], strict=True)
    assert documents[0] == documents[1] != documents[2]
    assert texts[0] == texts[1] != texts[2]
    assert len({*duplicates}) == 3


def test_a_new_stage_works_with_the_others_and_in_increments(job: dict[str, Any]) -> None:
    """The keeper of the equal text is a duplicate of the first document, which becomes its keeper."""
    assert job["duplicates"] == [
        ["equal", "first", "title"],
        ["later", "first", "title"],
        ["other", "first", "cut"],
        ["same-title", "first", "title"],
    ]
    assert job["problems"] == []


def test_a_new_stage_is_in_the_report_and_the_costs(job: dict[str, Any]) -> None:
    assert job["report"] == {"title": 3}
    assert job["cut"] == 1
    assert "signals.title" in job["costs"]
