"""Kinds of damage to a file, or to a part of a lake."""

import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from etl.lake.table_specs import SPECS

_BLOCK = 4096  # of a file system


@dataclass(frozen=True)
class Target:
    """A file to damage, and files that another program could write in its place."""

    lake: Path
    path: str  # relative to the lake
    same_kind: Sequence[str]  # other files of the lake, relative to it
    replacements: Mapping[str, Path] = field(default_factory=dict)  # by kind of damage

    @property
    def file(self) -> Path:
        return self.lake / self.path


def _cut_in_half(content: bytes, _: random.Random) -> bytes:
    return content[: len(content) // 2]


def _cut_at_line_end(content: bytes, rng: random.Random) -> bytes:
    ends = [match.end() for match in re.finditer(rb"\n", content[:-1])]
    return content[: rng.choice(ends)] if ends else content


def _flip_bit(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _change_digit(content: bytes, rng: random.Random) -> bytes:
    """Change a digit so that the file is still valid JSON."""
    return _replace(content, rng, rb"(?<=[1-9])\d|[1-9](?=\d)", b"123456789")


def _change_letter(content: bytes, rng: random.Random) -> bytes:
    """Change a letter of a string so that the file is still valid JSON."""
    return _replace(content, rng, rb'(?<=["/\w])(?<!\\)[a-z](?=\w*[-"./ ])', b"abcdefghijkmopqsvwxyz")


def _replace(content: bytes, rng: random.Random, pattern: bytes, by: bytes) -> bytes:
    places = [match.start() for match in re.finditer(pattern, content)]
    if not places:
        return content
    place = rng.choice(places)
    new = rng.choice([byte for byte in by if byte != content[place]])
    return content[:place] + bytes([new]) + content[place + 1 :]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    """Overwrite a block, or a quarter of a small file, with zeros."""
    size = min(_BLOCK, max(1, len(content) // 4))
    start = rng.randrange(len(content) - size + 1)
    return content[:start] + bytes(size) + content[start + size :]


def _random_bytes(content: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(content))


_CHANGES: Final[dict[str, Callable[[bytes, random.Random], bytes]]] = {
    "empty": lambda _, __: b"",
    "cut in half": _cut_in_half,
    "cut at line": _cut_at_line_end,
    "bit 1": _flip_bit,
    "bit 2": _flip_bit,
    "bit 3": _flip_bit,
    "digit": _change_digit,
    "letter": _change_letter,
    "zeros": _zeros,
    "random": _random_bytes,
}
_REPLACEMENTS = ("other lake", "other table", "older")
DAMAGES: Final = ("deleted", *_CHANGES, *_REPLACEMENTS, "swapped", "copied", "copied as next")
"""All kinds of damage to a file: the columns of the matrix."""

_TEXT_ONLY = ("cut at line", "digit", "letter")
UNSEEN_BY_QUICK: Final = ("bit 1", "bit 2", "bit 3", "zeros")
"""Damage to values of a data file, which ``etl verify --quick`` does not read."""


def applies(damage: str, kind: str) -> bool:
    """Return whether a kind of damage exists for a kind of file."""
    is_parquet = kind.endswith((" data", " checkpoint"))
    if damage in _TEXT_ONLY:
        return not is_parquet
    if damage == "copied as next":
        return kind.endswith((" entry", " checkpoint"))
    if damage == "other table":
        return kind.endswith((" data", " entry", "checkpoint", "_vacuumed.json"))
    if damage == "older":
        return kind.endswith(("_last_checkpoint", "_vacuumed.json"))
    return True


def inflict(damage: str, target: Target, rng: random.Random) -> bool:
    """Damage a file; return False if this lake has no file to do it with, or nothing changed."""
    file = target.file
    content = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    elif damage in _CHANGES:
        changed = _CHANGES[damage](content, rng) if content else content
        file.write_bytes(changed)
        return changed != content
    elif damage in _REPLACEMENTS:
        if damage not in target.replacements:
            return False
        file.write_bytes(target.replacements[damage].read_bytes())
        return file.read_bytes() != content
    elif damage == "swapped":
        if not target.same_kind:
            return False
        other = target.lake / rng.choice(target.same_kind)
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return file.read_bytes() != content
    elif damage == "copied":
        file.with_name(f"{file.stem} (copy){file.suffix}").write_bytes(content)
    else:
        number, dot, rest = file.name.partition(".")
        newest = max(int(path.stem) for path in file.parent.glob("[0-9]*.json") if path.stem.isdigit())
        next_ = newest + 1 if rest == "json" else newest
        file.with_name(f"{next_:020}{dot}{rest}").write_bytes(content)
        return f"{next_:020}" != number
    return True


def _lose_entries(lake: Path, table: str, count: int) -> None:
    for path in sorted((lake / table / "_delta_log").glob("[0-9]*.json"))[-count:]:
        path.unlink()


def _lose_checkpoints(lake: Path, table: str) -> None:
    for path in (lake / table / "_delta_log").glob("*checkpoint*"):
        path.unlink()


def _losses() -> dict[str, Callable[[Path], None]]:
    losses: dict[str, Callable[[Path], None]] = {}
    for table in SPECS:
        losses[f"{table}: newest entry lost"] = lambda lake, t=table: _lose_entries(lake, t, 1)
        losses[f"{table}: newest 2 entries lost"] = lambda lake, t=table: _lose_entries(lake, t, 2)
        losses[f"{table}: newest 4 entries lost"] = lambda lake, t=table: _lose_entries(lake, t, 4)
        losses[f"{table}: checkpoints lost"] = lambda lake, t=table: _lose_checkpoints(lake, t)
        losses[f"{table}: log lost"] = lambda lake, t=table: shutil.rmtree(lake / t / "_delta_log")
        losses[f"{table}: table lost"] = lambda lake, t=table: shutil.rmtree(lake / t)
        losses[f"{table}: data lost"] = _lose_data(table)
    for count in (1, 2, 4):
        losses[f"all tables: newest {count} entries lost"] = _lose_all_entries(count)
    losses["derived tables lost"] = lambda lake: [shutil.rmtree(lake / t) for t in list(SPECS)[1:]]
    return losses


def _lose_data(table: str) -> Callable[[Path], None]:
    def lose(lake: Path) -> None:
        for path in [p for p in (lake / table).rglob("*.parquet") if p.parent.name != "_delta_log"]:
            path.unlink()

    return lose


def _lose_all_entries(count: int) -> Callable[[Path], None]:
    def lose(lake: Path) -> None:
        for table in SPECS:
            _lose_entries(lake, table, count)

    return lose


LOSSES: Final = _losses()
"""Losses of several files at once, by description."""
