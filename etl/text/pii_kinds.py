"""The kinds of personal data that ``etl.text.pii_patterns`` finds."""

from typing import Final, Literal, get_args

Kind = Literal["email", "ip", "iban", "card", "phone"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""All kinds in the order of matching, the most certain first; matches of earlier kinds are excluded."""
