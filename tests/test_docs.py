"""The pages in docs/ are correct: their files are written, their Python and commands are run."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import dask
import pytest

ROOT = Path(__file__).parent.parent
# Run Dask in this process, not on the workers of a client that another test has opened.
IN_PROCESS = {"scheduler": "threads", "dataframe.shuffle.method": "tasks"}
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each code block of a page, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def stable(text: str) -> list[str]:
    """Return lines without the values that differ between runs: times, and their alignment."""
    return [
        re.sub(r"\s*[\d,]+\.\d+", " 0.0", re.sub(r" +", " ", line)) for line in text.splitlines()
    ]


def shell(block: str) -> None:
    """Run the commands of a block; the output that it shows must be part of what they print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        program, *words = shlex.split(command)
        assert program == "etl", command
        code = "from etl.cli import main; main()"
        result = subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        printed = stable(result.stdout)
        missing = [line for line in stable(shown) if line.strip() not in ("", "...")]
        missing = [line for line in missing if line not in printed]
        assert missing == [], f"{command}\n{result.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sample").symlink_to(ROOT / "pipelines" / "sample")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, (language, block) in enumerate(blocks(page)):
        file = re.match(r"# (\w+\.(?:py|yaml))(, further on)?\n", block)
        if file is not None:
            with Path(file[1]).open("a" if file[2] else "w") as output:
                output.write(block)
        elif language == "console":
            shell(block)
        elif language == "python":
            test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), number)
            assert test.examples, block
            failures: list[str] = []
            with dask.config.set(IN_PROCESS):
                doctest.DocTestRunner().run(test, out=failures.append, clear_globs=False)
            names = test.globs
            assert failures == [], "".join(failures)
        else:
            raise AssertionError(f"no test runs blocks of {language!r}")


def test_there_are_pages() -> None:
    assert "own-filter" in [page.stem for page in PAGES]
