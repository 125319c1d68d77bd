"""Print a plan: as lines for a reader, or as data."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl.job.plan import Plan
    from etl.recipe.recipe import Recipe, Step
    from etl.stages import DedupMinhash, Stage


def facts(plan: "Plan") -> dict[str, Any]:
    """Return a plan as data for JSON."""
    recipe = plan.recipe
    return {
        "recipe": recipe.name,
        "lake": recipe.lake,
        "source": recipe.source.path,
        "fingerprints": {step: recipe.fingerprint(step) for step in recipe.steps},
        "tables": {
            step: {"url": recipe.table_url(step), "version": version}
            for step, version in plan.versions.items()
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

        reason = Encoder.of(recipe.tokenize_stage).fallback
        fallback = f"tokenizers, 30 to 90 times slower: {reason}"
        yield f"tokenizer   {'gigatoken' if reason is None else fallback}"
    for other in plan.others:
        kinds = " and ".join(other.kinds)
        yield f"against     {other.url}, documents version {other.documents.version}: {kinds}"
    if plan.units.unkeyed:
        yield f"keys        {plan.units.unkeyed} deduplicated splits still need their keys"
    for uri in sorted(plan.changed):
        yield f"replaces    {uri}"
    if not plan.has_work():
        yield "nothing to do"


def _tables(plan: "Plan") -> Iterator[str]:
    for step, version in plan.versions.items():
        state = "does not exist" if version is None else f"version {version}"
        if step in plan.begin:
            state += ", will be created" if version is None else ", will be rebuilt"
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
    r"""Yield the probability that a pair of documents is found and joined, by similarity.

    >>> from etl.stages import DedupMinhash
    >>> print(*_curve(DedupMinhash(verify="exact")), sep="\n")
    near        14 bands of 8 rows: 452 bytes per document; joins 92.4% of pairs at similarity 0.80
      similarity   0.50   0.60   0.70   0.75   0.80   0.85   0.90   0.95
      found          5%    21%    56%    77%    92%    99%   100%   100%
      joined         0%     0%     0%     0%    92%    99%   100%   100%
    """
    points = stage.curve()
    threshold, size = stage.min_similarity, 4 * (1 + stage.permutations)
    yield (
        f"near        {stage.bands} bands of {stage.rows} rows: {size} bytes per document; "
        f"joins {stage.joined(threshold):.1%} of pairs at similarity {threshold:.2f}"
    )
    yield "  similarity" + "".join(f"{point:>7.2f}" for point, _, _ in points)
    yield "  found     " + "".join(f"{found:>7.0%}" for _, found, _ in points)
    yield "  joined    " + "".join(f"{joined:>7.0%}" for _, _, joined in points)
