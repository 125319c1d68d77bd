"""The pages of docs/ are correct: their files are written, and their Python and commands are run.

Blocks of the language sh are for other programs, and are not run.
"""

import doctest
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import dask
import pytest

from tests.helpers.code_blocks import Block, blocks, run_commands, run_python, write_file
from tests.helpers.fasttext_models import VARIANTS, write_variant
from tests.helpers.ports import free_ports
from tests.helpers.s3_server import new_environment, seaweedfs, weed

ROOT = Path(__file__).parent.parent
# Dask in this process, not on the workers of another test's client, which have another directory.
IN_PROCESS = {"scheduler": "threads", "dataframe.shuffle.method": "tasks"}
GUIDES = ROOT / "docs" / "guides"
EXTEND = GUIDES / "extend.md"
TRAINERS = GUIDES / "trainers.md"  # tests/loader/test_trainer_recipes.py runs it
GENERATED = set((ROOT / "docs" / "reference").rglob("*.md"))  # its examples are doctests
PAGES = sorted(set((ROOT / "docs").rglob("*.md")) - {EXTEND, TRAINERS} - GENERATED)
SLOW = {
    "annotate",
    "change",
    "change-a-training",
    "dask-cluster",
    "index",
    "look",
    "migrate",
    "mixing",
    "near-duplicates",
    "own-classifier",
    "own-filter",
    "s3",
    "tutorial",
    "which-deduplication",
}
SCHEDULER_PORT = "8786"  # on the page; the test uses a free one


def edit_file(diff: str) -> None:
    """Apply a diff whose first line names the file; its lines follow each other in the file."""
    header, *changes = diff.splitlines()
    path = Path(header.removeprefix("--- "))
    lines, position = path.read_text("utf-8").splitlines(), 0
    for change in changes:
        sign, line = change[:1], change[1:]
        if sign == "+":
            lines.insert(position, line)
            position += 1
            continue
        assert line in lines[position:], f"{path} has no line {line!r}"
        position = lines.index(line, position) + (sign != "-")
        if sign == "-":
            del lines[position]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def copy_checkout(target: Path) -> None:
    """Copy the files that the page on extending edits or adds to; link all others."""
    ignored = shutil.ignore_patterns("__pycache__", "kernels", "chaos", "fuzz")
    for name in ("etl", "cli", "tests"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
    for name in ("etl/kernels", "tests/kernels", "schemas", "pipelines", "pyproject.toml"):
        (target / name).symlink_to(ROOT / name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, as that of a reader; the current one, also for imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def prepare(page: Path, folder: Path, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
    """Provide what a page says that the reader has: an S3 server, a model."""
    if page.stem == "s3":
        program = weed()
        if program is None:
            pytest.skip("the program weed, an S3 server, is not installed")
        (folder / "s3").mkdir()
        new_environment(stack.enter_context(seaweedfs(program, folder / "s3")), patch)
    if page.stem == "own-classifier":
        variant = replace(VARIANTS["softmax"], labels=("__label__hq", "__label__lq"))
        write_variant(folder / "quality.bin", variant)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_every_block_of_a_page_runs(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables: dict[str, object] = {}
    port = str(free_ports(1)[0])
    with ExitStack() as stack:
        prepare(page, folder, stack, monkeypatch)
        for number, block in enumerate(blocks(page)):
            if block.file is not None:
                write_file(block, block.file)
            elif block.language == "console":
                run_commands(block.text.replace(SCHEDULER_PORT, port), ROOT, stack)
            elif block.language == "python":
                variables = run_examples(block, variables, f"{page} block {number}")
            else:
                assert block.language == "sh", f"{block.language!r} is not run: {block.text}"


def run_examples(block: Block, variables: dict[str, object], name: str) -> dict[str, object]:
    """Run the examples of a block, and return the variables after it."""
    test = doctest.DocTestParser().get_doctest(block.text, variables, name, name, 0)
    assert test.examples, block.text
    failures: list[str] = []
    with dask.config.set(IN_PROCESS):
        doctest.DocTestRunner().run(test, out=failures.append, clear_globs=False)
    assert failures == [], "".join(failures)
    return test.globs


@pytest.mark.slow
def test_a_stage_a_format_and_a_command_are_added_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in blocks(EXTEND):
        if block.file is not None:
            assert not Path(block.file).exists()
            write_file(block, block.file)
        elif block.language == "diff":
            edit_file(block.text)
        elif block.language == "console":
            run_commands(block.text, tmp_path)
        else:
            assert block.text.startswith(">>> "), block.text
            Path("example.txt").write_text(block.text, encoding="utf-8")
            run_python(["-m", "doctest", "example.txt"], tmp_path)


def test_there_are_pages() -> None:
    assert "own-filter" in [page.stem for page in PAGES]
