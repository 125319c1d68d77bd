"""The formats: each has one reader module, from which everything else follows."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from etl.sources import Format, Source
from etl.sources.formats import FORMATS, FormatReader, detect_format
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split
from etl.sources.split import COMPRESSIONS
from tests.fuzz import targets
from tests.sources.added_format import reader

ROOT = Path(__file__).parent.parent.parent
ADDED: FormatReader = reader  # mypy compares the module with the protocol


def test_each_format_of_a_recipe_has_a_reader() -> None:
    assert tuple(FORMATS) == get_args(Format)


def test_no_extension_belongs_to_two_formats() -> None:
    extensions = [name for module in FORMATS.values() for name in module.EXTENSIONS]
    assert len(extensions) == len({*extensions})
    for extension in extensions:
        assert extension == extension.lower()
        assert extension.startswith(".")
        assert not extension.endswith(tuple(COMPRESSIONS))


@pytest.mark.parametrize("name", FORMATS)
def test_the_extension_determines_the_format(name: Format) -> None:
    module = FORMATS[name]
    for extension in module.EXTENSIONS:
        assert detect_format(f"s3://crawl/a{extension.upper()}") == name
        for suffix in COMPRESSIONS:
            expected = name if module.COMPRESSIBLE else None
            assert detect_format(f"s3://crawl/a{extension}{suffix}") == expected


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].EXTENSIONS])
def test_the_pieces_of_a_file_have_its_rows(tmp_path: Path, name: Format) -> None:
    """The rows, and their numbers, are as in the file in one piece; each piece can be counted."""
    for index, content in enumerate(targets.seeds(name)):
        path = tmp_path / f"{index}{FORMATS[name].EXTENSIONS[0]}"
        path.write_bytes(content)
        rows = []
        for split_bytes in (1 << 30, 200):
            source = Source(path=str(path), split_bytes=split_bytes)
            pieces = list(list_splits(source))
            counts = [count_records(piece) if len(pieces) > 1 else None for piece in pieces]
            tables = [
                t for split in number_splits(pieces, counts) for t in read_split(split, source)
            ]
            rows.append([row for table in tables for row in table.to_pylist()])
            if len(pieces) > 1:
                assert sum(filter(None, counts)) == rows[-1][-1]["row"] + 1
        assert rows[0] == rows[1]


def test_an_unknown_format_is_refused_with_the_nearest_one() -> None:
    expected = r"unknown format 'parket': did you mean 'parquet'\? known names: parquet, jsonl, csv"
    with pytest.raises(ValidationError, match=expected):
        Source.model_validate({"path": "a", "format": "parket"})


def test_the_page_of_the_formats_is_current() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "generate.py"))["formats_page"]()
    assert (ROOT / "docs" / "reference" / "formats.md").read_text("utf-8") == page, (
        "run `make docs`"
    )


def test_an_added_format_is_found_everywhere(tmp_path: Path) -> None:
    """A reader module, a line in FORMATS and a name in Format are all that a format needs."""
    ignored = shutil.ignore_patterns("__pycache__", "sample")
    shutil.copytree(ROOT / "etl", tmp_path / "etl", ignore=ignored)
    for folder in ("fuzz", "helpers", "sources"):
        shutil.copytree(ROOT / "tests" / folder, tmp_path / "tests" / folder, ignore=ignored)
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "generate.py", tmp_path / "docs")
    package = tmp_path / "etl" / "sources"
    shutil.copy(reader.__file__, package / "formats" / "lines.py")
    _insert(package / "split.py", 'Format = Literal["parquet", ', '"lines", ')
    formats = package / "formats" / "__init__.py"
    _insert(formats, "from etl.sources.formats import arrow_ipc, ", "lines, ")
    _insert(formats, "FORMATS: Final[Mapping[Format, FormatReader]] = {\n", '"lines": lines,')
    result = subprocess.run(
        [sys.executable, "-m", "tests.sources.added_format.checks"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def _insert(file: Path, after: str, text: str) -> None:
    content = file.read_text("utf-8")
    assert content.count(after) == 1
    file.write_text(content.replace(after, after + text), "utf-8")
