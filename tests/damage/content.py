"""What a user can see of a lake, to compare it before and after damage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl import storage
from etl.delta.table import Table
from etl.delta.vacuum_records import vacuumed_versions
from etl.errors import TokenlakeError
from etl.lake import releases
from etl.lake.quarantine import Quarantine
from etl.lake.table_specs import SPECS
from etl.lake.table_versions import read_versions
from tests.helpers.lake_rows import Row, rows


@dataclass(frozen=True)
class Content:
    """The rows of a lake at its newest version, its releases, and its quarantine."""

    tables: dict[str, list[Row]]
    releases: dict[str, dict[str, list[Row]]]
    quarantined: set[tuple[str, str, str]]

    def differences(self, expected: "Content") -> list[str]:
        """Return the names of the parts that differ."""
        every = {**self.tables, **expected.tables}
        names = [name for name in every if self.tables.get(name) != expected.tables.get(name)]
        if self.quarantined != expected.quarantined:
            names.append("quarantine")
        return names

    def has_documents_of(self, expected: "Content") -> bool:
        """Return whether the documents are the same, whatever their addresses."""
        ours, theirs = (
            sorted(f"{row['id']} {row['reason']}" for row in content.tables["documents"])
            for content in (self, expected)
        )
        return ours == theirs

    def is_part_of(self, expected: "Content") -> bool:
        """Return whether nothing but rows of the newest versions is missing."""
        return self.releases == expected.releases and all(
            row in expected.tables.get(name, [])
            for name, rows in self.tables.items()
            for row in rows
        )


@dataclass(frozen=True)
class Past:
    """All versions of a lake's tables: what each part of it says, by name."""

    parts: dict[str, Any]

    def differences(self, expected: "Past") -> list[str]:
        """Return the names of the parts that differ."""
        names = sorted({*self.parts, *expected.parts})
        return [name for name in names if self.parts.get(name) != expected.parts.get(name)]

    def is_part_of(self, expected: "Past") -> bool:
        """Return whether nothing but some versions is missing."""
        return all(expected.parts.get(name) == part for name, part in self.parts.items())


def read_content(lake: Path) -> Content:
    """Return what a sound lake contains; raises the errors of damaged ones."""
    existing = [name for name in SPECS if Table.exists(str(lake / name))]
    tables = {
        name: _read_keys(lake) if name == "keys" else rows(str(lake), name) for name in existing
    }
    notes = Quarantine(str(lake)).notes()
    return Content(
        tables=tables,
        releases={r.name: _read_release(lake, r) for r in releases.list_releases(str(lake))},
        quarantined={(note.step, note.source, note.part) for note in notes},
    )


def read_past(lake: Path) -> Past:
    """Return the history, the data files and the transactions of all versions of all tables."""
    parts: dict[str, Any] = {}
    for name in SPECS:
        if not Table.exists(storage.join(str(lake), name)):
            continue
        newest = Table.open(storage.join(str(lake), name))
        parts[f"vacuumed versions of {name}"] = vacuumed_versions(newest.url)
        for version in read_versions(newest):
            parts[f"history of {name} {version.version}"] = version
            table = Table.open(newest.url, version.version)
            parts[f"files of {name} {version.version}"] = table.data_files().to_pylist()
            transactions = dict(table.transactions().items())
            parts[f"transactions of {name} {version.version}"] = transactions
            parts[f"schema of {name} {version.version}"] = table.schema
    return Past(parts)


def _read_release(lake: Path, release: releases.Release) -> dict[str, list[Row]]:
    """Return the rows of a release; rows of a table that cannot be read any more are missing."""
    tables: dict[str, list[Row]] = {}
    for name, version in release.versions.items():
        try:
            tables[name] = rows(str(lake), name, version)
        except (TokenlakeError, OSError, ValueError):
            continue
    return tables


def _read_keys(lake: Path) -> list[Row]:
    """Return the keys without the units of work that they refer to."""
    keys = Table.open(storage.join(str(lake), "keys")).dataset().to_table().to_pylist()
    columns = ("kind", "key", "check", "row")
    return sorted(({c: k[c] for c in columns} for k in keys), key=lambda k: [*map(str, k.values())])
