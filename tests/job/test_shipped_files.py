"""User code and the files that stages name reach workers that cannot see the driver's disk."""

import os
import pickle
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client

from etl.compute.cluster import Cluster
from etl.compute.listener import Progress
from etl.delta.table import Table
from etl.errors import ClusterError, MismatchError, RecipeError
from etl.job.run import run
from etl.job.shipped_files import OnWorker, ship_files
from etl.job.tasks import ReadSplit
from etl.lake.commit_info import find_record
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.lake_rows import rows
from tests.helpers.listeners import Calls
from tests.helpers.remote_workers import RemoteCluster, remote_cluster

PACKAGE = {
    "__init__.py": "",
    "judge.py": (
        "from pathlib import Path\n"
        "from web_rules import settings\n"
        "import neighbour\n"
        "WORDS = (Path(__file__).parent / 'lists' / 'words.txt').read_text().split()\n"
        "def is_clean(document):\n"
        "    import late_neighbour\n"
        "    assert settings.READY and neighbour.READY and late_neighbour.READY\n"
        "    return not any(word in document['text'].split() for word in WORDS)\n"
    ),
    "settings.py": "READY = True\n",
    "lists/words.txt": "river\nstone\n",
}
MODULE = (
    "from pathlib import Path\n"
    "def size(document):\n"
    "    names = Path(__file__).with_name('names.txt').read_text().split()\n"
    "    return len(names)\n"
)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """The folder of a researcher, which no worker sees: code, lists, a tokenizer."""
    folder = tmp_path_factory.mktemp("mine")
    for name, text in PACKAGE.items():
        path = folder / "web_rules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "neighbour.py").write_text("READY = True\n")
    (folder / "late_neighbour.py").write_text("READY = True\n")
    (folder / "flat.py").write_text(MODULE)
    (folder / "names.txt").write_text("a b c\n")
    (folder / "blocked.txt").write_text("x.example\n")
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "a.txt").write_text(prose(3) + "\n")
    (folder / "evaluation" / "b.txt").write_text(prose(4) + "\n")
    shutil.copy(tiny_tokenizer, folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="module")
def workers(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteCluster]:
    """A scheduler and two workers of one machine."""
    with remote_cluster(tmp_path_factory.mktemp("cluster"), mine) as cluster:
        for _ in range(2):
            cluster.add_worker("machine")
        cluster.wait_for(2)
        yield cluster


def make_recipe(mine: Path, folder: Path, *stages: Any, **settings: Any) -> Recipe:
    source = folder / "in"
    for name, first in (("a", 0), ("b", 20)):
        numbers = range(first, first + 20)
        texts = [{"body": prose(n, words=20), "link": f"https://x.example/{n}"} for n in numbers]
        write_jsonl(source / f"{name}.jsonl", texts)
    return Recipe(
        name="shipped",
        source={"path": str(source), "columns": {"text": "body", "url": "link"}},
        lake=str(folder / "lake"),
        stages=list(stages),
        **settings,
    )


def all_stages(mine: Path) -> list[Any]:
    return [
        {"url": {"substrings": [str(mine / "blocked.txt")], "hosts": str(mine / "blocked.txt")}},
        {
            "decontaminate": {
                "sets": {"held_out": str(mine / "evaluation")},
                "ngram": 5,
                "min_words": 5,
            }
        },
        {"python": {"call": "web_rules.judge:is_clean", "per": "document", "folder": str(mine)}},
        {"python": {"call": "flat:size", "per": "document", "folder": str(mine), "min_score": 3}},
        {"tokenize": str(mine / "tokenizer.json")},
    ]


