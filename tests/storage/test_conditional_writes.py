"""A commit is never lost on a store without conditional writes: it is refused, or tried again."""

from collections.abc import Iterator

import pytest

from etl import storage
from etl.errors import StorageError, WriteError
from etl.job.run import run
from tests.helpers.recipes import MakeRecipe
from tests.helpers.s3_proxy import Fault, Proxy, Request, always, faulty


@pytest.fixture
def proxy(s3: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the S3 server, which the environment names, and the server without faults."""
    with faulty(s3_endpoint, lambda _: None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def _puts(proxy: Proxy, name: str) -> list[Request]:
    return [r for r in proxy.requests if r.method == "PUT" and r.path.endswith(name)]


def _first(count: int, fault: Fault):
    return lambda r: fault if r.method == "PUT" and r.nth < count else None


def test_a_store_that_ignores_the_condition_is_refused(proxy: Proxy, s3: str) -> None:
    proxy.schedule = always("unconditional")
    for _ in range(2):
        with pytest.raises(
            StorageError, match="ignores If-None-Match(.|\n)*use local disk, Amazon"
        ):
            storage.check_conditional_writes(f"{s3}/lake")
    assert storage.filesystem(s3).find(s3) == []


def test_a_store_with_conditional_writes_is_checked_once(proxy: Proxy, s3: str) -> None:
    for _ in range(3):
        storage.check_conditional_writes(f"{s3}/lake/")
    assert len([r for r in proxy.requests if r.method == "PUT"]) == 2
    assert storage.filesystem(s3).find(s3) == []


def test_a_run_on_a_store_that_ignores_the_condition_writes_nothing(
    proxy: Proxy, s3: str, make_recipe: MakeRecipe, client
) -> None:
    proxy.schedule = always("unconditional")
    with pytest.raises(StorageError, match="ignores If-None-Match"):
        run(make_recipe(f"{s3}/lake"), cluster=client)
    assert storage.filesystem(s3).find(s3) == []


def test_a_conflict_of_requests_is_tried_again(proxy: Proxy, s3: str) -> None:
    proxy.schedule = _first(3, "409")
    assert storage.create_if_absent(f"{s3}/entry", b"1")
    assert [request.fault for request in _puts(proxy, "/entry")] == ["409", "409", "409", None]
    assert not storage.create_if_absent(f"{s3}/entry", b"2")
    assert storage.read_bytes(f"{s3}/entry") == b"1"


@pytest.mark.slow
def test_a_conflict_that_remains_is_an_error(proxy: Proxy, s3: str) -> None:
    proxy.schedule = _first(100, "409")
    with pytest.raises(WriteError, match="cannot be written .*Injected"):
        storage.create_if_absent(f"{s3}/entry", b"1")
    assert len(_puts(proxy, "/entry")) == 6


def test_a_store_without_conditional_writes_is_named(proxy: Proxy, s3: str) -> None:
    proxy.schedule = lambda r: "501" if r.method == "PUT" else None
    for call in (
        lambda: storage.create_if_absent(f"{s3}/entry", b"1"),
        lambda: storage.check_conditional_writes(f"{s3}/lake"),
    ):
        with pytest.raises(
            StorageError, match="not supported by this store(.|\n)*use local"
        ) as info:
            call()
        assert not isinstance(info.value, WriteError)
    assert len(_puts(proxy, "/entry")) == 1


def test_a_lost_response_to_a_creation_is_a_success(proxy: Proxy, s3: str) -> None:
    proxy.schedule = _first(1, "drop")
    assert storage.create_if_absent(f"{s3}/entry", b"1")
    assert storage.read_bytes(f"{s3}/entry") == b"1"
