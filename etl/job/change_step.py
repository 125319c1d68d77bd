"""The step of a run before its plan: change the recipe of the lake, or follow an interrupted change."""

from etl.compute.listener import Listener
from etl.job.plan import other_recipe_error
from etl.job.run_identity import RunIdentity
from etl.lake.jobs import hold_job
from etl.lake.recipe_ledgers import is_followed, open_all_ledgers


def follow_change(run: RunIdentity, listener: Listener, *, apply: bool) -> None:
    """Let all tables follow the last change of the recipe; with ``apply``, first change it.

    Raises MismatchError with the plan of the change for a lake of another recipe without ``apply``, and with
    the reasons if the change cannot be applied exactly.
    """
    ledgers = open_all_ledgers(run.recipe)
    documents = ledgers.get("documents")
    if documents is None or not documents.has_rows():
        return
    if not documents.is_other_recipe and is_followed(ledgers.values()):
        return
    # Loads the stages and their libraries, which most runs without work need not wait for.
    from etl.change.apply_change import Changer
    from etl.job.change_plan import plan_change, price_change

    if documents.is_other_recipe and not apply:
        plan = plan_change(run.recipe)
        advice = None if plan is None else "; ".join([*plan.refusals, plan.advice()])
        raise other_recipe_error(run.recipe, documents, "documents", advice)
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
