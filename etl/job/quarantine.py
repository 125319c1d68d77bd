"""What could not be read: one small JSON file per unit of work in ``LAKE/quarantine``, till it can be.

A unit in quarantine is not done: the next run tries it again, and takes its note away when it succeeds.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from etl import storage


@dataclass(frozen=True)
class Quarantined:
    """A unit of work that was put aside: where it is, and why."""

    step: str
    source: str
    part: str  # which part of the file, as start-stop; empty for the whole file
    error: str
    time: str  # UTC, ISO 8601


class Quarantine:
    """The notes of one lake."""

    def __init__(self, lake: str) -> None:
        self._url = storage.join(storage.normalize(lake), "quarantine")
        self._known = {file.uri for file in storage.find(self._url)}

    def put(self, step: str, source: str, part: str, error: str) -> Quarantined:
        """Note a unit, and return the note."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        note = Quarantined(step, source, part, error, now)
        uri = self._uri(step, source, part)
        with storage.open_output(uri) as file:
            file.write(json.dumps(asdict(note), indent=1).encode())
        self._known.add(uri)
        return note

    def clear(self, step: str, source: str, part: str) -> None:
        """Take a unit's note away, if there is one."""
        uri = self._uri(step, source, part)
        if uri in self._known:
            storage.filesystem(uri).rm(uri)
            self._known.discard(uri)

    def notes(self) -> list[Quarantined]:
        """All notes, by source."""
        found = []
        for uri in self._known:
            with storage.open_input(uri) as file:
                found.append(Quarantined(**json.loads(file.read())))
        return sorted(found, key=lambda note: (note.source, note.part))

    def _uri(self, step: str, source: str, part: str) -> str:
        name = hashlib.sha256(f"{step}\0{source}\0{part}".encode()).hexdigest()[:24]
        return storage.join(self._url, f"{name}.json")
