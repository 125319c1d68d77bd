"""One small lake for the tests that only read it."""

import pytest

from tests.loader.tables import SMALL, make_lake


@pytest.fixture(scope="session")
def lake(tmp_path_factory):
    return make_lake(tmp_path_factory.mktemp("small"), SMALL)
