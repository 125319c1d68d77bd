"""Files and links beside good input that cannot be listed, by name, and why."""

import os
import socket
from pathlib import Path

WHY = {
    "bad\udcff.jsonl": "the name of this file is not UTF-8",
    "dangling.jsonl": "is a link that leads to no file (No such file or directory)",
    "device.jsonl": "is not a file on a disk, but a view of the system",
    "environment.jsonl": "is not a file on a disk, but a view of the system",
    "loop.jsonl": "is a link that leads to no file (Too many levels of symbolic links)",
    "pipe.jsonl": "is not a regular file",
    "pipe_link.jsonl": "is not a regular file",
    "sub/socket.jsonl": "is not a regular file",
}


def make_odd_files(folder: Path) -> None:
    """Create the files of ``WHY`` in a folder."""
    (folder / "sub").mkdir(exist_ok=True)
    (folder / os.fsdecode(b"bad\xff.jsonl")).write_text('{"text": "a"}')
    links = {
        "dangling": "none",
        "device": "/dev/zero",
        "environment": "/proc/self/environ",
        "loop": "loop.jsonl",
        "pipe_link": "pipe.jsonl",
    }
    for name, target in links.items():
        (folder / f"{name}.jsonl").symlink_to(target)
    os.mkfifo(folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder / "sub")  # the path of a socket is short
        listener.bind("socket.jsonl")
        os.chdir(here)
