"""A lake whose documents attack the page that shows them."""

from pathlib import Path

from distributed import Client
from upath import UPath

from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_jsonl

ATTACKS = (
    "</script><script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    "<!-- --><style>body { display: none }</style>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7}",
    "controls \x00 \x1b[31m \x07 and \u202eoverride\u202c and \ufeff",
    "مرحبا بالعالم " * 20,
    "W" * 100_000,
    "\u0301" * 5_000,
    '"><svg onload=alert(1)>',
)


def make_hostile_lake(folder: UPath, client: Client, tokenizer: Path) -> Recipe:
    """Make a lake of documents, kept and rejected, with hostile texts, ids and URLs."""
    rows = [
        {"text": f"{attack} {text}", "id": f"{attack[:300]}{number}", "url": attack[:300]}
        for number, attack in enumerate(ATTACKS)
        for text in ("", prose(number), prose(number))
    ]
    write_jsonl(folder / "<b>in" / "a.jsonl", rows)
    recipe = Recipe(
        name="<i>hostile</i>",
        source={"path": str(folder / "<b>in"), "columns": {"id": "id", "url": "url"}},
        lake=str(folder / "lake"),
        stages=[
            {"language": {"keep": ["en"], "min_score": 0.3}},
            {"length": {"min_words": 50, "max_chars": 50_000}},
            {"where": {"name": "<u>", "keep": "num_words <> 93"}},
            "dedup_exact",
            {"tokenize": str(tokenizer)},
        ],
    )
    assert run(recipe, cluster=client).ok
    return recipe
