"""A driver in another process, which tests kill: ``python -m tests.helpers.driver RECIPE.yaml [shuffle]``."""

import sys

import etl.job.commit_policy
import etl.job.run
import etl.job.shuffle
from etl.compute.cluster import Cluster
from etl.recipe.recipe import Recipe

if __name__ == "__main__":
    # Commit after every result, for as many moments to die as possible.
    etl.job.commit_policy._MOST_RESULTS = 1
    recipe = Recipe.load(sys.argv[1])
    report = etl.job.run.run(recipe, cluster=Cluster(workers=2))
    if report.ok and sys.argv[2:] == ["shuffle"]:
        etl.job.shuffle.shuffle(str(recipe.lake), cluster=Cluster(workers=2))
    sys.exit(0 if report.ok else 3)
