"""Submitting a recipe, what the driver's pod receives, and how its end is shown."""

import contextlib
import io
import json
import math
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import etl as library
from etl.cli.app import app
from etl.cli.run_lines import JsonLines
from etl.compute.kubernetes import cluster_commands, waiting
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.pod_logs import LogQuery
from etl.compute.listener import Progress
from etl.errors import RecipeError, TokenlakeError
from etl.job.submit import pack
from etl.lake.quarantine import Quarantined
from etl.recipe.recipe import Recipe
from tests.helpers.kubernetes_api import KubernetesApi, kubernetes_api, pod
from tests.helpers.listeners import Recorder
from tests.helpers.manifests import validate

pytest.importorskip("kr8s", reason="it is in the extra k8s")

CLUSTER = """
image: registry.example.com/tokenlake:0.1.0
context: c
workers: 3
"""
RECIPE = """
name: mine
source: {path: "s3://bucket/in/*.jsonl"}
lake: s3://bucket/lake
stages:
  - url: {hosts: hosts.txt}
  - python: mine:keep
  - dedup_exact
"""
QUARANTINED = "complete except for quarantined inputs: it is not run again"
MODULE = """
from pathlib import Path

WORDS = Path(__file__).with_name("words.txt").read_text().split()


def keep(table):
    return [True] * table.num_rows
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "cluster.yaml": CLUSTER,
        "recipe.yaml": RECIPE,
        "mine.py": MODULE,
        "words.txt": "prose",
        "hosts.txt": "spam.example\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.fixture
def api(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.02)
    with kubernetes_api(folder) as (api, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield api


def etl(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def submit(*words: str) -> Any:
    return etl("submit", "recipe.yaml", "--cluster", "k8s:cluster.yaml", *words)


def driver_pod(api: KubernetesApi, number: int, state: dict[str, Any]) -> dict[str, Any]:
    item = pod(f"tokenlake-driver-{number}", "driver", containerStatuses=[{"state": state}])
    item["metadata"]["labels"] = {"job-name": "tokenlake-driver"}
    owner = {"uid": api.item("jobs", "tokenlake-driver")["metadata"]["uid"]}
    item["metadata"]["ownerReferences"] = [owner]
    return item


def sent_files(api: KubernetesApi) -> dict[str, Any]:
    """Return the ConfigMap that the driver mounts."""
    volumes = api.item("jobs", "tokenlake-driver")["spec"]["template"]["spec"]["volumes"]
    (name,) = (each["configMap"]["name"] for each in volumes if each["name"] == "recipe")
    return api.item("configmaps", name)


def end(api: KubernetesApi, code: int, kind: str, reason: str = "") -> None:
    """End the Job as its controller does."""
    api.add("pods", driver_pod(api, 1, {"terminated": {"exitCode": code}}))
    condition = {"type": kind, "status": "True", "reason": reason}
    api.item("jobs", "tokenlake-driver")["status"] = {"conditions": [condition]}


def test_the_driver_receives_the_recipe_with_its_local_files(
    api: KubernetesApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = submit("--workers", "auto", "--log-format", "json")
    assert result.exit_code == 0, result.output
    job, files = api.item("jobs", "tokenlake-driver"), sent_files(api)
    for item in (job, files):
        validate({key: value for key, value in item.items() if key != "metadata"} | _metadata(item))
    pod_spec = job["spec"]["template"]["spec"]
    assert pod_spec["containers"][0]["args"] == [
        *("etl", "run", "/recipe/recipe.yaml", "--lake=s3://bucket/lake"),
        *("--workers=auto", "--log-format=json"),
    ]
    (volume,) = (each for each in pod_spec["volumes"] if each["name"] == "recipe")
    mounted = folder / "mounted"
    for item in volume["configMap"]["items"]:
        path = mounted / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files["data"][item["key"]].replace("/recipe/", f"{mounted}/"), "utf-8")

    for name in ("mine.py", "words.txt", "hosts.txt", "recipe.yaml"):
        (folder / name).unlink()  # the pod has only what was sent
    recipe = Recipe.load(mounted / "recipe.yaml")
    for stage in recipe.stages:
        stage.check()
    assert recipe.stages[0].model_dump()["hosts"][0].endswith("/hosts.txt")
    settings = ClusterFile.load(mounted / "cluster.yaml")
    assert (settings.workers, settings.context) == (3, None), "a pod has an account, no kubeconfig"


def _metadata(item: dict[str, Any]) -> dict[str, Any]:
    added = ("uid", "creationTimestamp")
    return {"metadata": {k: v for k, v in item["metadata"].items() if k not in added}}


def test_a_shipped_recipe_is_run_by_its_name(api: KubernetesApi) -> None:
    result = etl(
        *("submit", "demo", "--cluster", "k8s:cluster.yaml"),
        *("--lake", "s3://bucket/lake", "--set", "seed=1", "--rebuild"),
    )
    assert result.exit_code == 0, result.output
    container = api.item("jobs", "tokenlake-driver")["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == [
        *("etl", "run", "demo", "--set=seed=1", '--set=lake="s3://bucket/lake"'),
        *("--lake=s3://bucket/lake", "--rebuild"),
    ]


def arguments(api: KubernetesApi) -> list[str]:
    (job,) = (item for (kind, *_), item in api.objects.items() if kind == "jobs")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return list(container["args"])[1:]


def test_the_driver_receives_every_option(api: KubernetesApi) -> None:
    given = [
        *("--workers=7", "--time-limit=90.0", "--limit=5", "--rebuild", "--replace-changed"),
        *("--drop-missing", "--apply-change", "--no-python", "--log-format=json"),
    ]
    result = etl(
        *("submit", "demo", "--cluster", "k8s:cluster.yaml", "--lake", "s3://bucket/lake"),
        *("--source", "s3://bucket/in", "--set", "seed=3", "--env", "CORPUS", *given),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == "driver      tokenlake-driver started\n"
    sent = arguments(api)
    assert {*given} <= {*sent}
    command = get_command(app).commands["run"]
    _, *words = sent
    parsed = command.make_context("run", words).params  # raises if an option is not valid
    assert {name for name, value in parsed.items() if not value} == {
        *("sources", "env", "cluster", "tls", "memory_limit", "dashboard", "share", "as_json")
    }
    assert {"seed=3", 'source.path=["s3://bucket/in"]'} <= {*parsed["settings"]}


@pytest.mark.parametrize("recipe", ["recipe.yaml", Path("recipe.yaml"), "demo"])
def test_python_submits_what_it_runs(recipe: str | Path, api: KubernetesApi, folder: Path) -> None:
    listener = Recorder()
    name = library.submit(
        recipe,
        cluster=library.Cluster("k8s:cluster.yaml", workers=2),
        listener=listener,
        settings=["lake=s3://bucket/other", "seed=3"],
        share=0.01,
        rebuild=True,
        time_limit=math.inf,
    )
    assert name == "tokenlake-driver"
    assert listener.lines
    run, sent, *rest = arguments(api)
    assert run == "run"
    assert {"--lake=s3://bucket/other", "--workers=2", "--share=0.01", "--rebuild"} <= {*rest}
    assert "--time-limit=inf" in rest
    if recipe == "demo":
        assert (sent, "--set=seed=3" in rest) == ("demo", True)
    else:
        text = sent_files(api)["data"]["recipe.yaml"]
        assert "seed: 3\n" in text
    get_command(app).commands["run"].make_context("run", [sent, *rest])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"cluster": "tcp://127.0.0.1:1"}, "submitted to Kubernetes only"),
        ({"cluster": library.Cluster(workers=2)}, "submitted to Kubernetes only"),
        ({"cluster": library.Cluster("k8s:cluster.yaml", tls="tls")}, "a driver has no tls"),
        ({"cluster": library.Cluster("k8s:cluster.yaml", dashboard=":0")}, "has no dashboard"),
        ({"cluster": library.Cluster("k8s:cluster.yaml", memory_limit="2GB")}, "no memory_limit"),
        ({"limit": 5, "share": 0.5}, "limit or share, not both"),
        ({"limit": -1}, "limit: input should be greater than 0"),
        ({"time_limit": 0.5}, "too short for any split"),
        ({"settings": ["sead=1"]}, "unknown key 'sead'"),
    ],
)
def test_what_a_driver_cannot_do_is_refused(
    options: dict[str, Any], what: str, api: KubernetesApi
) -> None:
    with pytest.raises(TokenlakeError, match=what):
        library.submit("recipe.yaml", **{"cluster": "k8s:cluster.yaml", **options})
    assert api.names("jobs") == []


def test_the_driver_receives_the_values_of_variables(
    api: KubernetesApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of its pod has other variables."""
    recipe = RECIPE.replace("s3://bucket/in", "s3://${CORPUS}/in")
    (folder / "recipe.yaml").write_text(recipe, "utf-8")
    monkeypatch.setenv("CORPUS", "mine")
    assert "--env CORPUS" in submit().output
    assert submit("--env", "CORPUS").exit_code == 0
    sent = sent_files(api)["data"]["recipe.yaml"]
    assert "s3://mine/in/*.jsonl" in sent

    end(api, 0, "Complete")
    monkeypatch.setenv("TOKENLAKE_TOKENIZER", "s3://mine/tokenizer.json")
    result = etl(
        *("submit", "fineweb", "--cluster", "k8s:cluster.yaml", "--lake", "s3://bucket/lake"),
        *("--env", "CORPUS", "--set", "source.path='s3://${CORPUS}/*.parquet'"),
    )
    assert result.exit_code == 0, result.output
    container = api.item("jobs", "tokenlake-driver")["spec"]["template"]["spec"]["containers"][0]
    settings = [arg.removeprefix("--set=") for arg in container["args"] if arg.startswith("--set=")]
    monkeypatch.delenv("CORPUS")
    monkeypatch.delenv("TOKENLAKE_TOKENIZER")
    run = Recipe.load("fineweb", settings=settings)
    assert run.source.paths == ("s3://mine/*.parquet",)
    assert run.tokenizers["tokens"].tokenizer == "s3://mine/tokenizer.json"


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (["lake=lake"], "the lake is on this machine"),
        (["source.path=in.jsonl"], "the source is on this machine"),
        (["dedup_exact.against=other"], "a path of dedup_exact is on this machine"),
    ],
)
def test_local_data_is_refused(settings: list[str], what: str, folder: Path) -> None:
    with pytest.raises(RecipeError, match=what) as caught:
        pack(Recipe.load("recipe.yaml", settings=settings))
    assert caught.value.hint == "put it into the object store and write its URL"


