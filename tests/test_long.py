"""`make long` chooses a part by the commit, repeats what fails, and prints flaky tests."""

import re
import shutil
import sys
from hashlib import sha1
from pathlib import Path

import pytest
import yaml

from tests import long

ROOT = Path(__file__).parent.parent
MAKEFILE = f"""
export PYTHONPATH = {ROOT}
export PYTEST_DISABLE_PLUGIN_AUTOLOAD = 1

toy:
\techo run >> runs
\tTOY_PART=$(PART) {sys.executable} -m pytest -q -c /dev/null --rootdir . $(PYTEST_OPTIONS) .

install:
\techo run >> runs
\ttest $$(wc -l < runs) -gt 1
"""
CONFTEST = """
from tests.helpers.parts import select_part

def pytest_collection_modifyitems(config, items):
    select_part("TOY_PART", config, items)
"""
TESTS = """
from pathlib import Path

import pytest

def times(name):
    with Path(name).open("a") as log:
        log.write("x")
    return len(Path(name).read_text())

def test_good():
    assert times("good") == 1  # it is not repeated

@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_cases(case):
    assert times(case) > {failures}
"""


def toy(folder: Path, *, failures: int, target: str = "toy", part: str = "") -> long.Part:
    """Write a Makefile and tests, of which all but one fail the first ``failures`` times."""
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_toy.py").write_text(TESTS.replace("{failures}", str(failures)))
    return long.Part(target=target, part=part, folder=folder)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def test_every_part_is_a_target_that_takes_parts() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^([\w-]+): .*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    for part in long.PARTS:
        assert "$(PYTEST)" in recipes[part.target]
        assert ("_PART=$(PART)" in recipes[part.target]) == bool(part.part)


def test_all_parts_run_each_night() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    runs = workflow["jobs"]["long"]["strategy"]["matrix"]["run"]
    elsewhere = {"make test-wheel", "make test-pages"}  # ci.yml; needs Debian's chromium
    nightly = {f"make {part}" for part in long.PARTS} - elsewhere
    assert sorted(runs) == sorted([*nightly, "make fuzz FUZZ_SECONDS=240"])


def test_commits_choose_all_parts() -> None:
    commits = [sha1(bytes([number]), usedforsecurity=False).hexdigest() for number in range(250)]
    assert {long.choose(commit, long.PARTS) for commit in commits} == {*long.PARTS}


def test_a_part_that_passes_runs_once(tmp_path: Path) -> None:
    assert long.run_part(toy(tmp_path, failures=0))
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("part", ["", "2/2"])
def test_tests_that_pass_when_repeated_are_printed_as_flaky(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert long.run_part(toy(tmp_path, failures=1, part=part))
    assert runs(tmp_path) == 2
    flaky = re.findall(r"flaky: test_toy.py::test_cases\[(\w)\]", capsys.readouterr().out)
    assert flaky == (["a", "c"] if part else ["a", "b", "c"])


def test_tests_that_fail_twice_fail_the_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not long.run_part(toy(tmp_path, failures=2))
    assert runs(tmp_path) == 2
    assert "flaky" not in capsys.readouterr().out


def test_an_installation_that_fails_is_repeated(tmp_path: Path) -> None:
    assert long.run_part(toy(tmp_path, failures=0, target="install", part="1/2"))
    assert runs(tmp_path) == 2


def test_a_part_without_its_programs_is_skipped_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shutil.which("make")
    assert long.run_part(long.Part(target="toy", needs=("make", "no-such-program")))
    printed = capsys.readouterr().out
    assert printed == "make long: skipped toy: it needs no-such-program, which is not on the PATH\n"