def test_a_remote_run_gives_the_result_of_a_local_one(
    workers: RemoteCluster, client: Client, mine: Path, tmp_path: Path
) -> None:
    stages = all_stages(mine)
    stages[0]["url"].pop("hosts")
    stages[0]["url"]["substrings"] = [str(mine / "none.txt")]
    (mine / "none.txt").write_text("# none\n")
    there = make_recipe(mine, tmp_path / "there", *stages)
    here = make_recipe(mine, tmp_path / "here", *stages)
    report = run(there, cluster=Cluster(workers.address))
    assert report.ok, report.quarantined
    local = run(here, cluster=client)
    assert local.ok, local.quarantined
    assert report.kept == local.kept > 0
    assert {rule.split(".")[0] for rule in report.rejected} == {"python", "decontaminate"}
    assert report.rejected == local.rejected
    columns = ("row", "reason", "python_size")
    remote_rows, local_rows = (
        sorted(str([row[name] for name in columns]) for row in rows(recipe.lake, "documents"))
        for recipe in (there, here)
    )
    assert remote_rows == local_rows
    assert not (tmp_path / "here" / "lake" / "files").exists(), "nothing is sent on this machine"
    assert not (Path(str(there.lake)) / "tokenlake-files").exists()
    copies = list((workers.folder / "machine").rglob("tokenizer.json"))
    assert len(copies) == 1, "two workers of a machine share a copy"
    assert there.fingerprint() == here.fingerprint()
    record = find_record(Table.open(there.table_url("documents")))
    assert record is not None
    (python, *_) = [s for s in record.canonical["stages"] if s["kind"] == "python"]
    assert python["sha256"] == there.stages[2].identity()["sha256"]


@pytest.mark.slow
def test_a_worker_that_joins_late_gets_the_files_before_its_first_task(
    workers: RemoteCluster, mine: Path, tmp_path: Path
) -> None:
    """The first workers are replaced during the run by one of another machine."""
    recipe = make_recipe(mine, tmp_path, *all_stages(mine)[2:])
    replaced: list[Progress] = []

    def replace_workers(progress: Progress) -> None:
        if not replaced:
            replaced.append(progress)
            workers.stop_workers()
            workers.add_worker("late")

    small = recipe.model_copy(
        update={"source": recipe.source.model_copy(update={"split_bytes": 1024})}
    )
    report = run(small, cluster=Cluster(workers.address), listener=Calls(progress=replace_workers))
    assert report.ok, report.quarantined
    assert report.rows == 40
    assert replaced
    assert list((workers.folder / "late").rglob("judge.py"))


