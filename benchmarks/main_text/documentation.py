"""Real documentation in Debian packages: many generators and languages, labelled by the element of its text.

    python -m main_text.documentation FOLDER

in ``benchmarks`` downloads the packages of ``selectors.yaml`` with apt-get and unpacks them, 130 MB.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq

from main_text.pages import Page
from main_text.selected import rules, select

SMALLEST, LARGEST = 4_000, 300_000  # bytes of HTML


def fetch(folder: Path) -> None:
    """Download and unpack the packages that the folder lacks."""
    for package in {rule["package"] for rule in rules()["documentation"]}:
        if not (folder / package).exists():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", package], cwd=folder, check=True)  # noqa: S607
            [archive] = folder.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, folder / package], check=True)  # noqa: S607
            archive.unlink()


def documentation(folder: Path) -> Iterator[Page]:
    """Read pages of the unpacked packages, the same ones each time; a package is a group."""
    for rule in rules()["documentation"]:
        share = folder / rule["package"] / "usr" / "share"
        files = {file for each in _alternatives(rule["files"]) for file in share.glob(each)}
        taken = 0
        for file in sorted(files, key=_order):
            page = _read(file, rule) if file.is_file() and not file.is_symlink() else None
            if page and taken < rule["n"]:
                taken += 1
                yield page


def _order(file: Path) -> tuple[bytes, str]:
    # Pages in several languages have the same name, and the order of a set is another in each process.
    return sha256(file.name.encode()).digest(), f"{file}"


def mdn(folder: Path, count: int = 100) -> Iterator[Page]:
    """Read pages of MDN, which have no site around them: all but the list of links is main text."""
    table = pq.read_table(folder / "web" / "mdn-html-00000.parquet", columns=["id", "lang", "text"])
    rows = [row for row in table.to_pylist() if row["text"] and len(row["text"]) > SMALLEST]
    for row in rows[:: max(1, len(rows) // count)]:
        html = row["text"].encode()
        text = select(html, ["body"], ["#Quick_Links", "#Quick_links", ".Quick_links", ".toc"])
        yield Page("mdn", "documentation", row["lang"], "mdn", html, text=text, key=row["id"])


def _alternatives(pattern: str) -> list[str]:
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    return [found[1] + each + found[3] for each in found[2].split(",")] if found else [pattern]


def _read(file: Path, rule: dict[str, object]) -> Page | None:
    raw = file.read_bytes()
    if not SMALLEST < len(raw) < LARGEST:
        return None
    html = raw.decode("utf-8", "replace").encode()
    text = select(html, rule["content"], rule.get("clean", ()))  # type: ignore[arg-type]
    language = str(rule.get("language", "en"))
    found = re.search(language, str(file)) if "(" in language else None
    if len(text) < 500:
        return None
    return Page(
        "documentation", "documentation", found[1] if found else language, str(rule["package"]), html,
        text=text, key=f"{rule['package']}/{file.name}",
    )  # fmt: skip


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
