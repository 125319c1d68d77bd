"""The step of a run before its plan: change the recipe of the lake, or follow an interrupted change."""

from typing import TYPE_CHECKING

from etl.compute.listener import Listener
from etl.job.plan import other_recipe_error
from etl.job.run_identity import RunIdentity
from etl.lake.jobs import Job, hold_job
from etl.lake.recipe_ledgers import is_followed, is_other_recipe, open_all_ledgers
from etl.plural import many
from etl.recipe.recipe import Step

if TYPE_CHECKING:
    from etl.change.apply_change import Changer
    from etl.job.run_context import RunContext


def follow_change(run: RunIdentity, listener: Listener, *, apply: bool) -> None:
    """Let the tables follow the last change of the recipe; with ``apply``, first change it.

    If documents must be compared again, the decisions and then the tokens follow in the steps of the run.

    Raises MismatchError with the plan of the change for a lake of another recipe without ``apply``, and with
    the reasons if the change cannot be applied exactly.
    """
    ledgers = open_all_ledgers(run.recipe)
    documents = ledgers.get("documents")
    if documents is None or not documents.has_rows():
        return
    is_other = is_other_recipe(run.recipe, ledgers)
    if not is_other and is_followed(ledgers.values()):
        return
    if is_other and not apply:
        # Loads the stages and their libraries, which most runs without work need not wait for.
        from etl.job.change_plan import plan_change

        plan = plan_change(run.recipe)
        advice = None if plan is None else "; ".join([*plan.refusals, plan.advice()])
        step: Step = "documents" if documents.is_other_recipe else "duplicates"
        raise other_recipe_error(run.recipe, ledgers[step], step, advice)
    listener.status("change     bringing the tables to the new recipe")
    with hold_job(run.job) as job:
        changer = _changer(run, job)
        if not is_other:
            changer.follow()
        elif (change := changer.apply()) is not None:
            counts = f"{many(change.leave, 'document')} left, {change.come:,} came"
            read = change.by_text + change.by_input
            again = f"; {read:,} more were judged again" if read else ""
            listener.status(f"changed    {counts}{again}")


def follow_decisions(run: "RunContext") -> None:
    """Let the tokens follow the last change of the recipe, if they have waited for the decisions."""
    if not is_followed(run.ledgers.values()):
        _changer(run.commits.run, run.job).follow()


def _changer(run: RunIdentity, job: Job) -> "Changer":
    from etl.change.apply_change import Changer
    from etl.job.change_plan import price_change

    return Changer(
        recipe=run.recipe,
        origin=run.origin,
        job=job,
        advise=lambda change: price_change(change).advice(),
    )
