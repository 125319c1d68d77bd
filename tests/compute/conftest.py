"""Tests of this folder use a cluster of processes."""

import pytest
from distributed import Client


@pytest.fixture(scope="session")
def client(process_client: Client) -> Client:
    return process_client
