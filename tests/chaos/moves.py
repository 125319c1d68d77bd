"""Input files that move: renamed, copied, linked, touched, rotated, replaced with the same size and time."""

import os
import random
import shutil
from collections.abc import Callable
from itertools import count
from typing import Final

from tests.chaos.small_site import SmallSite
from tests.chaos.texts import Row, Rows, random_rows
from tests.helpers.lake_rows import names, rows


class MovingFiles:
    """The input files of a site, each content with the names that it has had.

    Ids of rows begin with the name of their content, which no other content has.
    """

    def __init__(self, site: SmallSite) -> None:
        self.site = site
        self._numbers = (f"{number:03}" for number in count())
        self._names: dict[str, set[str]] = {}  # of files, by content

    def move(self, rng: random.Random) -> str:
        """Move one of the files in one way, and return how."""
        change = rng.choice(_MOVES)
        name = rng.choice(sorted(self.site.inputs))
        change(self, name, rng)
        return f"{change.__name__} {name}"

    def add(self, _: str, rng: random.Random) -> None:
        """Add a file with new content."""
        self._write(self._new_name(rng.choice(("parquet", "jsonl"))), self._new_rows(rng))

    def rename(self, name: str, _: random.Random) -> None:
        new = self._new_name(name)
        (self.site.raw / name).rename(self.site.raw / new)
        self._remember(new, self.site.inputs.pop(name))

    def copy(self, name: str, rng: random.Random) -> None:
        """Copy a file, with its time or a new one."""
        new = self._new_name(name)
        rng.choice((shutil.copy, shutil.copy2))(self.site.raw / name, self.site.raw / new)
        self._remember(new, self.site.inputs[name])

    def link(self, name: str, _: random.Random) -> None:
        """Add a symbolic link to a copy of a file in another folder."""
        new = self._new_name(name)
        target = self.site.folder / "elsewhere" / new
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(self.site.raw / name, target)
        (self.site.raw / new).symlink_to(target)
        self._remember(new, self.site.inputs[name])

    def touch(self, name: str, _: random.Random) -> None:
        (self.site.raw / name).touch()

    def rewrite(self, name: str, rng: random.Random) -> None:
        """Give a file other content, at another time."""
        self._write(name, self._new_rows(rng))

    def rotate(self, name: str, rng: random.Random) -> None:
        """Rename a file, and give its name to new content."""
        self.rename(name, rng)
        self._write(name, self._new_rows(rng))

    def exchange(self, name: str, rng: random.Random) -> None:
        """Exchange the contents of two files of one format."""
        other = rng.choice([n for n in sorted(self.site.inputs) if n[-5:] == name[-5:]])
        if other == name:
            return
        first, second, free = (self.site.raw / n for n in (name, other, "exchanged"))
        for old, new in ((first, free), (second, first), (free, second)):
            old.rename(new)
        contents = self.site.inputs[other], self.site.inputs[name]
        for new_name, content in zip((name, other), contents, strict=True):
            self._remember(new_name, content)

    def replace(self, name: str, rng: random.Random) -> None:
        """Replace a file by other rows of the same size, and set its old time."""
        file, old = self.site.raw / name, self.site.folder / "old"
        before = file.stat()
        old.unlink(missing_ok=True)
        os.link(file, old)
        content = next(self._numbers)
        texts = [row.text for row in self.site.inputs[name]]
        self._write(name, tuple(Row(f"{content}-{k}", text) for k, text in enumerate(texts)))
        assert file.stat().st_size == before.st_size
        if rng.random() < 0.5:  # in place: the inode remains
            old.write_bytes(file.read_bytes())
            old.replace(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def delete(self, name: str, _: random.Random) -> None:
        if len(self.site.inputs) > 1:
            self.site.delete(name)

    def check(self) -> list[str]:
        """Check that each content is there once, and that all rows of listed files are; return their ids.

        Other content may be there if a name that it had is not listed: rows of missing files stay, perhaps
        not all if a file was deleted while it was read.
        """
        documents = names(rows(str(self.site.lake), "documents"))
        found: dict[str, list[str]] = {}  # the ids of a content, in the order of rows
        sources: dict[str, set[object]] = {}
        for row in documents:
            content = _content(str(row["id"]))
            found.setdefault(content, []).append(str(row["id"]))
            sources.setdefault(content, set()).add(row["source"])
        twice = {content: of for content, of in sources.items() if len(of) > 1}
        assert not twice, "contents with rows of several files"
        listed = {_content(past[0].id): past for past in self.site.inputs.values()}
        assert {content: found.get(content) for content in listed} == {
            content: [row.id for row in past] for content, past in listed.items()
        }
        others = found.keys() - listed
        replaced = {each for each in others if self._names[each] <= self.site.inputs.keys()}
        assert not replaced, "contents that were replaced are still there"
        return [str(row["id"]) for row in documents]

    def _new_name(self, like: str) -> str:
        return f"{next(self._numbers)}.{like.rpartition('.')[2]}"

    def _new_rows(self, rng: random.Random) -> Rows:
        return random_rows(rng, next(self._numbers))

    def _write(self, name: str, content: Rows) -> None:
        self.site.write(name, content)
        self._remember(name, content)

    def _remember(self, name: str, content: Rows) -> None:
        self.site.inputs[name] = content
        self._names.setdefault(_content(content[0].id), set()).add(name)


def _content(row: str) -> str:
    """Return the content of a row by its id."""
    return row.partition("-")[0]


_MOVES: Final[tuple[Callable[[MovingFiles, str, random.Random], None], ...]] = (
    MovingFiles.add,
    MovingFiles.rename,
    MovingFiles.rename,
    MovingFiles.copy,
    MovingFiles.link,
    MovingFiles.touch,
    MovingFiles.rewrite,
    MovingFiles.rotate,
    MovingFiles.exchange,
    MovingFiles.replace,
    MovingFiles.replace,
    MovingFiles.delete,
)
