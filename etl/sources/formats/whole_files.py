"""Cut and count for formats whose files cannot be cut: a file is one split, which starts at row 0."""

from collections.abc import Sequence

from etl.sources.parts import KnownPart
from etl.sources.source_settings import Source
from etl.sources.split import Split


def keep_whole(
    whole: Split,
    source: Source,  # noqa: ARG001 - see FormatReader.cut
    known: Sequence[KnownPart],  # noqa: ARG001
) -> list[Split]:
    """Return the file as its only split, however large it is."""
    return [whole]


def refuse_to_count(split: Split) -> int:
    """Raise AssertionError, since no row number depends on the count."""
    raise AssertionError(f"{split.uri}: only the pieces of a file are counted")
