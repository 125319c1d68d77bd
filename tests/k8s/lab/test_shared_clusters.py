"""Several runs use one cluster, and drivers that are terminated leave it to the next one."""

import signal
from pathlib import Path

import pytest

from etl.recipe.recipe import Recipe
from tests.helpers.killed_runs import Outcome, outcome
from tests.k8s.lab.job import DRIVER, Site
from tests.k8s.lab.outside import etl, run, wait_for_splits

pytestmark = pytest.mark.usefixtures("slow")


@pytest.mark.parametrize("creator_is_last", [False, True])
def test_two_runs_share_a_cluster(
    folder: Path, unchanged: None, expected: Outcome, creator_is_last: bool
) -> None:
    lakes = [f"s3://tokenlake/shared-{creator_is_last}-{number}" for number in range(2)]
    with run(lakes[0]) as creator:
        wait_for_splits(creator)
        if creator_is_last:
            creator.send_signal(signal.SIGSTOP)
        with run(lakes[1]) as other:
            _, error = other.communicate(timeout=900)
        creator.send_signal(signal.SIGCONT)
        assert (other.returncode, "in use by" in error) == (0, True), error
        _, own_error = creator.communicate(timeout=900)
    assert creator.returncode == 0, own_error
    first, last = (error, own_error) if creator_is_last else (own_error, error)
    assert "cluster    tokenlake stays, in use by" in first
    assert "cluster    tokenlake deleted" in last
    recipe = folder / "recipe.yaml"
    assert outcome(Recipe.load(recipe, settings=[f"lake={lakes[0]}"])) == expected


def test_the_cluster_of_a_killed_run_is_named_and_deleted(
    folder: Path, unchanged: None, expected: Outcome
) -> None:
    lake = "s3://tokenlake/killed-outside"
    with run(lake) as process:
        wait_for_splits(process)
    assert "abandoned   the cluster tokenlake" in etl("cluster", "status", "cluster.yaml").stdout
    with run(lake) as process:
        _, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
    assert "tokenlake was abandoned by" in error
    assert "cluster    tokenlake deleted" in error
    assert outcome(Recipe.load(folder / "recipe.yaml", settings=[f"lake={lake}"])) == expected


def test_a_driver_that_is_evicted_leaves_the_cluster_to_the_next(
    site: Site, folder: Path, expected: Outcome
) -> None:
    lake = "s3://tokenlake/evicted"
    result = etl("submit", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    assert result.returncode == 0, result.stderr
    try:
        site.wait_for_splits(1)
        (cluster,) = site.lab.items("daskclusters")
        (pod,) = site.lab.names("pods", DRIVER)
        eviction = f'{{"kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": {{"name": "{pod}"}}}}'
        path = f"/api/v1/namespaces/tokenlake/pods/{pod}/eviction"
        site.lab.kubectl("create", "--raw", path, "--filename=-", stdin=eviction)
        site.lab.kubectl("wait", "--for=delete", f"pod/{pod}", "--timeout=120s")
        (same,) = site.lab.items("daskclusters")
        assert same["metadata"]["uid"] == cluster["metadata"]["uid"]
        site.wait_for_end()
        assert not site.lab.names("daskclusters")
    finally:
        site.lab.kubectl("delete", "job", "tokenlake-driver")
    assert outcome(Recipe.load(folder / "recipe.yaml", settings=[f"lake={lake}"])) == expected
