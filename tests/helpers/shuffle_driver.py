"""A shuffle in a separate process, which tests kill: ``python -m tests.helpers.shuffle_driver LAKE``."""

import sys

from etl.compute.cluster import Cluster
from etl.job.shuffle import ShuffleSettings, shuffle

if __name__ == "__main__":
    shuffle(sys.argv[1], settings=ShuffleSettings(bucket_bytes=256), cluster=Cluster(workers=2))
