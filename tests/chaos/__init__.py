import pytest

pytest.register_assert_rewrite("tests.chaos.checks", "tests.chaos.oracle")