def test_files_that_do_not_fit_are_refused(api: KubernetesApi, folder: Path) -> None:
    (folder / "hosts.txt").write_text("".join(f"{n:020}.example\n" for n in range(40_000)))
    result = submit()
    assert "error: driver tokenlake-driver in namespace tokenlake: the recipe and its files" in (
        result.stderr
    )
    assert not api.objects


def test_one_driver_runs_at_a_time_and_one_that_has_ended_is_replaced(api: KubernetesApi) -> None:
    assert submit().exit_code == 0
    first = api.item("jobs", "tokenlake-driver")["metadata"]["uid"]
    result = submit()
    assert result.exit_code == 1
    assert "a driver is running" in result.stderr
    end(api, 0, "Complete")
    assert submit("--rebuild").exit_code == 0
    assert api.item("jobs", "tokenlake-driver")["metadata"]["uid"] != first


@pytest.mark.parametrize(
    ("code", "kind", "reason", "shown"),
    [
        (0, "Complete", "", "complete (exit code 0)"),
        (
            3,
            "Failed",
            "PodFailurePolicy",
            f"{QUARANTINED} (exit code 3); condition Failed: PodFailurePolicy",
        ),
        (
            1,
            "Failed",
            "BackoffLimitExceeded",
            "failed (exit code 1); condition Failed: BackoffLimitExceeded",
        ),
    ],
)
def test_the_condition_of_a_driver_is_shown(
    code: int, kind: str, reason: str, shown: str, api: KubernetesApi
) -> None:
    assert "driver" not in etl("cluster", "status", "cluster.yaml").stdout
    submit()
    assert "driver      no pod yet\n" in etl("cluster", "status", "cluster.yaml").stdout
    end(api, code, kind, reason)
    assert f"driver      {shown}\n" in etl("cluster", "status", "cluster.yaml").stdout
    state = json.loads(etl("cluster", "status", "cluster.yaml", "--json").stdout)
    assert state["driver"]["exit_code"] == code


