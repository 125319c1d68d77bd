"""A Delta table as a source, changed by delta-rs, and what a lake would hold after reading it."""

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import deltalake
import pyarrow as pa

from etl import storage
from etl.delta.delta_rs import delta_rs_location
from etl.delta.moved_rows import Move
from etl.sources import Source, Split
from etl.sources.formats.delta import ReadBefore
from etl.sources.list_splits import cut_files, list_source
from etl.sources.parts import KnownPart
from etl.sources.read_split import read_split

SCHEMA = pa.schema({"text": pa.string(), "n": pa.int64()})
_SMALL_GROUPS = deltalake.WriterProperties(max_row_group_size=2)


class SourceTable:
    """A Delta table with the columns ``text``, different in each row, and ``n``, 0 or 1."""

    def __init__(self, folder: object, *, partition_by: Sequence[str] = ()) -> None:
        self.url = storage.normalize(str(folder))
        self._location = delta_rs_location(self.url)
        self._options = storage.delta_options(self.url)
        self._partition_by = list(partition_by)
        self._numbers = itertools.count()

    def open(self, version: int | None = None) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._location, version, storage_options=self._options)

    def rows(self, count: int) -> pa.Table:
        numbers = [next(self._numbers) for _ in range(count)]
        return pa.table({"text": [f"text {n}" for n in numbers], "n": [n % 2 for n in numbers]})

    def append(self, count: int = 2) -> None:
        self.write(self.rows(count), mode="append")

    def overwrite(self, count: int = 2) -> None:
        self.write(self.rows(count), mode="overwrite")

    def write(self, rows: pa.Table, *, mode: Literal["append", "overwrite"]) -> None:
        deltalake.write_deltalake(
            self._location,
            rows.cast(SCHEMA),
            mode=mode,
            partition_by=self._partition_by or None,
            storage_options=self._options,
            writer_properties=_SMALL_GROUPS,
        )

    def compact(self) -> None:
        self.open().optimize.compact(writer_properties=_SMALL_GROUPS)

    def z_order(self) -> None:
        self.open().optimize.z_order(["text"], writer_properties=_SMALL_GROUPS)

    def delete(self, text: str) -> None:
        self.open().delete(f"text = '{text}'")

    def update(self, text: str) -> None:
        self.open().update(
            {"text": f"concat(text, ' updated {next(self._numbers)}')"},
            predicate=f"text = '{text}'",
        )

    def merge(self, text: str) -> None:
        """Update the rows of a text and insert a new row."""
        merged = pa.concat_tables([pa.table({"text": [text], "n": [0]}), self.rows(1)]).cast(SCHEMA)
        merge = self.open().merge(
            merged, "target.text = source.text", source_alias="source", target_alias="target"
        )
        updates = {"text": f"concat(target.text, ' merged {next(self._numbers)}')"}
        merge = merge.when_matched_update(updates)
        merge.when_not_matched_insert({"text": "source.text", "n": "source.n"}).execute()

    def restore(self, version: int) -> None:
        self.open().restore(version)

    def vacuum(self) -> None:
        self.open().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def delete_log_entries(self) -> None:
        """Write a checkpoint, and delete the entries before it as a log retention does."""
        table = self.open()
        table.create_checkpoint()
        for version in range(table.version()):
            storage.remove(storage.join(self.url, "_delta_log", f"{version:020}.json"))

    def drop(self) -> None:
        """Delete the table with its files; only of local tables."""
        shutil.rmtree(storage.local_path(self.url))

    @property
    def version(self) -> int:
        return self.open().version()

    def texts(self, version: int | None = None) -> Counter[str]:
        return Counter(self.open(version).to_pyarrow_table(columns=["text"])["text"].to_pylist())


class RefusedError(Exception):
    """The source lacks rows that were read before."""


class HeldRows:
    """What a lake holds of a source: a simple model of the ledger and of the table ``documents``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._texts: dict[str, list[str]] = {}  # URI -> texts
        self._fingerprints: dict[str, str] = {}  # URI -> fingerprint
        self._done: set[tuple[str, int, int | None]] = set()
        self._moves: dict[str, Sequence[Move]] = {}  # by table id

    @property
    def texts(self) -> Counter[str]:
        return Counter(itertools.chain.from_iterable(self._texts.values()))

    @property
    def uris(self) -> set[str]:
        return set(self._texts)

    def read(
        self, *, version: int | None = None, replace: bool = False, limit: int | None = None
    ) -> list[Split]:
        """Read at most ``limit`` splits that were not read yet, and return them.

        Raises RefusedError if files were removed or have changed, unless ``replace`` is set.
        """
        source = self._source.model_copy(update={"version": version})
        splits, changed = self._list(source)
        if changed and not replace:
            raise RefusedError(json.dumps(changed))
        for uri in changed:
            del self._texts[uri], self._fingerprints[uri]
            self._done = {key for key in self._done if key[0] != uri}
        if changed:
            splits, changed = self._list(source)
            assert changed == {}, "files that are not held cannot have changed"
        new = [s for s in splits if (s.uri, s.start, s.stop) not in self._done][:limit]
        for split in new:
            batches = list(read_split(split, source))
            self._done.add((split.uri, split.start, split.stop))
            self._fingerprints[split.uri] = split.fingerprint
            texts = self._texts.setdefault(split.uri, [])
            texts.extend(text for batch in batches for text in batch["text"].to_pylist())
        return new

    def lose(self, uri: str) -> None:
        """Lose the rows of a file, which remains known, as by a repair."""
        self._texts[uri] = []
        self._done = {key for key in self._done if key[0] != uri}

    def _list(self, source: Source) -> tuple[list[Split], dict[str, str]]:
        before = ReadBefore(
            self._rows_of, self._others_below, lambda table_id: self._moves.get(table_id, ())
        )
        listing = list_source(source, before)
        self._moves |= listing.moves
        files = [replace(file, identity=number) for number, file in enumerate(listing.files)]
        splits = list(cut_files(files, source, lambda _: self._parts(files)))
        changed = {s.uri: "changed" for s in splits if self._has_changed(s.uri, s.fingerprint)}
        return splits, {**listing.removed, **changed}

    def _parts(self, files: Sequence[Split]) -> dict[int, list[KnownPart]]:
        starts = {uri: sorted(p for p in self._done if p[0] == uri) for uri in self._texts}
        return {
            file.identity: [KnownPart(start, stop, True) for _, start, stop in starts[file.uri]]
            for file in files
            if file.uri in starts
        }

    def _rows_of(self, url: str, table_id: str) -> dict[str, int]:
        below = ((uri, texts) for uri, texts in self._texts.items() if uri.startswith(f"{url}/"))
        return {u: len(t) for u, t in below if not self._has_changed(u, table_id)}

    def _others_below(self, url: str, table_id: str) -> list[str]:
        below = (uri for uri, texts in self._texts.items() if texts and uri.startswith(f"{url}/"))
        return [uri for uri in below if self._has_changed(uri, table_id)]

    def _has_changed(self, uri: str, fingerprint: str) -> bool:
        return self._fingerprints.get(uri, fingerprint) != fingerprint
