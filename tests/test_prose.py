"""User-visible text is plain English: docstrings, messages, help texts, README and docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["etl", "cli", "schemas", "pipelines"]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("k8s/*.md")])

AVOIDED = {
    r"\banew\b": "archaic: again, rebuilt, restarted",
    r"\b(is|are|was|were|be|been) told\b": "errors and facts are reported; a program is not told",
    r"\b(told|tells?) apart\b": "distinguish",
    r"\bstands? (in|at|beside|there|once|twice)\b(?! for)": "text occurs, a value is stored",
    r"(?<!\bthere )\bis no (?!longer|more|less|fewer|larger|smaller|better|worse|other)[a-z]": "is not a",
    r"\bput aside\b": "quarantined",
    r"\b(put|puts|putting) together\b": "files are merged or compacted",
    r"\b(take|takes|taken|took) apart\b": "split",
    r"\btakes? no more\b": "say what is full: the disk, the store",
    r"\balike\b|\blikeness\b": "similar, similarity",
    r"\bof one mind\b": "consistent",
    r"\bat work\b|\bin hand\b": "running, in progress",
    r"\bof late\b": "recent",
    r"\bwhat (is|was|are|were) (there|live)\b": "name it: the stored rows, the current files",
    r"\bof how many\b": "name the total: the world size, the number of files",
    r"\b(give|gives|gave|given) back\b": "return",
    r"(?<!\bin )\bthe way of\b": "lineage, method, path",
    r"\b(nobody|somebody|whoever)\b": "name the process: another run, the second writer",
    r"\bsees to\b|\b(has|have|no) need of\b": "archaic: ensures, needs",
    r"\bof (its|one's) own\b": "its own, a separate one",
    r"\bmends?\b|\bmended\b": "repair, fix",
    r"\bmade whole\b|\bis whole\b": "complete, consistent",
}
"""Phrases that make a reader stop, and what to write instead."""

PATTERN = re.compile("|".join(f"(?:{phrase})" for phrase in AVOIDED), re.IGNORECASE)

EXAMPLE = re.compile(r"^ *>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)

GOOD = """
Return the rows that are kept. There is no scheduler at this address. The file is no longer listed.
A retry is no more expensive than a lookup. What is left to do is listed first. The name stands for the lake.
A stand-in for the model. The stage is not a filter. It was read in one request. Each has its own format.
Compact small files that are similar. Tell the scheduler to stop. The work is done; nothing was lost.
"""


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string in a Python file: docstrings, messages, help texts.

    Doctests are left out: they contain example data.
    """
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, EXAMPLE.sub("", node.value)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a Markdown page, without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for match in re.finditer(r"(?:.+\n)+", text):
        yield text.count("\n", 0, match.start()) + 1, match[0]


def avoided_in(text: str) -> list[str]:
    """Return the avoided phrases of a text; line breaks and indentation do not hide them."""
    return [match[0] for match in PATTERN.finditer(" ".join(text.split()))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_avoids_phrases_that_make_a_reader_stop(folder: str) -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in strings(path)
        for phrase in avoided_in(text)
    ]
    assert hits == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_avoid_phrases_that_make_a_reader_stop(page: Path) -> None:
    hits = [f"{line}: {phrase}" for line, text in prose(page) for phrase in avoided_in(text)]
    assert hits == []


def test_every_phrase_is_found_and_good_prose_is_not() -> None:
    assert avoided_in("The tables are\n    told apart, which is no error.") == [
        "are told",
        "is no e",
    ]
    assert avoided_in(GOOD) == []
