"""The blocks of code on a page of the documentation: find them, write their files, run their commands."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "accelerate": ["-m", "accelerate.commands.accelerate_cli"],
    "dask": ["-m", "dask"],
    "etl": ["-c", "from etl.cli import main; main()"],
    "pytest": ["-m", "pytest", "-p", "no:cacheprovider"],
    "python": [],
    "torchrun": ["-m", "torch.distributed.run"],
}


class Block(NamedTuple):
    """A block of code on a page, and the file that it shows, if any."""

    language: str
    file: str | None
    appends: bool
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order.

    The first line names the file (``# filter.py``), as does the title of a language without comments.
    """
    pattern = (
        r'^```(\w*)(?: title="(\S+)")?\n((?:# ([\w/-]+\.(?:py|yaml))(, continued)?\n)?.*?)^```$'
    )
    matches = re.findall(pattern, page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [
        Block(language, title or file or None, bool(continued), text)
        for language, title, text, file, continued in matches
    ]


def stable(text: str) -> list[str]:
    """Return lines without what differs from run to run: times, and the spaces that align them."""
    return [
        re.sub(r"\s*[\d,]+\.\d+", " 0.0", re.sub(r" +", " ", line)) for line in text.splitlines()
    ]


def run_python(arguments: list[str], root: Path) -> str:
    """Run Python with the packages of a checkout, and return what it prints."""
    result = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{arguments}\n{result.stdout}{result.stderr}"
    return result.stdout


def run_commands(block: str, root: Path, background: ExitStack | None = None) -> None:
    """Run the commands of a block; the lines shown below each must be among those it prints.

    A command that ends in & runs until ``background`` is closed. Variables are exported by the test.
    """
    commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    assert commands, block
    for part in commands:
        command, _, shown = part.partition("\n")
        program, *arguments = shlex.split(command)
        if program == "export":
            assert arguments[0].partition("=")[0] in os.environ, command
            continue
        if arguments[-1] == "&":
            assert background is not None
            background.enter_context(in_background([*PROGRAMS[program], *arguments[:-1]]))
            continue
        output = run_python([*PROGRAMS[program], *arguments], root)
        printed = stable(output)
        expected = [line for line in stable(shown) if line.strip() not in ("", "...")]
        assert [line for line in expected if line not in printed] == [], f"{command}\n{output}"


@contextmanager
def in_background(arguments: list[str]) -> Iterator[None]:
    """Run Python with this checkout, and stop it at the end of the context."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("background.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def write_file(block: Block, file: str) -> None:
    if file.endswith(".py"):
        compile(block.text, file, "exec")
    with Path(file).open("a" if block.appends else "w", encoding="utf-8") as output:
        output.write(block.text)
