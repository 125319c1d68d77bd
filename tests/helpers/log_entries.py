"""Changes to log entries that their checksums do not reveal, as if they had been committed that way."""

import json
from collections.abc import Callable
from typing import Any

from upath import UPath

from etl.delta.entry_checksum import digest, seal
from etl.delta.log_segment import commit_file_name

Actions = dict[str, Any]


def edit_entry(table: str, version: int, change: Callable[[Actions], object]) -> None:
    """Change the actions of a log entry one by one, and seal it and all later entries again."""
    folder = UPath(table) / "_delta_log"
    before = folder / commit_file_name(version - 1)
    previous = digest(before.read_bytes()) if version and before.exists() else ""
    for entry in sorted(path for path in folder.iterdir() if path.name.endswith(".json")):
        if int(entry.stem) < version:
            continue
        actions = [json.loads(line) for line in entry.read_bytes().splitlines()]
        if int(entry.stem) == version:
            for action in actions:
                change(action)
        info = actions[0].get("commitInfo", {})
        if "checksum" in info:
            del info["checksum"]
            sealed = {"table": info["table"], "version": info["version"]}
            entry.write_bytes(seal(actions, **sealed, previous=previous))
        elif int(entry.stem) == version:
            entry.write_text("\n".join(map(json.dumps, actions)))
        previous = digest(entry.read_bytes())