def test_the_log_continues_with_the_next_pod(api: KubernetesApi) -> None:
    assert "no driver was submitted" in etl("logs", "cluster.yaml").stderr
    submit()
    api.add("pods", driver_pod(api, 1, {"terminated": {"exitCode": 1}}))
    api.logs = {"tokenlake-driver-1": "first\nerror\n", "tokenlake-driver-2": "second\n"}
    assert etl("logs", "cluster.yaml").stdout == "first\nerror\n"
    lines = cluster_commands.logs("cluster.yaml", LogQuery(follow=True))
    assert [next(lines), next(lines)] == ["first", "error"]

    second = api.add("pods", driver_pod(api, 2, {"terminated": {"exitCode": 0}}))
    second["metadata"]["creationTimestamp"] = "9999-01-01T00:00:00Z"
    end_of_job = {"conditions": [{"type": "Complete", "status": "True"}]}
    api.item("jobs", "tokenlake-driver")["status"] = end_of_job
    assert list(lines) == ["second"]


def test_the_dashboard_is_forwarded(api: KubernetesApi) -> None:
    result = etl("dashboard", "cluster.yaml")
    assert "the cluster tokenlake is not running" in result.stderr
    api.add("daskclusters", {"metadata": {"name": "tokenlake"}})
    api.add("pods", pod("tokenlake-scheduler-1", "scheduler"))
    with _http_server() as port:
        api.ports[8787] = port
        with cluster_commands.dashboard("cluster.yaml", 0) as url:
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url, timeout=10) as response:
                assert response.read() == b"workers"


