"""A store that never answers is reported while it is waited for, and the wait has a limit."""

from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from etl import storage
from etl.delta.delta_rs import open_external
from etl.delta.table import Table
from etl.errors import StorageError, TableError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.storage import store_time_limit
from tests.helpers.cli import start
from tests.helpers.listeners import Recorder
from tests.helpers.s3_proxy import always, faulty
from tests.helpers.s3_server import new_environment
from tests.helpers.silent_server import silent_server

URL = "s3://bucket/lake"


@pytest.fixture(
    params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["accepts", "never accepts"]
)
def endpoint(request, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The endpoint of a silent server, which the environment names, with a limit of a second."""
    with silent_server(accepts=request.param) as endpoint:
        new_environment(endpoint, monkeypatch)
        monkeypatch.setenv("TOKENLAKE_STORE_TIMEOUT", "1")
        monkeypatch.setattr(store_time_limit, "_FIRST_REPORT_SECONDS", 0.2)
        monkeypatch.setattr(store_time_limit, "_REPORT_SECONDS", 0.0)
        yield endpoint


def _open() -> None:
    with storage.open_input(f"{URL}/a"):
        pass


def _write() -> None:
    with storage.open_output(f"{URL}/a") as file:
        file.write(b"1")


def _write_atomically() -> None:
    with storage.open_atomic_output(f"{URL}/a") as file:
        file.write(b"1")


OPERATIONS: dict[str, Callable[[], object]] = {
    "read": lambda: storage.read_bytes(f"{URL}/a"),
    "open": _open,
    "write": _write,
    "write atomically": _write_atomically,
    "replace": lambda: storage.write_bytes(f"{URL}/a", b"1"),
    "create": lambda: storage.create_if_absent(f"{URL}/a", b"1"),
    "remove": lambda: storage.remove(f"{URL}/a"),
    "list": lambda: storage.find_files(URL),
    "list a glob": lambda: storage.find_files(f"{URL}/*.json"),
    "list a folder": lambda: storage.file_sizes(URL),
    "stat": lambda: storage.file_size(f"{URL}/a"),
    "probe": lambda: storage.check_conditional_writes(URL),
    "create a table": lambda: Table.exists(URL),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_names_the_endpoint_and_the_variable(
    endpoint: str, operation: Callable[[], object]
) -> None:
    reports: list[tuple[str, float]] = []
    with (
        store_time_limit.reporting_waits(lambda *report: reports.append(report)),
        pytest.raises(
            StorageError, match="did not answer within .* TOKENLAKE_STORE_TIMEOUT"
        ) as error,
    ):
        operation()
    assert endpoint in str(error.value)
    assert reports[:2] == [(endpoint, 0.2), (endpoint, 0.4)]


def test_a_run_in_python_says_what_it_waits_for(endpoint: str, tmp_path: Path) -> None:
    listener = Recorder()
    recipe = Recipe(
        name="a", source={"path": "s3://bucket/raw"}, lake=str(tmp_path / "lake"), stages=[]
    )
    with pytest.raises(StorageError, match="did not answer"):
        run(recipe, listener=listener)
    waits = [line for line in listener.lines if line.startswith(f"waiting for {endpoint}: no ans")]
    assert waits


def test_delta_rs_has_the_same_limit(endpoint: str) -> None:
    with pytest.raises(TableError, match="cannot be opened"):
        open_external(URL)


@pytest.mark.slow
def test_a_read_that_stalls_has_a_limit(
    s3: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{s3}/file"
    storage.write_bytes(uri, bytes(100))
    with faulty(s3_endpoint, lambda _: None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("TOKENLAKE_STORE_TIMEOUT", "1")
        with storage.open_input(uri) as file:
            assert file.size() == 100
            proxy.schedule = always("stall")
            with pytest.raises(TimeoutError, match=proxy.endpoint):
                file.read(10)


def test_a_large_file_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(
        store_time_limit, "with_time_limit", lambda url, operation, limit: limits.append(limit)
    )
    memory = fsspec.filesystem("memory")
    store_time_limit.call(memory, "pipe_file", "memory://a", b"", num_bytes=64 << 20)
    store_time_limit.call(memory, "find", "memory://a", timeouts=10)
    assert limits == [60 + 64, 600]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "ten"])
def test_the_limit_must_be_a_positive_number(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TOKENLAKE_STORE_TIMEOUT", value)
    with pytest.raises(StorageError, match=f"positive number of seconds, not '{value}'"):
        storage.store_timeout()
    monkeypatch.setenv("TOKENLAKE_STORE_TIMEOUT", "")
    assert storage.store_timeout() == 60


@pytest.mark.slow
def test_the_commands_say_for_whom_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: a\nsource: {{path: s3://bucket/raw}}\nlake: {tmp_path}/lake\nstages: []"
    )
    with silent_server(accepts=True) as endpoint:
        new_environment(endpoint, monkeypatch)
        monkeypatch.setenv("TOKENLAKE_STORE_TIMEOUT", "7")
        commands = (("history", f"{URL}/tokens"), ("plan", recipe), ("run", recipe))
        for process in [start(*words) for words in commands]:
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 1
            assert output == ""
            assert f"waiting for {endpoint}: no answer for 5s\n" in errors
            assert f"{endpoint} did not answer within 7 s" in errors
