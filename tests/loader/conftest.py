"""A small lake, shared by the tests that only read it."""

import pytest

from tests.helpers.token_tables import SMALL, make_lake


@pytest.fixture(scope="session")
def lake(new_place):
    return make_lake(new_place("small"), SMALL)