@contextlib.contextmanager
def _http_server() -> Iterator[int]:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"workers")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_lines_for_collectors_are_json() -> None:
    stream = io.StringIO()
    with JsonLines(stream) as lines:
        for done in range(3):
            lines.progress(Progress("documents", done, 2, rows=5))
        lines.note("dashboard  http://x")
        lines.warning("interrupted")
        lines.waiting("https://s3", 5.01)
        lines.quarantined([Quarantined("documents", "s3://b/x", "", "damaged", "now")])
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(event["time"].endswith("+00:00") for event in events)
    kinds = ["progress", "progress", "note", "warning", "waiting", "quarantined"]
    assert [event["event"] for event in events] == kinds
    assert [event["done"] for event in events[:2]] == [0, 2], "the first, and the end of a step"
    assert events[-1]["source"] == "s3://b/x"


def test_an_error_is_a_json_line_too(folder: Path) -> None:
    result = etl("run", "missing.yaml", "--log-format", "json")
    assert result.exit_code == 1
    (event,) = [json.loads(line) for line in result.stderr.splitlines()]
    assert (event["event"], event["what"]) == ("error", "not found")
    assert event["where"] == "recipe missing.yaml"


def test_a_wrong_number_of_workers_is_a_usage_error() -> None:
    result = etl("run", "demo", "--workers", "many")
    assert result.exit_code == 2
    assert "'many' is not a number of workers or `auto`" in result.stderr
