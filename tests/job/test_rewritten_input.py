"""An input file that another process rewrites while it is read."""

from pathlib import Path

from distributed import Client
from upath import UPath

from etl import storage
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import rows

_REWRITING = """
from etl import storage

def rewrite(document):
    if document["text"] == "first":
        storage.write_bytes({uri!r}, {content!r})
    return True
"""


def test_a_file_rewritten_while_it_is_read_is_quarantined(
    client: Client, place: UPath, tmp_path: Path, tiny_tokenizer: Path
) -> None:
    uri = storage.join(storage.normalize(str(place)), "pages.jsonl")
    later = b'{"text": "later"}\n' * 20_000  # more than one batch
    storage.write_bytes(uri, b'{"text": "first"}\n' + later)
    module = tmp_path / "rewriting.py"
    module.write_text(_REWRITING.format(uri=uri, content=b'{"text": "other"}\n'))
    recipe = Recipe(
        name="rewritten",
        source={"path": uri},
        lake=str(place / "lake"),
        stages=[
            {"python": {"call": "rewriting:rewrite", "per": "document", "folder": str(tmp_path)}},
            {"tokenize": str(tiny_tokenizer)},
        ],
    )
    report = run(recipe, cluster=client)
    [note] = report.quarantined
    assert "the file has changed since it was listed" in note.error
    assert rows(recipe.lake, "documents") == []
    module.write_text("def rewrite(document):\n    return True\n")
    assert run(recipe, cluster=client, rebuild=True).ok
    assert [row["text"] for row in rows(recipe.lake, "texts")] == ["other"]
