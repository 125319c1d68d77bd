"""A small lake, shared by the tests that only read it."""

import os

import pytest
import torch

from tests.helpers.token_tables import SMALL, make_lake


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Keep what the loader computes once for a machine in a folder of these tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Start no threads of OpenMP, for which ranks that are forked later would wait for ever."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def lake(new_place):
    return make_lake(new_place("small"), SMALL)
