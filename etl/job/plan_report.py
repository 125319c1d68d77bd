"""Report what a run would do, decide and need: its plan, a few documents of its input, and its cost."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from etl.compute.cluster import Cluster
from etl.compute.kubernetes.planned_pods import ClusterPlan, plan_pods
from etl.errors import LoaderError, StorageError, TableError
from etl.html.card import Card, Shown
from etl.html.grid import make_grid
from etl.job.cost_estimate import STORED_TEXT, Estimate, estimate_cost
from etl.job.plan import Drops, Plan, make_plan
from etl.job.run_identity import load_reference_tokenizer
from etl.job.sample_input import InputSample, sample_input
from etl.lake.table_names import token_tables
from etl.loader.measure_evenness import measure_table
from etl.loader.order.evenness import Evenness
from etl.plural import many
from etl.recipe.overrides import SettingsLike
from etl.recipe.recipe import Recipe, RecipeLike

_MAX_FILES = 512  # of a table whose evenness is measured: their footers are read in 0.2 s


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanReport(Shown):
    """What a run would do, what its stages decide on a few documents, and what it would need.

    ``sample`` is None if nothing is to be read, or if it was not requested; ``evenness`` is that of the
    table ``tokens``, None if there is none. ``cluster`` has the pods that the run would create, None without
    a cluster file, or if nothing remains to be done. ``rejected_bytes`` is the storage that the texts
    of rejected documents take if the recipe stores them (``rejected: {text: true}``), at the share that they
    have in the sample; None without a sample.
    """

    plan: Plan
    sample: InputSample | None
    estimate: Estimate
    evenness: Evenness | None
    cluster: ClusterPlan | None = None
    rejected_bytes: int | None = None

    def _cards(self) -> list[Card]:
        """Return the report as cards."""
        plan, sample = self.plan, self.sample
        cards = [_plan_card(plan, self.estimate)]
        if sample is not None:
            verdicts = make_grid(
                "Verdicts",
                ("verdict", "text"),
                sample.verdicts,
                lambda each: (each.reason or "kept", " ".join((each.text or "").split())),
            )
            facts = {f"warning {n}": text for n, text in enumerate(sample.warnings, 1)}
            title = f"Sample: {sample.kept:,} of {many(sample.documents, 'document')} kept"
            cards.append(Card(title=title, facts=facts, grids=[replace(verdicts, is_text=True)]))
        return cards


def plan(  # noqa: PLR0913 - one parameter for each option
    recipe: RecipeLike,
    *,
    cluster: Cluster | str | None = None,
    settings: SettingsLike = (),
    env: Collection[str] = (),
    rebuild: bool = False,
    replace_changed: bool = False,
    drop_missing: bool = False,
    reads_sample: bool = True,
) -> PlanReport:
    """Report what ``run`` would do, without doing it.

    ``recipe`` is a recipe, a dict, its file, or the name of a shipped one; ``settings`` and ``env`` are as
    in ``Recipe.load``. Of a ``cluster`` with a cluster file (``k8s:FILE``), the pods are planned. With
    ``reads_sample``, the first documents of a few files are read and judged.

    Raises the errors of ``make_plan`` and ``sample_input``, and ClusterError if the cluster file is invalid.
    """
    loaded = Recipe.of(recipe, settings=settings, env=env)
    drops = Drops(rebuild=rebuild, replace_changed=replace_changed, drop_missing=drop_missing)
    made = make_plan(loaded, drops)
    for stage in loaded.tokenizers.values():  # fail early if it is not a tokenizer
        load_reference_tokenizer(stage)
    sample = sample_input(loaded, made.splits) if reads_sample and made.splits else None
    cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    estimate = estimate_cost(made)
    return PlanReport(
        plan=made,
        sample=sample,
        estimate=estimate,
        rejected_bytes=_rejected_bytes(sample, estimate),
        evenness=_evenness(made),
        cluster=plan_pods(cluster, made.planned_bytes) if made.has_work() else None,
    )


def _rejected_bytes(sample: InputSample | None, estimate: Estimate) -> int | None:
    """Return the bytes on disk of the texts of rejected documents, at their share in the sample."""
    if sample is None or not sample.text_bytes:
        return None
    return round(estimate.text_bytes * sample.rejected_bytes / sample.text_bytes * STORED_TEXT)


def _evenness(plan: Plan) -> Evenness | None:
    """Return how evenly the loader mixes the input files of the first tokens, if that is quickly measured."""
    table = next(iter(token_tables(plan.versions)), None)
    if table is None or plan.versions[table] is None:
        return None
    try:
        return measure_table(plan.recipe.table_url(table), shuffle=True, max_files=_MAX_FILES)
    except (LoaderError, StorageError, TableError):  # a plan is of use for a damaged lake, too
        return None


def _plan_card(plan: Plan, estimate: Estimate) -> Card:
    recipe = plan.recipe
    facts: dict[str, object] = {
        "source": ", ".join(recipe.source.paths),
        "lake": recipe.lake,
        "stages": " → ".join(stage.kind for stage in recipe.stages),
        "splits to read": f"{len(plan.splits):,} ({plan.num_bytes / 1e6:,.1f} MB)",
        "splits done": f"{plan.done:,}",
    }
    if plan.has_work():
        hours = f"{estimate.usage.core_seconds / 3600:,.4f} core-hours"
        facts["estimated"] = f"{hours}, {estimate.usage.stored_bytes / 1e6:,.1f} MB added"
    else:
        facts["to do"] = "nothing"
    tables = make_grid(
        "Tables",
        ("table", "version"),
        plan.versions.items(),
        lambda each: (
            each[0],
            f"{'–' if each[1] is None else each[1]}"
            + (", will be rebuilt" if each[0] in plan.rebuilt else ""),
        ),
    )
    return Card(title=f"Plan of {recipe.name}", facts=facts, grids=[tables])
