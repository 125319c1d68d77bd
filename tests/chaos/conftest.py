"""Parts of the chaos tests, and the number of faults that they inject.

With ``CHAOS_PART=2/8`` only the tests of one of eight parts run, which take about equally long. Several
processes may run them, each with its own drivers and S3 server.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.drivers import Driver, drivers
from tests.chaos.small_site import SmallSite
from tests.chaos.weights import seconds
from tests.helpers.parts import part_name, select_part

_PART = "CHAOS_PART"
_FAULTS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FAULTS] = Counter[str]()


@pytest.hookimpl(trylast=True)  # after the tests without the mark were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    select_part(_PART, config, items, seconds)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the faults of a process of pytest-xdist to the reporting process."""
    faults = session.config.stash[_FAULTS]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = dict(faults)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the faults of a process of pytest-xdist; a crashed process has sent none."""
    sent: dict[str, int] = getattr(node, "workeroutput", {}).get("faults", {})
    node.config.stash[_FAULTS].update(sent)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    faults = config.stash[_FAULTS]
    if faults:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
        part = f"part {name}: " if (name := part_name(_PART)) else ""
        terminalreporter.write_line(f"{part}{faults.total()} faults injected: {kinds}")


@pytest.fixture(scope="session")
def faults(pytestconfig: pytest.Config) -> Counter[str]:
    """The faults injected so far, by kind."""
    return pytestconfig.stash[_FAULTS]


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Driver]]:
    """Two driver processes, for all tests; a test that fails leaves them paused or dead."""
    with drivers(tmp_path_factory.mktemp("drivers")) as both:
        yield both


@pytest.fixture
def first(both: tuple[Driver, Driver]) -> Iterator[Driver]:
    yield from _idle(both[0])


@pytest.fixture
def second(both: tuple[Driver, Driver]) -> Iterator[Driver]:
    yield from _idle(both[1])


def _idle(driver: Driver) -> Iterator[Driver]:
    yield driver
    if driver.is_busy:  # a failed test has left it paused
        driver.kill()


@pytest.fixture
def small(tmp_path, tiny_tokenizer) -> SmallSite:
    site = SmallSite(tmp_path, tiny_tokenizer)
    site.clear()
    return site