def test_a_library_that_a_worker_lacks_is_reported_before_the_run(
    workers: RemoteCluster, tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function imports it, which runs only later."""
    library = tmp_path / "site-packages" / "only_here" / "__init__.py"
    library.parent.mkdir(parents=True)
    library.write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    code = "def f(document):\n    import only_here\n    return True\n"
    (mine / "needs_library.py").write_text(code)
    call = {"call": "needs_library:f", "per": "document", "folder": str(mine)}
    recipe = make_recipe(mine, tmp_path, {"python": call})
    with pytest.raises(ClusterError, match="imports 'only_here', which is not inst") as caught:
        run(recipe, cluster=Cluster(workers.address))
    assert "the worker tcp://" in caught.value.what
    assert caught.value.where == str(mine / "needs_library.py")
    assert "pip install only_here" in str(caught.value.hint)
    assert not (tmp_path / "lake" / "documents").exists(), "the run has not started"


def with_filter(folder: Path, name: str) -> tuple[Path, Recipe]:
    """Return the file of a function that keeps all documents, and a recipe with it."""
    code = folder / "mine" / f"{name}.py"
    code.parent.mkdir()
    code.write_text("def f(document):\n    return True\n")
    call = {"call": f"{name}:f", "per": "document", "folder": str(code.parent)}
    return code, make_recipe(code.parent, folder, {"python": call})


def test_code_that_changes_during_a_run_does_not_change_its_result(
    client: Client, tmp_path: Path
) -> None:
    code, recipe = with_filter(tmp_path, "changing")
    small = recipe.source.model_copy(update={"split_bytes": 256})
    recipe = recipe.model_copy(update={"source": small})
    before = recipe.canonical()

    def change(_progress: Progress) -> None:
        code.write_text("def f(document):\n    return False\n")

    report = run(recipe, cluster=client, listener=Calls(progress=change))
    assert report.ok
    assert (report.rows, report.kept) == (40, 40)
    record = find_record(Table.open(recipe.table_url("documents")))
    assert record is not None
    assert record.canonical == before != recipe.canonical()
    with pytest.raises(MismatchError):
        run(recipe, cluster=client)


def test_code_that_changes_before_it_is_copied_stops_the_run(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, recipe = with_filter(tmp_path, "early")

    def change(_client: Client) -> None:
        code.write_text("def f(document):\n    return False\n")

    with pytest.raises(RecipeError, match="has changed since the run started"):
        run(recipe, cluster=client, listener=Calls(connected=change))
    assert not (tmp_path / "lake" / "documents").exists()
    assert run(recipe, cluster=client).rejected == {"python.f": 40}


def test_a_task_carries_digests_and_not_the_files(client: Client, tmp_path: Path) -> None:
    code = tmp_path / "mine" / "with_model.py"
    code.parent.mkdir()
    code.write_text("def f(document):\n    return True\n")
    (code.parent / "model.bin").write_bytes(b"x" * (1 << 20))
    call = {"call": "with_model:f", "folder": str(code.parent), "data": "model.bin"}
    recipe = make_recipe(tmp_path / "mine", tmp_path, {"python": call})
    shipped = ship_files(recipe, client)
    assert [file.name for file in shipped.sets[0].files.files] == ["model.bin", "with_model.py"]
    assert len(pickle.dumps(OnWorker(ReadSplit(recipe), shipped))) < 8192


def test_errors_name_the_file_of_the_user(client: Client, tmp_path: Path) -> None:
    listed = tmp_path / "mine" / "hosts.txt"
    listed.parent.mkdir()
    listed.write_text("".join(f"{i}.example\n" for i in range(70_000)) + "not a host\n")
    recipe = make_recipe(tmp_path / "mine", tmp_path, {"url": {"hosts": str(listed)}})
    with pytest.raises(RecipeError) as caught:  # the driver checks the first entries only
        run(recipe, cluster=client)
    assert caught.value.where == f"file://{listed}:70001"


@pytest.mark.slow
def test_a_local_cluster_leaves_no_copies(tmp_path: Path, mine: Path) -> None:
    recipe = make_recipe(mine, tmp_path, *all_stages(mine))
    with (
        dask.config.set({"temporary-directory": str(tmp_path / "scratch")}),
        Cluster(workers=2).connect() as client,
    ):
        assert run(recipe, cluster=client).ok
        assert list((tmp_path / "scratch").rglob("tokenizer.json"))
    copies = tmp_path / "scratch" / "dask-scratch-space" / "tokenlake-files"
    assert [path.name for path in copies.iterdir()] == [".lock"]


@pytest.mark.slow
def test_a_worker_that_cannot_run_the_code_stops_the_run_and_quarantines_nothing(
    tmp_path: Path,
) -> None:
    """The only worker is replaced by a worker that lacks a library."""
    mark, code = tmp_path / "mark", tmp_path / "mine" / "needs_mark.py"
    code.parent.mkdir()
    code.write_text(
        "import os, time\n"
        f"if os.path.exists({str(mark)!r}):\n    import not_there\n"
        "def f(document):\n    time.sleep(0.05)\n    return True\n"
    )
    call = {"call": "needs_mark:f", "per": "document", "folder": str(code.parent)}
    recipe = make_recipe(tmp_path / "mine", tmp_path, {"python": call})
    small = recipe.source.model_copy(update={"split_bytes": 256})
    recipe = recipe.model_copy(update={"source": small})
    with Cluster(workers=1).connect() as client:

        def replace_worker(_progress: Progress) -> None:
            if not mark.exists():
                mark.write_text("")
                for pid in client.run(os.getpid).values():
                    os.kill(pid, signal.SIGKILL)

        with pytest.raises(ClusterError, match="cannot run the recipe.*'not_there'"):
            run(recipe, cluster=client, listener=Calls(progress=replace_worker))
        assert not (tmp_path / "lake" / "quarantine").exists()
        mark.unlink()
        assert run(recipe, cluster=client).ok
    assert len(list(rows(recipe.lake, "documents"))) == 40
