"""What Dask's scheduler shows of real runs: names of tasks, and the metrics of alarms and dashboard."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import Client, Scheduler
from upath import UPath

import etl
from etl import storage
from etl.compute import frame_shuffles, run_metrics
from etl.compute.listener import Progress, RunTotals
from etl.compute.scheduler_metrics import METRICS, RunMetrics
from etl.dedup import file_groups, key_merger, minhash, similarity
from etl.errors import ClusterError
from tests.helpers.listeners import Recorder
from tests.helpers.near_duplicates import planted, words, write
from tests.helpers.ports import free_ports, wait_for_port
from tests.helpers.recipes import MakeRecipe

PARSER = pytest.importorskip("prometheus_client.parser", reason="it is in the extra k8s")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/operations.md").read_text("utf-8")
ALARMS = ROOT / "k8s/monitoring/alarms.yaml"
DASHBOARD = json.loads((ROOT / "k8s/monitoring/dashboard.json").read_text("utf-8"))

ONLY_WITH_TLS = "tokenlake_certificates_expire_timestamp_seconds"

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""The values of metrics, by the name of a sample and its labels."""


@dataclass
class Runs:
    """Two runs of a lake and a shuffle, at both sizes of deduplication, and runs of other stages."""

    lake: str
    reports: list[etl.RunReport]
    totals: list[RunTotals]  # that the listener of the last run got
    metrics: Samples
    tasks: set[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Iterator[Runs]:
    """Run on a cluster of processes, first in one partition and then in many, with all kinds of tasks."""
    folder = tmp_path_factory.mktemp("metrics")
    source, lake = folder / "source", folder / "lake"
    with (
        pytest.MonkeyPatch.context() as patch,
        etl.Cluster(workers=2, dashboard="127.0.0.1:0").connect() as client,
    ):
        patch.setattr(key_merger, "RUNS_PER_LEVEL", 1)
        patch.setattr(file_groups, "FILES_PER_DUPLICATES_FILE", 2)
        for module in (similarity, minhash):
            patch.setattr(module, "FILES_PER_BUCKET", 2)
        totals: list[RunTotals] = []
        reports = []

        class Totals(etl.Listener):
            def committed(self, totals_now: RunTotals) -> None:
                totals.append(totals_now)

        for number, rows in enumerate((10**6, 60)):
            patch.setattr(frame_shuffles, "ROWS_PER_PARTITION", rows)
            add_files(source, number)
            totals.clear()
            recipe = a_recipe(source, lake, tiny_tokenizer)
            reports.append(etl.run(recipe, cluster=client, listener=Totals()))
        for name, stage in (
            ("similar", {"dedup_minhash": {"verify": "estimate"}}),
            ("passages", {"dedup_substrings": {"min_bytes": 40}}),
        ):
            etl.run(a_recipe(source, folder / name, tiny_tokenizer, stage), cluster=client)
        metrics = read_metrics(client)
        etl.shuffle(str(lake), cluster=client)
        yield Runs(
            storage.normalize(lake), reports, totals, metrics, client.run_on_scheduler(task_names)
        )


def a_recipe(source: Path, lake: Path, tokenizer: Path, *dedup: Any) -> etl.Recipe:
    columns = {"text": "body", "id": "doc_id"}
    return etl.Recipe(
        name="near",
        source={"path": str(source / "*.*"), "columns": columns, "split_bytes": 8192},
        lake=str(lake),
        stages=[
            {"length": {"max_words": 121}},
            *(dedup or ("dedup_exact", "dedup_minhash", "dedup_paragraphs")),
            {"tokenize": str(tokenizer)},
        ],
    )


def add_files(source: Path, number: int) -> None:
    """Add documents of which some are similar, a file that is cut by bytes, and one that is damaged."""
    documents = [{**each, "body": f"{each['body']} {'w' * number}"} for each in planted(6)]
    documents.append({"doc_id": "new", "body": " ".join(words(100 + number)), "link": None})
    write(UPath(source), documents, files=3, first=100 * number)
    lines = [{"doc_id": f"line {n}", "body": f"{number} {n} " * 60} for n in range(50)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (source / f"{number}.jsonl").write_text(text)
    if number:
        (source / "000.parquet").rename(source / "moved.parquet")
        (source / "damaged.parquet").write_bytes(b"PAR1 no footer")


def task_names(dask_scheduler: Scheduler | None = None) -> set[str]:
    return {*dask_scheduler.task_prefixes}


def read_metrics(client: Client) -> Samples:
    """Return what the scheduler and a worker export."""
    worker, known = next(iter(client.scheduler_info(n_workers=-1)["workers"].items()))
    host = worker.partition("://")[2].rpartition(":")[0]
    home = client.dashboard_link.removesuffix("/status")
    samples: Samples = {}
    for url in (home, f"http://{host}:{known['services']['dashboard']}"):
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
            for family in PARSER.text_string_to_metric_families(response.read().decode()):
                for sample in family.samples:
                    labels = tuple(sorted(sample.labels.items()))
                    samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def of_run(runs: Runs, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric of the run by its other labels, in the order of their names."""
    found = runs.metrics[f"tokenlake_{name}"].items()
    own = {("kind", "run"), ("lake", runs.lake)}
    return {
        tuple(value for name, value in labels if name not in ("kind", "lake")): each
        for labels, each in found
        if own <= {*labels}
    }


def table(first: str) -> list[list[str]]:
    """Return the rows of the page's table whose head begins with some text."""
    lines = PAGE[PAGE.index(f"\n| {first} |") + 1 :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_the_page_explains_every_name_of_a_task(runs: Runs) -> None:
    documented = [name for row in table("task") for name in re.findall("`([^`]+)`", row[0])]
    assert len(documented) == len({*documented})
    seen = {name.removesuffix("-fused") for name in runs.tasks}
    assert seen <= {*documented}
    of_dask = {"repartitiontofewer"}
    product = "".join(file.read_text("utf-8") for file in (ROOT / "etl").rglob("*.py"))
    unseen = {*documented} - seen  # fused tasks have the name of the first one
    assert [name for name in unseen if f'.{name.rpartition(".")[2]}"' not in product] == []
    assert max(map(len, seen - of_dask)) <= 15, "the dashboard cuts longer names"


@pytest.mark.slow
def test_the_metrics_of_a_run_are_those_of_its_report(runs: Runs) -> None:
    report, totals = runs.reports[-1], runs.totals[-1]
    assert report.num_quarantined == 1
    assert report.duplicates
    assert report.tokens
    assert report.rejected
    documents = {("", "kept"): report.kept}
    documents |= {(reason, "rejected"): count for reason, count in report.rejected.items()}
    assert of_run(runs, "documents_total") == documents
    single = {
        "duplicates_total": report.duplicates,
        "tokens_total": report.tokens,
        "text_bytes_total": report.text_bytes,
        "quarantined_total": report.num_quarantined,
        "running": 0,
    }
    assert {name: of_run(runs, name) for name in single} == {n: {(): v} for n, v in single.items()}
    seconds = {(cost.name,): cost.seconds for cost in report.costs if cost.seconds}
    exported = {name: v for name, v in of_run(runs, "stage_seconds_total").items() if v}
    assert exported == pytest.approx(seconds)
    assert report.used.stored_bytes == sum(of_run(runs, "stored_bytes_total").values())
    assert totals.stored_bytes == {
        name: v for (name,), v in of_run(runs, "stored_bytes_total").items()
    }
    assert of_run(runs, "commits_total").keys() == {
        (name,) for name in ("documents", "texts", "duplicates", "tokens")
    }
    splits = of_run(runs, "splits")
    assert splits["failed", "documents"] == 1
    assert {n for (state, _), n in splits.items() if state == "left"} == {0}
    assert {*of_run(runs, "remaining_seconds").values()} == {0}
    times = [
        *of_run(runs, "started_timestamp_seconds").values(),
        *of_run(runs, "last_commit_timestamp_seconds").values(),
        *of_run(runs, "updated_timestamp_seconds").values(),
    ]
    assert times == sorted(times)


@pytest.mark.slow
def test_the_page_lists_the_metrics_that_a_run_exports(runs: Runs) -> None:
    exported = {name for name in runs.metrics if name.startswith("tokenlake_")}
    total = {"counter": "_total", "gauge": ""}
    declared = {f"tokenlake_{name}{total[metric.type]}" for name, metric in METRICS.items()}
    declared.add("tokenlake_disk_free_bytes")
    assert declared - exported == {ONLY_WITH_TLS}
    assert exported < declared
    listed = [n for row in table("metric `tokenlake_...`") for n in re.findall("`(.+?)`", row[0])]
    assert sorted(f"tokenlake_{name}" for name in listed) == sorted(declared)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALARMS.read_text("utf-8"))["groups"]
    return group["rules"]


def expressions() -> list[str]:
    """Return the expressions of the alarms and of the dashboard, with values for its variables."""
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    shown = [text.replace("$__rate_interval", "5m").replace("$lake", ".*") for text in shown]
    return [rule["expr"] for rule in rules()] + shown


@pytest.mark.slow
def test_alarms_and_dashboard_use_metrics_that_a_run_exports(runs: Runs) -> None:
    names = {name for text in expressions() for name in re.findall(r"(?:tokenlake|dask)_\w+", text)}
    assert len(names) > 15
    assert names - runs.metrics.keys() == {ONLY_WITH_TLS}
    variables = [each["query"] for each in DASHBOARD["templating"]["list"]]
    assert "label_values(tokenlake_running, lake)" in variables


def test_the_page_lists_the_alarms_as_they_are() -> None:
    listed = [row[:3] for row in table("alarm")]
    assert listed == [
        [
            rule["alert"],
            f"`{rule['expr']}`" + (f" for {rule['for']}" if "for" in rule else ""),
            rule["annotations"]["summary"],
        ]
        for rule in rules()
    ]


def promtool(*arguments: str | Path, folder: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on the PATH: it is in Debian's package prometheus")
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alarms_fire_when_they_should() -> None:
    promtool("check", "rules", ALARMS, folder=ROOT)
    promtool("test", "rules", "alarms_test.yaml", folder=ROOT / "tests/k8s")


def test_the_expressions_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    recorded = [{"record": f"a{n}", "expr": text} for n, text in enumerate(expressions())]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": recorded}]}))
    promtool("check", "rules", file, folder=tmp_path)


@contextmanager
def scheduler_without(module: str, folder: Path) -> Iterator[str]:
    """Start a scheduler whose installation lacks a module, and a worker; yield its address."""
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    hide = f"import sys; sys.modules[{module!r}] = None; from distributed.cli import dask_scheduler as d; "
    scheduler = [sys.executable, "-c", f"{hide} d.main()", "--port", str(port)]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    arguments = (
        [*scheduler, "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"],
        [*worker, "--no-dashboard", "--local-directory", str(folder)],
    )
    with (folder / "cluster.log").open("wb") as log:
        processes = [subprocess.Popen(each, cwd=ROOT, stdout=log, stderr=log) for each in arguments]
    try:
        wait_for_port(port)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


@pytest.mark.slow
def test_a_scheduler_that_cannot_export_metrics_is_noted_once_and_the_run_goes_on(
    make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    with scheduler_without("prometheus_client", tmp_path) as address:
        listener = Recorder()
        recipe = make_recipe(tmp_path / "lake")
        assert etl.run(recipe, cluster=address, listener=listener).ok
    (note,) = (line for line in listener.lines if line.startswith("metrics "))
    assert "prometheus_client" in note
    assert "\n" not in note


@pytest.mark.slow
def test_a_scheduler_without_the_package_says_so(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    with (
        scheduler_without("etl", tmp_path) as address,
        pytest.raises(ClusterError, match="the scheduler cannot read the tasks"),
    ):
        etl.run(make_recipe(tmp_path / "lake"), cluster=address)


def test_the_values_of_a_later_run_stay_and_old_lakes_are_forgotten() -> None:
    exported = RunMetrics()
    early, late = run_metrics._RunValues(), run_metrics._RunValues()
    late.committed(RunTotals(tokens=7))
    for values in (early, late, early):
        exported.update(("s3://a", "run"), values.now(is_running=True))
    assert {f.name: f.samples[0].value for f in exported.collect()}["tokenlake_tokens"] == 7
    for number in range(150):
        exported.update((f"s3://{number}", "run"), early.now(is_running=True))
    (running,) = (family for family in exported.collect() if family.name == "tokenlake_running")
    lakes = [sample.labels["lake"] for sample in running.samples]
    assert lakes == [f"s3://{number}" for number in range(50, 150)]


def test_many_reasons_become_one() -> None:
    values = run_metrics._RunValues()
    values.committed(RunTotals(kept=1, rejected={f"python.{n}": n for n in range(1000)}))
    values.progress(Progress("documents", 3, 10, failed=1))
    now = values.now(is_running=True)
    assert len(now["documents"]) == 102
    assert sum(now["documents"].values()) == 1 + sum(range(1000))
    assert now["documents"]["rejected", "other"] == sum(range(900))
    assert now["splits"] == {
        ("documents", "done"): 2,
        ("documents", "failed"): 1,
        ("documents", "left"): 7,
    }
