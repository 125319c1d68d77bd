"""A driver in a separate process, which tests kill: ``python -m tests.helpers.driver RECIPE.yaml [STEP]``.

With ``shuffle``, it shuffles the tokens after the run. With ``TABLE-n``, it kills itself and its workers
right before its n-th commit to a table.
"""

import os
import signal
import sys
from typing import Any

import etl.job.commit_policy
import etl.job.run
import etl.job.shuffle
from etl.compute.cluster import Cluster
from etl.job.run_commits import RunCommits
from etl.recipe.recipe import Recipe


def _die_before(table: str, number: int) -> None:
    commit, steps = RunCommits.commit, []

    def commit_or_die(commits: RunCommits, step: Any, *args: Any, **kwargs: Any) -> None:
        steps.append(step)
        if steps.count(table) == number:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        commit(commits, step, *args, **kwargs)

    RunCommits.commit = commit_or_die  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    # Commit after every result, for as many moments to die as possible.
    etl.job.commit_policy._MOST_RESULTS = 1
    step = sys.argv[2] if len(sys.argv) > 2 else ""
    table, _, count = step.partition("-")
    if count:
        _die_before(table, int(count))
    recipe = Recipe.load(sys.argv[1])
    report = etl.job.run.run(recipe, cluster=Cluster(workers=2))
    if report.ok and step == "shuffle":
        etl.job.shuffle.shuffle(str(recipe.lake), cluster=Cluster(workers=2))
    sys.exit(0 if report.ok else 3)
