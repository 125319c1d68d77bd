"""A report, a verification and a vacuum fetch each log entry of a lake once."""

import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import etl
from etl.delta.table import Table
from etl.recipe.recipe import Recipe
from tests.helpers.paths import at, copy
from tests.helpers.s3_proxy import Proxy, faulty

COMMANDS: dict[str, Callable[[str], object]] = {
    "report": etl.report,
    "verify": etl.verify,
    "verify --quick": lambda lake: etl.verify(lake, quick=True),
    "vacuum": etl.vacuum,
    "vacuum --yes": lambda lake: etl.vacuum(lake, delete=True),
    "history": lambda lake: etl.history(f"{lake}/documents"),
}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, s3: str) -> Iterator[Proxy]:
    with faulty(os.environ["AWS_ENDPOINT_URL"], lambda _: None) as proxy:
        yield proxy


@pytest.fixture
def remote(made: Recipe, s3: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake whose tables have entries before and after a checkpoint, behind the proxy."""
    lake = copy(made.lake, at(f"{s3}/lake"))
    for name in ("documents", "tokens"):
        table = Table.open(f"{lake}/{name}")
        table.commit([], transactions={"a": 1}).checkpoint().commit([], transactions={"a": 2})
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    return str(lake)


@pytest.mark.slow
def test_each_log_entry_is_fetched_once(remote: str, proxy: Proxy) -> None:
    for name, command in COMMANDS.items():
        proxy.requests.clear()
        command(remote)
        gets = Counter(
            request.path for request in proxy.gets(".json") if "_delta_log" in request.path
        )
        assert gets, name
        assert set(gets.values()) == {1}, (name, gets)
