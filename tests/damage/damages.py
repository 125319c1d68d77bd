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
    return _replace(
        content, rng, rb'(?<=["/\w])(?<!\\)[a-z](?=\w*[-"./ ])', b"abcdefghijkmopqsvwxyz"
    )


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
    is_binary = kind.endswith((" data", " checkpoint", " vectors"))
    if damage in _TEXT_ONLY:
        return not is_binary
    if damage == "copied as next":
        return kind.endswith((" entry", " checkpoint"))
    if damage == "other table":
        return kind.endswith((" data", " entry", "checkpoint", "vacuum record"))
    if damage == "older":
        return kind.endswith(("_last_checkpoint", "vacuum record"))
    return True


def inflict(damage: str, target: Target, rng: random.Random) -> bool:
    """Damage a file; return False if there is nothing to do it with, or nothing changed."""
    file = target.file
    content = file.read_bytes()
    if damage in _REPLACEMENTS and damage not in target.replacements:
        return False
    if damage == "deleted":
        file.unlink()
    elif damage == "swapped":
        return _swap(target, rng)
    elif damage == "copied":
        file.with_name(f"{file.stem} (copy){file.suffix}").write_bytes(content)
    elif damage == "copied as next":
        _copy_as_next(file)
    else:
        if damage in _REPLACEMENTS:
            changed = target.replacements[damage].read_bytes()
        else:
            changed = _CHANGES[damage](content, rng) if content else content
        file.write_bytes(changed)
        return changed != content
    return True


def _swap(target: Target, rng: random.Random) -> bool:
    if not target.same_kind:
        return False
    content, other = target.file.read_bytes(), target.lake / rng.choice(target.same_kind)
    target.file.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return target.file.read_bytes() != content


def _copy_as_next(file: Path) -> None:
    """Copy a log entry as the next version, or a checkpoint as that of the newest version."""
    _, _, suffix = file.name.partition(".")
    entries = [path for path in file.parent.glob("*.json") if path.stem.isdigit()]
    version = max(int(path.stem) for path in entries) + (suffix == "json")
    file.with_name(f"{version:020}.{suffix}").write_bytes(file.read_bytes())


Loss = Callable[[Path], bool]
"""A function that deletes files of a lake and returns whether there were any."""


def _delete(pattern: str, *, last: int | None = None) -> Loss:
    """Return the loss of the files of a pattern in the lake, or of the last of them."""

    def delete(lake: Path) -> bool:
        paths = sorted(path for path in lake.glob(pattern) if path.is_file())
        for path in paths if last is None else paths[-last:]:
            path.unlink()
        return bool(paths)

    return delete


def _delete_all(*losses: Loss) -> Loss:
    return lambda lake: sum(loss(lake) for loss in losses) > 0


def _delete_folder(name: str) -> Loss:
    def delete(lake: Path) -> bool:
        exists = (lake / name).exists()
        shutil.rmtree(lake / name, ignore_errors=True)
        return exists

    return delete


_ENTRIES = "_delta_log/[0-9]*.json"
LOSSES: Final[dict[str, Loss]] = {
    **{
        f"newest {count} entries of {table} lost": _delete(f"{table}/{_ENTRIES}", last=count)
        for table in SPECS
        for count in (1, 2, 4)
    },
    **{
        f"newest {count} entries of all tables lost": _delete_all(
            *(_delete(f"{table}/{_ENTRIES}", last=count) for table in SPECS)
        )
        for count in (1, 2, 4)
    },
    **{f"entries of {table} lost": _delete(f"{table}/{_ENTRIES}") for table in SPECS},
    **{f"checkpoints of {table} lost": _delete(f"{table}/_delta_log/*check*") for table in SPECS},
    **{f"log of {table} lost": _delete_folder(f"{table}/_delta_log") for table in SPECS},
    **{f"data of {table} lost": _delete(f"{table}/**/*-0.parquet") for table in SPECS},
    "vectors of tokens_shuffled lost": _delete("tokens_shuffled/_dv/*.bin"),
    **{f"table {table} lost": _delete_folder(table) for table in SPECS},
    "all tables but documents lost": _delete_all(
        *(_delete_folder(table) for table in SPECS if table != "documents")
    ),
    "all logs lost": _delete_all(*(_delete_folder(f"{table}/_delta_log") for table in SPECS)),
    "all data lost": _delete("**/*-0.parquet"),
}
"""Losses of several files at once, by description."""
