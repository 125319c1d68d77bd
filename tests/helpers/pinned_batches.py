"""Batches of versions of token tables, which must remain the same whatever comes after them."""

import re
import tempfile
from contextlib import suppress
from typing import Any

import pytest

from etl import storage
from etl.delta.table import Table
from etl.errors import LoaderError, StorageError
from etl.loader import Shuffle, TokenDataset, View

TABLES = ("tokens", "tokens_named", "tokens_shuffled")
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"shuffle": Shuffle(lanes=3, block_tokens=64, run_tokens=32)},
    {"view": View(where="url NOT LIKE '%3'", columns=["id", "url"]), "shuffle": False},
)
_Batches = list[dict[str, Any]]


class PinnedBatches:
    """The batches of versions, as they were when each was the newest one."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        self._batches: dict[tuple[str, int, int], _Batches | str] = {}
        self._is_damaged = False

    def pin(self) -> None:
        """Keep the batches of the newest versions."""
        for name in TABLES:
            if (table := Table.find(storage.join(self._lake, name))) is not None:
                for number in range(len(_SETTINGS)):
                    key = name, table.version, number
                    with suppress(StorageError if self._is_damaged else ()):
                        self._batches.setdefault(key, self._read(*key))

    def check(self) -> None:
        """Check that all versions still have their batches."""
        for key, batches in self._batches.items():
            assert self._read(*key) == batches, key

    def forget(self) -> None:
        """Forget all batches, since files of their versions are lost; they may be the newest ones."""
        self._batches.clear()
        self._is_damaged = True

    def _read(self, name: str, version: int, number: int) -> _Batches | str:
        """Return the batches of an epoch, or why there are none; nothing is cached."""
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", folder)
            url = storage.join(self._lake, name)
            try:
                dataset = TokenDataset(url, seq_len=32, version=version, **_SETTINGS[number])
            except LoaderError as error:
                if not re.search("window needs|selects no tokens", error.what):
                    raise
                return error.what
            return [
                {
                    name: values if isinstance(values, list) else values.tolist()
                    for name, values in batch.items()
                }
                for batch in dataset.batches(4, drop_last=False)
            ]
