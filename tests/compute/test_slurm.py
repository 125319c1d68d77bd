"""`--cluster slurm:FILE`: the file, the job script, and runs on a real Slurm where it is installed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from etl.compute.certificates import make_certificates, tls_settings
from etl.compute.cluster import Cluster
from etl.compute.cluster_request import ClusterRequest
from etl.compute.slurm import SlurmFile, _new_cluster
from etl.errors import ClusterError
from etl.job.run import run
from tests.helpers.lake_rows import rows
from tests.helpers.listeners import Recorder
from tests.helpers.recipes import MakeRecipe
from tests.helpers.slurm import jobs, slurm, why_impossible

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "slurm.yaml"
    path.write_text(
        "partition: batch\nworkers: 2\nmemory: 2Gi\nwalltime: 30\n"
        f"folder: {tmp_path / 'jobs'}\nsetup: [export PYTHONPATH={ROOT}]\n"
    )
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partitions: batch", r"yaml:1: .*partitions.*(.|\n)*partition"),
        ("partition: batch\nwalltime: 1h", r"yaml:2: walltime"),
        ("partition: batch\nmemory: 1Mi", r"yaml:2: memory: .*at least 512Mi"),
        ("{}", "partition"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text(text)
    with pytest.raises(ClusterError, match=message):
        SlurmFile.load(path)


def test_the_number_of_jobs_follows_from_the_workers(tmp_path: Path) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text("partition: batch\nworkers_per_job: 8\nmax_workers: 64")
    settings = SlurmFile.load(path)
    assert settings.jobs(ClusterRequest()) == 1
    assert settings.jobs(ClusterRequest(workers=20)) == 3
    assert settings.jobs(ClusterRequest(workers="auto", planned_bytes=10**15)) == 8


def test_the_job_script_asks_for_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_jobqueue", reason="it is in the extra slurm")
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = tmp_path / "slurm.yaml"
    path.write_text(
        "partition: batch\naccount: lm\nworkers_per_job: 4\nmemory: 4Gi\nwalltime: 90\n"
        "directives: [--qos=high]\nsetup: [module load python]\npython: /opt/py/bin/python\n"
    )
    make_certificates(tmp_path / "tls")
    security = tls_settings(tmp_path / "tls")
    with _new_cluster(SlurmFile.load(path), tmp_path / "jobs", security) as cluster:
        lines = cluster.job_script().splitlines()
    directives = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    assert {
        "-p batch",
        "-A lm",
        "-n 1",
        "-t 90",
        "--cpus-per-task=4",
        "--mem=16G",
        "--qos=high",
    } < (directives)
    assert lines.index("module load python") == len(lines) - 2
    worker = lines[-1].split()
    assert worker[:3] == ["/opt/py/bin/python", "-m", "distributed.cli.dask_worker"]
    assert worker[3].startswith("tls://")
    options = dict(pairwise(worker))
    expected = {"--nthreads": "1", "--nworkers": "4", "--memory-limit": "4.00GiB"}
    assert expected.items() <= options.items()
    assert options["--lifetime"] == "5100s"
    assert options["--tls-key"] == str(tmp_path / "tls" / "worker.pem")


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if why := why_impossible():
        pytest.skip(why)
    with slurm(tmp_path_factory.mktemp("slurm")) as file:
        yield file


@pytest.fixture
def queue(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The configuration of a Slurm whose queue is empty, before and after the test."""
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    assert not _unfinished(configuration)
    yield configuration
    end = time.monotonic() + 90
    while _unfinished(configuration) and time.monotonic() < end:
        time.sleep(0.5)
    assert not _unfinished(configuration)


def _unfinished(configuration: Path) -> set[str]:
    return set(jobs(configuration)) - {"COMPLETING"}


@pytest.mark.slow
def test_a_run_on_slurm_gives_the_result_of_a_local_one(
    queue: Path, file: Path, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    listener = Recorder()
    report = run(make_recipe(tmp_path / "lake"), cluster=f"slurm:{file}", listener=listener)
    assert report.ok
    assert "submitting 2 jobs to the partition batch" in listener.lines
    run(make_recipe(tmp_path / "local"), cluster=Cluster(workers=2))
    for table in ("documents", "duplicates", "tokens"):
        assert rows(tmp_path / "lake", table) == rows(tmp_path / "local", table)
    assert not [*(tmp_path / "jobs").glob("tls-*")]


@pytest.mark.slow
def test_a_job_that_is_cancelled_is_replaced(queue: Path, file: Path) -> None:
    with Cluster(f"slurm:{file}").connect() as client:
        client.wait_for_workers(2, timeout=120)
        first = set(client.scheduler_info()["workers"])
        subprocess.run(["scancel", "--name=tokenlake"], check=True)
        end = time.monotonic() + 120
        while len(set(client.scheduler_info()["workers"]) - first) < 2:
            assert time.monotonic() < end
            time.sleep(0.5)


@pytest.mark.slow
def test_the_jobs_of_a_killed_driver_end(queue: Path, file: Path) -> None:
    code = (
        "import time; from etl.compute.cluster import Cluster\n"
        f"with Cluster('slurm:{file}').connect(): print('up', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partition: gpu", "Slurm refuses the job.*invalid partition"),
        ("partition: batch\nmemory: 900Gi", "Slurm refuses the job"),
        ("partition: batch\nwalltime: 90", "Slurm refuses the job.*time ?limit"),
    ],
)
def test_what_slurm_refuses_is_reported_at_once(
    queue: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "slurm.yaml"
    path.write_text(f"{text}\nfolder: {tmp_path / 'jobs'}\nworkers: 1\n")
    with pytest.raises(ClusterError, match=rf"(?i){message}"), Cluster(f"slurm:{path}").connect():
        pass
    assert jobs(queue) == []


@pytest.mark.slow
def test_workers_that_cannot_start_are_an_error_with_the_place_of_the_reason(
    queue: Path, tmp_path: Path
) -> None:
    path = tmp_path / "slurm.yaml"
    folder = tmp_path / "jobs"
    path.write_text(
        f"partition: batch\nfolder: {folder}\nworkers: 1\nwalltime: 30\npython: /nowhere/python\n"
    )
    message = rf"{folder}: all jobs have ended before a worker connected"
    with pytest.raises(ClusterError, match=message), Cluster(f"slurm:{path}").connect():
        pass
