"""The step of a run before its plan: change the recipe of the lake, or follow an interrupted change."""

from etl.change.apply_change import Changer, is_followed, open_all_ledgers
from etl.compute.listener import Listener
from etl.job.change_plan import plan_change, price_change
from etl.job.plan import other_recipe_error
from etl.job.run_identity import RunIdentity
from etl.lake.jobs import hold_job


def follow_change(run: RunIdentity, listener: Listener, *, apply: bool) -> None:
    """Let all tables follow the last change of the recipe; with ``apply``, first change it.

    Raises MismatchError with the plan of the change for a lake of another recipe without ``apply``, and with
    the reasons if the change cannot be applied exactly.
    """
    ledgers = open_all_ledgers(run.recipe)
    documents = ledgers.get("documents")
    if documents is None or not documents.has_rows():
        return
    if documents.is_other_recipe:
        if not apply:
            plan = plan_change(run.recipe)
            advice = None if plan is None else "; ".join([*plan.refusals, plan.advice()])
            raise other_recipe_error(run.recipe, documents, "documents", advice)
    elif is_followed(ledgers.values()):
        return
    listener.status("change     bringing the tables to the new recipe")
    with hold_job(run.job) as job:
        changer = Changer(
            recipe=run.recipe,
            origin=run.origin,
            job=job,
            advise=lambda change: price_change(change).advice(),
        )
        if documents.is_other_recipe:
            changer.apply()
        else:
            changer.follow()
