"""Which Delta tables can be read and written: allow-lists of protocol versions, features and properties.

Reading needs the log, the data files and their deletion vectors; writing adds and removes plain data files,
and strikes rows of them. A table that requires anything else of a reader or a writer is refused, also if the
requirement is unknown here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from etl.errors import TableError

DELETION_VECTORS: Final = "deletionVectors"
PLAIN_FEATURES: Final = frozenset({"columnMapping", "timestampNtz"})
"""Features that change nothing for a reader; column mapping as long as its mode is ``none``."""

_READER_FEATURES = PLAIN_FEATURES | {DELETION_VECTORS}
_WRITER_FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz", DELETION_VECTORS})
_READER_VERSIONS = (1, 2, 3)  # from version 3 on, a table lists its features
_WRITER_VERSIONS = (1, 2, 7)  # from version 7 on, a table lists its features
_WRITER_VERSION_2 = ("appendOnly", "invariants")  # the features that it implies
_FEATURES_OF_WRITER_VERSION = {
    3: "checkConstraints",
    4: "changeDataFeed, generatedColumns",
    5: "columnMapping",
    6: "identityColumns",
}
_COLUMN_MAPPING = "delta.columnMapping.mode"
# Properties that switch a feature on start with this; a single one concerns no reader and no writer:
_ENABLE = "delta.enable"
_HARMLESS = "delta.enableExpiredLogCleanup"
_ENABLE_VECTORS = "delta.enableDeletionVectors"
_TOMBSTONES = "delta.deletedFileRetentionDuration"
_MICROSECONDS = {
    "week": 7 * 24 * 3600 * 1_000_000,
    "day": 24 * 3600 * 1_000_000,
    "hour": 3600 * 1_000_000,
    "minute": 60 * 1_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_UNITS = "|".join(_MICROSECONDS)
_INTERVAL = re.compile(rf"(?i)\s*(interval\s+)?(\d+\s+({_UNITS})s?(\s+|$))+")
_INTERVAL_PART = re.compile(rf"(\d+)\s+({_UNITS})")
_FEATURES_OF_FIELD = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity": "identityColumns",
}


def check_readable(
    url: str,
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    features: frozenset[str] = _READER_FEATURES,
) -> None:
    """Raise TableError if the log, the data files and deletion vectors do not give the rows of a table.

    ``features`` are the reader features that the caller can handle.
    """
    version = int(protocol.get("minReaderVersion") or 0)
    if version not in _READER_VERSIONS:
        raise TableError(
            f"the table requires Delta reader version {version}, newer than {_READER_VERSIONS[-1]}",
            where=url,
            hint="another program has upgraded the table: read another table",
        )
    properties = metadata.get("configuration") or {}
    required = set(protocol.get("readerFeatures") or ())
    if _is_true(properties.get(_ENABLE_VECTORS)):
        required.add(DELETION_VECTORS)
    unsupported = required - features
    if properties.get(_COLUMN_MAPPING, "none") != "none":
        unsupported.add("columnMapping")
    if unsupported:
        raise TableError(
            f"the table uses unsupported Delta features ({', '.join(sorted(unsupported))})",
            where=url,
            hint="rewrite the table without these features",
        )


def check_writable(
    url: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any], *, removes: bool
) -> None:
    """Raise TableError if a table requires more of a writer than plain data files and deletion vectors.

    Also raises it for a retention of tombstones that cannot be parsed.
    ``removes`` says whether the commits remove rows, which a table may forbid (``delta.appendOnly``).
    """
    version = int(protocol.get("minWriterVersion") or 0)
    features = {*(protocol.get("writerFeatures") or ())}
    features |= set(_enabled_features(metadata.get("configuration") or {}))
    features -= _WRITER_FEATURES
    features |= set(_features_of_fields(json.loads(metadata["schemaString"])))
    if version not in _WRITER_VERSIONS:
        implied = _FEATURES_OF_WRITER_VERSION.get(version)
        features.add(f"writer version {version}" + (f": {implied}" if implied else ""))
    if features:
        raise TableError(
            f"the table requires unsupported Delta features of a writer ({', '.join(sorted(features))})",
            where=url,
            hint="another program has enabled table features: write to another table",
        )
    tombstone_retention_ms(url, metadata)
    if removes and _is_true((metadata.get("configuration") or {}).get("delta.appendOnly")):
        raise TableError(
            "rows of the table must not be removed (delta.appendOnly)",
            where=url,
            hint="unset this property of the table, or write to another table",
        )


def tombstone_retention_ms(url: str, metadata: Mapping[str, Any]) -> int:
    """Return how long the log of a table keeps the tombstones of removed data files, in milliseconds.

    Raises TableError if the property of the table is not an interval.
    """
    text = (metadata.get("configuration") or {}).get(_TOMBSTONES, "interval 1 week")
    if not _INTERVAL.fullmatch(text):
        raise TableError(
            f"the table property {_TOMBSTONES} is not an interval: {text!r}",
            where=url,
            hint='set it to a value such as "interval 1 week" or "interval 2 days 12 hours"',
        )
    parts = _INTERVAL_PART.findall(text.lower())
    return sum(int(count) * _MICROSECONDS[unit] for count, unit in parts) // 1000


def permits_vectors(protocol: Mapping[str, Any]) -> bool:
    """Return whether data files of a table may have deletion vectors."""
    return DELETION_VECTORS in (protocol.get("readerFeatures") or ())


def with_vectors(state: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the ``protocol`` and the ``metaData`` of a table so that it may have deletion vectors.

    Both are the same objects if this is so already.
    """
    protocol, metadata = state["protocol"], state["metaData"]
    properties = metadata.get("configuration") or {}
    if permits_vectors(protocol) and _is_true(properties.get(_ENABLE_VECTORS)):
        return dict(state)
    listed = protocol.get("writerFeatures")
    if listed is None:  # a version without a list implies features, which the list must then have
        listed = _WRITER_VERSION_2 if int(protocol["minWriterVersion"]) > 1 else ()
    upgraded = {
        "minReaderVersion": _READER_VERSIONS[-1],
        "minWriterVersion": _WRITER_VERSIONS[-1],
        "readerFeatures": sorted({*(protocol.get("readerFeatures") or ()), DELETION_VECTORS}),
        "writerFeatures": sorted({*listed, DELETION_VECTORS}),
    }
    configuration = {**properties, _ENABLE_VECTORS: "true"}
    return {"protocol": upgraded, "metaData": {**metadata, "configuration": configuration}}


def _enabled_features(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the features that the properties of a table switch on."""
    for name, value in properties.items():
        if name.startswith("delta.constraints."):
            yield "checkConstraints"
        elif name.startswith(_ENABLE) and name != _HARMLESS and _is_true(value):
            feature = name.removeprefix(_ENABLE)
            yield feature[:1].lower() + feature[1:]


def _features_of_fields(value: Any) -> Iterator[str]:
    """Yield the features that the metadata of fields in a schema, as JSON data, asks for."""
    if isinstance(value, list):
        for each in value:
            yield from _features_of_fields(each)
    elif isinstance(value, dict):
        for name in value.get("metadata") or ():
            if name.startswith("delta."):
                known = (f for prefix, f in _FEATURES_OF_FIELD.items() if name.startswith(prefix))
                yield next(known, name)
        for name, each in value.items():
            if name != "metadata":
                yield from _features_of_fields(each)


def _is_true(value: str | None) -> bool:
    return (value or "").strip().lower() == "true"
