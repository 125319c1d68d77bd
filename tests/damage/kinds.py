"""The kinds of files in a lake's folder; a file that belongs to none of them fails the matrix."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etl.delta.table import Table
from etl.delta.vacuum_records import FOLDER
from etl.lake import releases
from etl.lake.foreign_changes import live_files
from etl.lake.leases import LIFETIME
from etl.lake.table_specs import SPECS

_DATA = {
    "documents": ("kept", "rejected", "released", "old"),
    "texts": ("kept", "released", "old"),
    "duplicates": ("live", "released", "old"),
    "keys": ("live", "old"),
    "tokens": ("live", "released", "old"),
    "tokens_shuffled": ("live", "released", "old"),
}
_COMMITS = {
    "documents": ("create", "append", "optimize", "epoch", "newest"),
    "texts": ("create", "append", "optimize", "epoch", "newest"),
    "duplicates": ("create", "append", "optimize", "epoch", "newest"),
    "keys": ("create", "append", "optimize", "epoch", "rebuild", "newest"),
    "tokens": ("create", "append", "optimize", "epoch", "newest"),
    "tokens_shuffled": ("create", "append", "epoch", "rebuild", "newest"),
}
_SMALL = {
    "finished/_copies/": "copy of the finished versions",
    "finished/": "finished versions",
    "quarantine/": "quarantine note",
    "releases/_copies/": "copy of a release",
    "releases/": "release",
    "source_moves/": "source moves",
}

KINDS: Final[tuple[str, ...]] = (
    *(f"{table} {role} data" for table, roles in _DATA.items() for role in roles),
    "tokens_shuffled live vectors",
    "orphan data",
    *(f"{table} {role} entry" for table, roles in _COMMITS.items() for role in roles),
    *(f"{table} {age} checkpoint" for table in _DATA for age in ("old", "newest")),
    *(f"{table} _last_checkpoint" for table in _DATA),
    *(
        f"{table} {kind}"
        for table in ("documents", "texts", "duplicates", "keys", "tokens")
        for kind in ("vacuum record", "copy of a vacuum record")
    ),
    *_SMALL.values(),
    "live lease",
    "lease of a dead job",
)
"""All kinds of files in the lake ``complete``: the rows of the matrix."""

_ENTRY = re.compile(r"\d{20}\.json")


def files_by_kind(lake: Path) -> dict[str, list[str]]:
    """Return the files of a sound lake by kind, relative to its folder and in a reproducible order."""
    kinds: dict[str, list[str]] = {}
    of_tables = {name: _TableFiles(lake, name) for name in SPECS if Table.exists(str(lake / name))}
    for path in sorted(path for path in lake.rglob("*") if path.is_file()):
        relative = path.relative_to(lake).as_posix()
        top, _, rest = relative.partition("/")
        kind = of_tables[top].kind_of(rest) if top in of_tables else _kind_of_small(lake, relative)
        kinds.setdefault(kind, []).append(relative)
    return kinds


def _kind_of_small(lake: Path, relative: str) -> str:
    if relative.startswith("leases/"):
        times = [path.stat().st_mtime for path in lake.rglob("leases/*")]
        is_old = (lake / relative).stat().st_mtime < max(times) - LIFETIME.total_seconds()
        return "lease of a dead job" if is_old else "live lease"
    return next((kind for start, kind in _SMALL.items() if relative.startswith(start)), relative)


class _TableFiles:
    """What the files of one table are."""

    def __init__(self, lake: Path, name: str) -> None:
        self._name = name
        table = Table.open(str(lake / name))
        log = lake / name / "_delta_log"
        self._live = _paths(table)
        self._released: set[str] = set()
        for release in releases.list_releases(str(lake)):
            if name in release.versions:
                old = Table.open(table.url, release.versions[name])
                self._released |= _paths(old)
        added = (file for commit in table.commits() for file in commit.add)
        self._old = {path for file in added for path in file.stored_paths}
        self._roles = _roles({path.name: path.read_text() for path in sorted(log.glob("*.json"))})
        self._newest = max((path.name for path in log.glob("*.parquet")), default="")

    def kind_of(self, path: str) -> str:
        """Return the kind of a file of the table."""
        name = path.rpartition("/")[2]
        if path.startswith("_delta_log/"):
            if name.endswith(".checkpoint.parquet"):
                return f"{self._name} {'newest' if name == self._newest else 'old'} checkpoint"
            if _ENTRY.fullmatch(name):
                return f"{self._name} {self._roles[name]} entry"
        elif path.startswith(f"{FOLDER}/"):
            return f"{self._name} {'copy of a ' if '_copies' in path else ''}vacuum record"
        elif name.endswith((".parquet", ".bin")):
            what = "data" if name.endswith(".parquet") else "vectors"
            if path in self._live:
                verdict = path.partition("/")[0].removeprefix("verdict=")
                role = verdict if self._name in ("documents", "texts") else "live"
            elif path in self._released:
                role = "released"
            elif path in self._old:
                role = "old"
            else:
                return f"orphan {what}"
            return f"{self._name} {role} {what}"
        return f"{self._name} {path.removeprefix('_delta_log/')}"


def _paths(table: Table) -> set[str]:
    """Return the paths of the live data files and of the files with their deletion vectors."""
    return {path for file in live_files(table) for path in file.stored_paths}


def _roles(entries: Mapping[str, str]) -> dict[str, str]:
    """Return what each log entry does, by file name; entries are in the order of versions."""
    roles: dict[str, str] = {}
    epoch = 0
    for number, (name, content) in enumerate(entries.items()):
        actions = [json.loads(line) for line in content.splitlines()]
        epochs = [a["txn"]["version"] for a in actions if a.get("txn", {}).get("appId") == "epoch"]
        before, epoch = epoch, max(epochs, default=epoch)
        removed = [action["remove"] for action in actions if "remove" in action]
        if number == 0:
            roles[name] = "create"
        elif number == len(entries) - 1:
            roles[name] = "newest"
        elif epoch > before:
            roles[name] = "epoch"
        elif any("metaData" in action for action in actions):
            roles[name] = "rebuild"
        elif removed and not any(action["dataChange"] for action in removed):
            roles[name] = "optimize"
        else:
            roles[name] = "append"
    return roles
