"""A client that cannot connect is closed at once, not by the garbage collector."""

import gc

import pytest
from distributed import Client

from etl.compute.scheduler_client import SchedulerClient


def test_a_client_that_cannot_connect_is_closed() -> None:
    with pytest.raises(TypeError) as caught:  # no certificates; the error keeps the client alive
        SchedulerClient("tls://127.0.0.1:1", timeout="1s")
    clients = [each for each in gc.get_objects() if isinstance(each, SchedulerClient)]
    assert [client.status for client in clients] == ["closed"], caught


def test_a_client_of_dask_would_be_left_to_the_garbage_collector() -> None:
    """If this fails, then Dask closes its clients, and ours is superfluous."""
    with pytest.raises(TypeError) as caught:
        Client("tls://127.0.0.1:1", timeout="1s")
    clients = [each for each in gc.get_objects() if isinstance(each, Client)]
    left = [client for client in clients if client.status == "connecting"]
    assert left, caught
    for client in left:
        client.close()
