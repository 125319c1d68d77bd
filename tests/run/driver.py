"""A run in a process of its own, which a test kills: ``python -m tests.run.driver RECIPE.yaml``."""

import sys

import etl.runner
from etl.cluster import Cluster
from etl.recipe import Recipe

if __name__ == "__main__":
    etl.runner._COMMIT_SECONDS = 0.0  # a commit for every result: as many places to die as can be
    report = etl.runner.run(Recipe.load(sys.argv[1]), cluster=Cluster(workers=2))
    sys.exit(0 if report.ok else 3)
