"""A run with its input and its lake on a real S3 server."""

from pathlib import Path

import pytest
from upath import UPath

from etl.compute.cluster import Cluster
from etl.job.plan import make_plan
from etl.job.run import run
from etl.loader import TokenDataset
from tests.helpers.lake_rows import names, rows
from tests.helpers.paths import at, copy
from tests.helpers.recipes import MakeRecipe


@pytest.mark.slow
def test_a_run_from_s3_to_s3_equals_a_local_run(
    s3: str, corpus: UPath, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    copy(corpus, at(f"{s3}/raw"))
    local, remote = make_recipe(tmp_path / "lake"), make_recipe(f"{s3}/lake")
    source = remote.source.model_copy(update={"path": f"{s3}/raw"})
    remote = remote.model_copy(update={"source": source})
    with Cluster(workers=2).connect() as client:  # the workers inherit the environment of this test
        assert run(remote, cluster=client).ok
        assert run(local, cluster=client).ok
    for name in remote.steps:
        assert names(rows(remote.lake, name)) == names(rows(local.lake, name))
    assert not make_plan(remote).has_work()
    samples = [TokenDataset(str(r.lake), seq_len=64, seed=1) for r in (remote, local)]
    first, second = (next(iter(dataset.batches(4)))["input_ids"].tolist() for dataset in samples)
    assert len(first) == len(second) == 4
