"""Send folders of the cache to the machines of a job that lack them."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from etl.loader.fetch.file_cache import FileCache, is_sound

_CHUNK = 64 << 20  # bytes in a message


def share_folders(folders: Sequence[Path]) -> None:
    """Send folders of rank 0 to the ranks that do not have them; all ranks call this with the same folders.

    Ranks of one machine write the same files, whose last rename replaces equal content.
    """
    lacking = [not is_sound(folder) for folder in folders]
    answers: list[list[bool]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(answers, lacking)
    for number, folder in enumerate(folders):
        if not any(answer[number] for answer in answers):
            continue
        if dist.get_rank() == 0:
            _send(folder)
        elif lacking[number]:
            messages = _messages()
            FileCache(str(folder.parent)).open(folder.name, partial(_receive, messages))
            deque(messages, 0)  # if another rank of this machine was faster
        else:
            deque(_messages(), 0)


def _send(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.suffix != ".json":
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    dist.broadcast_object_list([(path.name, chunk)])
    dist.broadcast_object_list([None])


def _messages() -> Iterator[tuple[str, bytes]]:
    while True:
        message: list[Any] = [None]
        dist.broadcast_object_list(message)
        if message[0] is None:
            return
        yield message[0]


def _receive(messages: Iterator[tuple[str, bytes]], folder: Path) -> None:
    for name, chunk in messages:
        with (folder / name).open("ab") as file:
            file.write(chunk)
