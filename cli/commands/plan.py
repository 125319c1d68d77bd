"""`etl plan`: print what a run would do, with the S-curve of near-duplicate detection."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.job.plan import Plan
    from etl.recipe.recipe import Recipe, Step
    from etl.stages import DedupMinhash, Stage

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl plan web.yaml",
        "etl plan demo --lake lake --json",
    )
)
def plan(  # noqa: PLR0913 - one parameter per option
    recipe: options.RecipeArgument,
    *,
    sources: options.Sources = None,
    lake: options.Lake = None,
    settings: options.Settings = None,
    rebuild: options.Rebuild = False,
    replace_changed: options.ReplaceChanged = False,
    no_python: options.NoPython = False,
    as_json: options.AsJson = False,
) -> None:
    """Print what a run would do, without doing it."""
    from etl.job.plan import make_plan

    loaded = options.load_recipe(
        recipe, sources=sources, lake=lake, settings=settings, no_python=no_python
    )
    run_plan = make_plan(loaded, rebuild=rebuild, replace_changed=replace_changed)
    output.print_result(facts(run_plan) if as_json else run_plan, lines, as_json=as_json)


def facts(plan: "Plan") -> dict[str, Any]:
    """Return a plan as data for JSON."""
    recipe = plan.recipe
    return {
        "recipe": recipe.name,
        "lake": recipe.lake,
        "source": recipe.source.path,
        "fingerprints": {step: recipe.fingerprint(step) for step in recipe.steps},
        "tables": {
            step: {"url": ledger.url, "version": ledger.table.version if ledger.table else None}
            for step, ledger in plan.ledgers.items()
        },
        "begin": list(plan.begin),
        "is_rebuild": plan.is_rebuild,
        "splits": {
            "to_read": len(plan.splits),
            "bytes": sum(split.bytes for split in plan.splits),
            "done": plan.done,
        },
        "changed": sorted(plan.changed),
        "has_work": plan.has_work(),
    }


def lines(plan: "Plan") -> Iterator[str]:
    """Yield the source, the splits, the tables with their stages, and what they are compared with."""
    recipe = plan.recipe
    yield f"recipe      {recipe.name}  {recipe.fingerprint(recipe.steps[-1])[:12]}"
    for path in recipe.source.paths:
        yield f"source      {path}"
    yield f"lake        {recipe.lake}"
    size = sum(split.bytes for split in plan.splits)
    yield f"splits      {len(plan.splits)} to read ({size / 1e6:.1f} MB), {plan.done} done"
    yield from _tables(plan)
    if recipe.minhash_stage is not None:
        yield from _curve(recipe.minhash_stage)
    if recipe.tokenize_stage is not None:
        from etl.stages.tokenize import Encoder

        slow = Encoder.of(recipe.tokenize_stage).fallback
        encoder = "gigatoken" if slow is None else f"tokenizers, 30 to 90 times slower: {slow}"
        yield f"tokenizer   {encoder}"
    for other in plan.others:
        kinds = " and ".join(other.kinds)
        yield f"against     {other.url}, documents version {other.documents.version}: {kinds}"
    unkeyed = plan.unkeyed() if "duplicates" in plan.ledgers else ()
    if count := sum(1 for _ in unkeyed):
        splits = output.many(count, "deduplicated split")
        yield f"keys        will be written for {splits}"
    for uri in sorted(plan.changed):
        yield f"replaces    {uri}"
    if not plan.has_work():
        yield "nothing to do"


def _tables(plan: "Plan") -> Iterator[str]:
    for step, ledger in plan.ledgers.items():
        state = f"version {ledger.table.version}" if ledger.table else "does not exist"
        if step in plan.begin:
            state += ", will be rebuilt" if ledger.table else ", will be created"
        stages = " -> ".join(stage.kind for stage in _stages(plan.recipe, step)) or "no stages"
        yield f"{step:<11} {stages}; {state}"


def _stages(recipe: "Recipe", step: "Step") -> "tuple[Stage, ...]":
    match step:
        case "documents":
            return recipe.documents_stages
        case "duplicates":
            return recipe.dedup_stages
    return () if recipe.tokenize_stage is None else (recipe.tokenize_stage,)


def _curve(stage: "DedupMinhash") -> Iterator[str]:
    r"""Yield the probability that a pair of documents is found and joined, by their similarity.

    >>> from etl.stages import DedupMinhash
    >>> print(*_curve(DedupMinhash(verify="exact")), sep="\n")
    near        14 bands of 8: 452 bytes per document; 92.4% of pairs at 0.80 are joined
      similarity   0.50   0.60   0.70   0.75   0.80   0.85   0.90   0.95
      found          5%    21%    56%    77%    92%    99%   100%   100%
      joined         0%     0%     0%     0%    92%    99%   100%   100%
    """
    points = stage.curve()
    threshold, size = stage.min_similarity, 4 * (1 + stage.permutations)
    yield (
        f"near        {stage.bands} bands of {stage.rows}: {size} bytes per document; "
        f"{stage.joined(threshold):.1%} of pairs at {threshold:.2f} are joined"
    )
    yield "  similarity" + "".join(f"{point:>7.2f}" for point, _, _ in points)
    yield "  found     " + "".join(f"{found:>7.0%}" for _, found, _ in points)
    yield "  joined    " + "".join(f"{joined:>7.0%}" for _, _, joined in points)
