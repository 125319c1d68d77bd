"""Near misses."""

import difflib
from collections.abc import Sequence


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return a hint with the known name closest to a misspelled one, or with all known names."""
    matches = difflib.get_close_matches(name, known, n=1)
    if matches:
        return f"did you mean {matches[0]!r}?"
    return f"known names: {', '.join(known)}" if known else None
