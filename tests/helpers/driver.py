"""A driver in a separate process, which tests kill: ``python -m tests.helpers.driver RECIPE.yaml [N]``.

With a number, it kills itself and its workers right before its n-th commit of tokens.
"""

import os
import signal
import sys
from typing import Any

import etl.job.commit_policy
import etl.job.run
from etl.compute.cluster import Cluster
from etl.job.run_commits import RunCommits
from etl.recipe.recipe import Recipe


def _die_before_tokens(number: int) -> None:
    commit, steps = RunCommits.commit, []

    def commit_or_die(commits: RunCommits, step: Any, *args: Any, **kwargs: Any) -> None:
        steps.append(step)
        if steps.count("tokens") == number:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        commit(commits, step, *args, **kwargs)

    RunCommits.commit = commit_or_die  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    # Commit after every result, for as many moments to die as possible.
    etl.job.commit_policy._MOST_RESULTS = 1
    if len(sys.argv) > 2:
        _die_before_tokens(int(sys.argv[2]))
    report = etl.job.run.run(Recipe.load(sys.argv[1]), cluster=Cluster(workers=2))
    sys.exit(0 if report.ok else 3)
