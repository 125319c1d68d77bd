"""User-visible text is plain English: docstrings, messages, help texts, README and docs."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["etl", "cli", "schemas", "pipelines"]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("k8s/*.md")])
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]  # which repeats docstrings

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

VAGUE = re.compile(
    r"(?:^|(?<=[.!?] ))(?:They\b|(?:These|Those)\b(?! (?:(?:two|three|four|other|few) )?\w+s\b))"
    r"|\bthose of\b|\bones? that\b|\bthat of\b[^.]*\bthat of\b"
)
"""Pronouns whose noun a reader must look for: a sentence names its subject, a comparison both sides."""

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


def explanations(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each paragraph of the docstrings and comments in a Python file."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = EXAMPLE.sub("", str(node.value.value))
            yield from ((node.lineno, paragraph) for paragraph in re.split(r"\n\s*\n", text))
    block, last = [""], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            if line != last + 1:  # consecutive lines of comments are one text
                yield last, " ".join(block)
                block = []
            block.append(token.string.lstrip("#: "))
            last = line if not token.line[:column].strip() else 0
    yield last, " ".join(block)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a Markdown page, without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for match in re.finditer(r"(?:.+\n)+", text):
        yield text.count("\n", 0, match.start()) + 1, match[0]


def avoided_in(text: str) -> list[str]:
    """Return the avoided phrases of a text; line breaks and indentation do not hide them."""
    return [match[0] for match in PATTERN.finditer(" ".join(text.split()))]


def vague_in(text: str) -> list[str]:
    """Return the pronouns of a text whose noun a reader must look for."""
    return [match[0] for match in VAGUE.finditer(" ".join(text.split()))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_avoids_phrases_that_make_a_reader_stop(folder: str) -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in strings(path)
        for phrase in avoided_in(text)
    ]
    assert hits == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_explanations_name_what_they_are_about(folder: str) -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in explanations(path)
        for phrase in vague_in(text)
    ]
    assert hits == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_pages_name_what_they_are_about(page: Path) -> None:
    hits = [f"{line}: {phrase}" for line, text in prose(page) for phrase in vague_in(text)]
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


def test_every_vague_pronoun_is_found_and_a_named_subject_is_not() -> None:
    text = """They are sorted. Those in the log are read. These are two. These files are those of
    a table, or the ones that it had. The order is that of bytes, and that of points. One that is new."""
    assert vague_in(text) == [
        "They",
        "Those",
        "These",
        "those of",
        "ones that",
        "that of bytes, and that of",
    ]
    assert vague_in("These two files are read. They are sorted: that of a run, or one.") == ["They"]
    assert vague_in("These files differ in size. The order is that of the log.") == []
