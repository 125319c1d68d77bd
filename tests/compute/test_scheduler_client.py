"""A client that cannot connect is closed at once, not by the garbage collector."""

import pytest
from distributed import Client

from etl.compute.scheduler_client import SchedulerClient


def clients_of(error: BaseException) -> list[Client]:
    """Return the clients whose constructors raised an error, which keeps them alive."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    held = [frame.f_locals.get("self") for frame in frames]
    return [each for each in held if isinstance(each, Client)]


def test_a_client_that_cannot_connect_is_closed() -> None:
    with pytest.raises(TypeError) as caught:  # it has no certificates
        SchedulerClient("tls://127.0.0.1:1", timeout="1s")
    clients = clients_of(caught.value)
    assert clients
    assert {client.status for client in clients} == {"closed"}


def test_a_client_of_dask_would_be_left_to_the_garbage_collector() -> None:
    """If this fails, then Dask closes its clients, and ours is superfluous."""
    with pytest.raises(TypeError) as caught:
        Client("tls://127.0.0.1:1", timeout="1s")
    clients = clients_of(caught.value)
    assert clients
    assert {client.status for client in clients} == {"connecting"}
    clients[0].close()
