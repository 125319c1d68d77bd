"""`etl plan`: print what a run would do, with the S-curve of near-duplicate detection."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etl.cli import cost_tables, options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.compute.kubernetes.planned_pods import ClusterPlan
    from etl.job.change_plan import ChangePlan
    from etl.job.cost_estimate import Estimate
    from etl.job.plan import Plan
    from etl.job.plan_report import PlanReport
    from etl.job.prices import Prices
    from etl.job.sample_input import InputSample
    from etl.recipe.recipe import Recipe, Step
    from etl.stages import Stage, Tokenize

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl plan web.yaml",
        "etl plan demo --lake lake --json",
        "etl plan web.yaml --prices prices.yaml",
        "etl plan web.yaml --apply-change",
        "etl plan web.yaml --cluster k8s:cluster.yaml",
    )
)
def plan(  # noqa: PLR0913 - one parameter per option
    recipe: options.RecipeArgument,
    *,
    sources: options.Sources = None,
    lake: options.Lake = None,
    settings: options.Settings = None,
    env: options.Env = None,
    rebuild: options.Rebuild = False,
    replace_changed: options.ReplaceChanged = False,
    drop_missing: options.DropMissing = False,
    apply_change: options.ApplyChange = False,
    no_python: options.NoPython = False,
    cluster: options.Cluster = None,
    workers: options.Workers = None,
    prices: options.Prices = None,
    reads_sample: Annotated[
        bool,
        typer.Option(
            "--sample/--no-sample", help="Read a few documents of each format, and judge them."
        ),
    ] = True,
    as_json: options.AsJson = False,
) -> None:
    """Print what a run would do and cost, without doing it.

    The first documents of a few files are read, to check the columns and to show what the stages decide.
    With a cluster file (k8s:FILE), prints the pods that would be created and why so many.
    With --apply-change, prints only what the recipe changes in the lake of another recipe, and the cost.
    """
    from etl.job.egress import egress_of
    from etl.job.plan_report import plan as plan_run
    from etl.job.prices import Prices, cost_of

    known = Prices.load(prices)
    changes = options.settings_of(sources, lake, settings)
    loaded = options.load_recipe(recipe, changes, env=env, no_python=no_python)
    if apply_change:
        from etl.job.change_plan import plan_change

        output.print_result(plan_change(loaded), change_lines, as_json=as_json)
        return
    report = plan_run(
        loaded,
        cluster=options.make_cluster(cluster, workers),
        rebuild=rebuild,
        replace_changed=replace_changed,
        drop_missing=drop_missing,
        reads_sample=reads_sample,
    )
    estimate, even = report.estimate, report.evenness
    if as_json:
        cost = {**asdict(estimate), "cost": asdict(cost_of(estimate.usage, known))}
        cost["egress"] = egress_of(estimate.reads, known)
        whole = {**facts(report.plan), "sample": report.sample, "evenness": even, "estimate": cost}
        whole |= {"cluster": report.cluster, "rejected_bytes": report.rejected_bytes}
        output.print_result(whole, lines, as_json=True)
        return
    output.print_result(report.plan, lines)
    if even is not None:
        output.echo(f"evenness    tokens as read by default: {output.evenness(even)}")
    if report.sample is not None:
        output.print_result(report.sample, sample_lines)
        output.print_result(report, rejected_lines)
    if report.plan.has_work():
        output.print_result(estimate, lambda each: _estimate(each, known))
    if report.cluster is not None:
        output.print_result(report.cluster, cluster_lines)


def change_lines(change: "ChangePlan | None") -> Iterator[str]:
    """Yield what a change of the recipe does and costs."""
    if change is None:
        yield "no change: the lake is of this recipe, or has no documents"
        return
    yield f"lake        {change.lake}"
    yield from change.lines()


def facts(plan: "Plan") -> dict[str, Any]:
    """Return a plan as data for JSON."""
    recipe = plan.recipe
    return {
        "recipe": recipe.name,
        "lake": recipe.lake,
        "source": recipe.source.path or recipe.source.paths,
        "fingerprints": {step: recipe.fingerprint(step) for step in recipe.steps},
        "tables": {
            step: {"url": recipe.table_url(step), "version": version}
            for step, version in plan.versions.items()
        },
        "begin": list(plan.begin),
        "is_rebuild": bool(plan.rebuilt),
        "splits": {
            "to_read": len(plan.splits),
            "bytes": plan.num_bytes,
            "done": plan.done,
        },
        "changed": sorted(plan.changed),
        "to_compare": [file.uri for file in plan.doubts],
        "perhaps_copies": list(plan.postponed),
        "missing": plan.missing,
        "problems": {str(error.where): error.what for error in plan.problems},
        "has_work": plan.has_work(),
    }


def lines(plan: "Plan") -> Iterator[str]:
    """Yield the source, the splits, the tables with their stages, and what they are compared with."""
    recipe = plan.recipe
    yield f"recipe      {recipe.name}  {recipe.fingerprint()[:12]}"
    for path in recipe.source.paths:
        yield f"source      {path}"
    yield f"lake        {recipe.lake}"
    yield f"splits      {len(plan.splits)} to read ({plan.num_bytes / 1e6:.1f} MB), {plan.done} done"
    yield from _input_files(plan)
    yield from _tables(plan)
    for stage in recipe.dedup_stages:
        yield from stage.plan_lines()
    for tokenizer in recipe.tokenizers.values():
        yield from _tokenizer(tokenizer)
    for other in plan.others:
        kinds = " and ".join(other.kinds)
        yield f"against     {other.url}, texts version {other.texts.version}: {kinds}"
    if plan.units.unkeyed:
        splits = many(plan.units.unkeyed, "deduplicated split")
        yield f"keys        will be written for {splits}"
    yield from (f"replaces    {uri}" for uri in sorted(plan.changed))
    yield from (f"unreadable  {error.where}: {error.what}" for error in plan.problems)
    if plan.lake_epoch is None:
        yield "epoch       its start was interrupted, will be finished"
    if not plan.has_work():
        yield "nothing to do"


def _tokenizer(stage: "Tokenize") -> Iterator[str]:
    from etl.stages.tokenize import Encoder

    encoder = Encoder.of(stage)
    table = "" if stage.name is None else f", into {stage.table}"
    yield f"tokenizer   {stage.tokenizer}{table}"
    yield f"vocabulary  {many(encoder.record().vocab_size, 'token')}"
    fallback = f"tokenizers, 30 to 90 times slower: {encoder.fallback}"
    yield f"encoder     {'gigatoken' if encoder.fallback is None else fallback}"
    if spelled := encoder.engine.spelled_by_model():
        yield f"warning     texts can contain {', '.join(spelled[:3])}: the model has it as a word"


def sample_lines(sample: "InputSample") -> Iterator[str]:
    """Yield what the stages decide on a few documents, and what is wrong with the input."""
    yield ""
    documents, files = many(sample.documents, "document"), many(sample.files, "file")
    ratio = f", {sample.kept / sample.documents:.0%} kept" if sample.documents else ""
    yield f"sample      {documents} of {files}{ratio}"
    width = max((len(verdict.reason or "kept") for verdict in sample.verdicts), default=0)
    for verdict in sample.verdicts:
        yield output.cut(
            f"  {verdict.reason or 'kept':<{width}}  {' '.join((verdict.text or '').split())}"
        )
    for warning in sample.warnings:
        yield f"warning     {warning}"


def rejected_lines(report: "PlanReport") -> Iterator[str]:
    """Yield what storing the texts of rejected documents costs and saves, if some are rejected."""
    if report.rejected_bytes:
        stored, read = (
            f"{size / 1e6:,.1f} MB" for size in (report.rejected_bytes, report.plan.num_bytes)
        )
        what = f"`rejected: {{text: true}}` stores their texts in {stored}"
        yield f"rejected    {what}; without it, `etl sample` reads input again ({read} in all)"


def _estimate(estimate: "Estimate", prices: "Prices") -> Iterator[str]:
    yield ""
    memory = estimate.memory_per_worker
    yield from cost_tables.usage({"estimated": estimate.usage}, prices, memory_per_worker=memory)
    yield from cost_tables.egress(estimate.reads, prices)
    yield f"based on    {estimate.basis}"


def cluster_lines(cluster: "ClusterPlan") -> Iterator[str]:
    """Yield the pods of each group with what they request, and why a group has so many."""
    yield ""
    yield f"cluster     {cluster.name} in namespace {cluster.namespace}, image {cluster.image}"
    rows = [
        [
            each.group,
            f"{each.pods:,}",
            f"{each.cpu:,g}",
            f"{each.memory / 2**30:,.1f}",
            f"{each.disk / 2**30:,.1f}",
            ", ".join(f"{key}={value}" for key, value in each.node_selector.items()),
        ]
        for each in (*cluster.groups, cluster.total)
    ]
    header = ["group", "pods", "CPUs", "memory GiB", "disk GiB", "nodes"]
    yield from output.columns(header, rows, numbers=(1, 2, 3, 4))
    yield "driver      a pod if the run is submitted (`etl submit`)"
    if (auto := cluster.auto) is not None:
        workers, size = many(auto.workers, "worker"), f"{auto.input_bytes / 1e6:,.1f} MB"
        each = f"one for each {auto.bytes_per_worker / 1e6:,.0f} MB (10 minutes at 28 MB/s)"
        limit = f"at most {auto.max_workers:,}"
        yield f"auto        {workers} in {auto.group}: {size} to process, {each}, {limit}"


def _input_files(plan: "Plan") -> Iterator[str]:
    if plan.doubts:
        yield f"compare     {many(len(plan.doubts), 'file')} that may be known by another name or time"
    if plan.postponed:
        yield f"copies      {many(len(plan.postponed), 'file')} to be compared when others are read"
    yield from output.missing(plan.missing)


def _tables(plan: "Plan") -> Iterator[str]:
    from etl.lake.table_names import token_tables

    for step, version in plan.versions.items():
        state = "does not exist" if version is None else f"version {version}"
        if step in plan.begin:
            state += ", will be created" if version is None else ", will be rebuilt"
        if step == "texts":
            what = f"of {'all' if plan.recipe.rejected.text else 'kept'} documents"
        else:
            stages = _stages(plan.recipe, step)
            what = " -> ".join(stage.kind for stage in stages) or "no stages"
        yield f"{step:<11} {what}; {state}"
    for name in token_tables(plan.unfilled):
        drop = f"`etl drop LAKE {name} --yes` removes it"
        yield f"{name:<11} not extended, since the recipe does not name its tokenizer; {drop}"


def _stages(recipe: "Recipe", step: "Step") -> "tuple[Stage, ...]":
    match step:
        case "documents":
            return recipe.documents_stages
        case "duplicates":
            return recipe.dedup_stages
    return (recipe.tokenizers[step],)
