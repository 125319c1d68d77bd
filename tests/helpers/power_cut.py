"""A file system in an image file, whose power is cut: only what has reached the image remains."""

import filecmp
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BYTES = 96 << 20
# Data and metadata reach the disk in any order and late, unless a program syncs them.
_OPTIONS = "loop,data=writeback,noauto_da_alloc,commit=300"


@dataclass(frozen=True)
class Disk:
    """An ext4 file system in an image, mounted on a folder."""

    image: Path
    folder: Path

    def sync_metadata(self) -> None:
        """Write the journal to the disk, with the names of all files but not their content."""
        with (self.folder / "unrelated").open("wb") as file:
            os.fsync(file.fileno())

    def cut_power(self) -> None:
        """Lose everything that is not in the image, and mount it again, which replays its journal.

        No process may write to the folder any more.
        """
        copy = self.image.with_name("copy")
        again = self.image.with_name("again")
        shutil.copyfile(self.image, copy)
        while True:  # until the kernel has not written to the image while it was copied
            shutil.copyfile(self.image, again)
            if filecmp.cmp(copy, again, shallow=False):
                break
            again.replace(copy)
        _command("umount", self.folder)
        copy.replace(self.image)
        _command("mount", "-o", _OPTIONS, self.image, self.folder)


@contextmanager
def mounted_disk(folder: Path) -> Iterator[Disk]:
    """Create a file system and mount it for the duration of the context."""
    disk = Disk(folder / "image", folder / "disk")
    disk.folder.mkdir()
    with disk.image.open("wb") as file:
        file.truncate(_BYTES)
    _command("mkfs.ext4", "-q", disk.image)
    _command("mount", "-o", _OPTIONS, disk.image, disk.folder)
    try:
        yield disk
    finally:
        _command("umount", "--lazy", disk.folder)


@cache
def why_impossible() -> str | None:
    """Return why this machine cannot mount images; None if it can."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)}: not installed"
    if os.geteuid() != 0:
        return "only root can mount an image"
    if not Path("/dev/loop-control").exists():
        return "no loop devices"
    return None


def _command(*words: object) -> None:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
