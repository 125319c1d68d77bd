"""The quarantine of a lake: one JSON file in ``LAKE/quarantine`` per unit of work that failed.

A quarantined unit is not done: the next run tries it again and deletes its note on success.
"""

import hashlib
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from etl import storage
from etl.errors import TableError
from etl.storage import checked_json

_VALUES: Final = re.compile(r"\d+|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Quarantined:
    """A quarantined unit of work: its location and the error."""

    step: str
    source: str
    part: str  # the part of the file, as start-stop or start-end; empty for the whole file
    error: str
    time: str  # UTC, ISO 8601

    @property
    def cause(self) -> str:
        """The error without what differs between units: the input file, numbers and quoted values.

        >>> Quarantined("documents", "file:///a", "", "file:///a row 7: KeyError: 'x'", "").cause
        ' row : KeyError: '
        """
        return _VALUES.sub("", self.error.replace(self.source, ""))


class Quarantine:
    """The quarantine notes of one lake."""

    def __init__(self, lake: str) -> None:
        self._lake = storage.normalize(lake)
        self._url = storage.join(self._lake, "quarantine")
        self._known = {file.uri for file in storage.find_files(self._url)}

    def put(self, step: str, source: str, part: str, error: str) -> Quarantined:
        """Write the note of a unit and return it."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        note = Quarantined(step, source, part, error, now)
        uri = self._uri(step, source, part)
        checked_json.write(uri, asdict(note))
        self._known.add(uri)
        return note

    def clear(self, step: str, source: str, part: str) -> None:
        """Delete the note of a unit, if there is one."""
        uri = self._uri(step, source, part)
        if uri in self._known:
            storage.remove(uri)
            self._known.discard(uri)

    def notes(self) -> list[Quarantined]:
        """Return all notes, sorted by source and part; a damaged file is a note about itself."""
        notes = [note for uri in self._known if (note := self._read(uri)) is not None]
        return sorted(notes, key=lambda note: (note.source, note.part))

    def _uri(self, step: str, source: str, part: str) -> str:
        name = hashlib.sha256(f"{step}\0{source}\0{part}".encode()).hexdigest()[:24]
        return storage.join(self._url, f"{name}.json")

    def _read(self, uri: str) -> Quarantined | None:
        hint = f"`etl repair {self._lake} --yes` removes it, and the next run tries its input again"
        try:
            content = checked_json.read(uri, hint=hint)
        except TableError as error:
            return Quarantined("unknown", uri, "", f"the note {error.what} ({hint})", "")
        return None if content is None else Quarantined(**content)
