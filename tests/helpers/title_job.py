"""Run a job with a deduplication stage that only tests have: ``python -m tests.helpers.title_job FOLDER``.

A new stage is a line in the union, a line in ``PASSES``, and its kinds of rows in ``schemas.WHOLE``. Here
they are added before the modules that use them are imported. Writes as JSON what the test compares.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args

from pydantic import Field

from etl import schemas, stages
from etl.stages.dedup_paragraphs import DedupParagraphs

schemas.WHOLE = (*schemas.WHOLE, "title")

from tests.helpers.title_stage import DedupTitle  # noqa: E402

_models = get_args(get_args(stages.AnyStage)[0])
_index = _models.index(DedupParagraphs)
_models = (*_models[:_index], DedupTitle, *_models[_index:])
stages.AnyStage = Annotated[Union[_models], Field(discriminator="kind")]  # type: ignore[assignment]  # noqa: UP007
stages.STAGES.clear()
stages.STAGES.update({model.model_fields["kind"].default: model for model in _models})

from etl.audit.lake_report import report  # noqa: E402
from etl.audit.verify.verify import verify  # noqa: E402
from etl.cli.commands import plan as plan_command  # noqa: E402
from etl.dedup import run_passes  # noqa: E402
from etl.job.plan import make_plan  # noqa: E402
from etl.job.run import run  # noqa: E402
from etl.recipe.json_schema import json_schema  # noqa: E402
from etl.recipe.recipe import Recipe  # noqa: E402
from etl.stages.document_columns import texts_schema  # noqa: E402
from tests.helpers.cluster import cluster  # noqa: E402
from tests.helpers.lake_rows import rows  # noqa: E402
from tests.helpers.title_pass import find_equal_titles  # noqa: E402

run_passes.PASSES = {**run_passes.PASSES, DedupTitle: find_equal_titles}  # type: ignore[misc]

SHARED = "A paragraph that is long enough to be compared with those of other documents."
FIRST = {
    "first": f"Rivers\n\nOne text about rivers.\n\n{SHARED}",
    "same-title": "rivers\n\nAnother text about rivers.",
    "equal": "rivers\n\nAnother text about rivers.",
    "other": f"Mountains\n\n{SHARED}\n\nA text about mountains, with more words than the one before.",
}
SECOND = {"later": "Rivers\n\nA third text about rivers.", "new": "Lakes\n\nA text about lakes."}


def make_recipe(folder: Path, **settings: Any) -> Recipe:
    """Return a recipe with all kinds of passes."""
    return Recipe(
        name="titles",
        source={"path": f"{folder}/in/*.jsonl", "columns": {"text": "text", "id": "id"}},
        lake=f"{folder}/lake",
        stages=[
            "dedup_exact",
            {"kind": "dedup_title", **settings},
            {"kind": "dedup_paragraphs", "min_rest_chars": 10},
        ],
    )


def write_documents(path: Path, documents: Mapping[str, str]) -> None:
    """Write documents, given their texts by id, as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"id": name, "text": text}) for name, text in documents.items())
    path.write_text("\n".join(lines))


def main(folder: Path) -> dict[str, Any]:
    """Run the job twice, the second time with one more file, and return what can be seen of it."""
    recipe = make_recipe(folder)
    write_documents(folder / "in" / "a.jsonl", FIRST)
    plan = list(plan_command.lines(make_plan(recipe)))
    with cluster(threads=2) as client:
        run(recipe, cluster=client)
        write_documents(folder / "in" / "b.jsonl", SECOND)
        run(recipe, cluster=client)
    names = {(row["source"], row["row"]): row["id"] for row in rows(recipe.lake, "documents")}
    fingerprints = [
        [make_recipe(folder, **settings).fingerprint(step) for step in recipe.steps]
        for settings in ({}, {"min_chars": 5}, {"fold_case": False})
    ]
    return {
        "columns": texts_schema(recipe.stages).names,
        "json_schema": "dedup_title" in json.dumps(json_schema()),
        "plan": plan,
        "duplicates": sorted(
            (row["id"], names[row["keeper_source"], row["keeper_row"]], row["kind"])
            for row in rows(recipe.lake, "duplicates")
        ),
        "report": report(str(recipe.lake)).duplicates,
        "costs": [cost.name for cost in report(str(recipe.lake)).costs],
        "cut": report(str(recipe.lake)).cut,
        "problems": [str(problem) for problem in verify(str(recipe.lake))],
        "fingerprints": fingerprints,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
