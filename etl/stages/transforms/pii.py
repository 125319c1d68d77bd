"""The Pii stage: mask personal data that has a fixed format, or reject documents with it."""

from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.kernels.bytes.one_chunk import one_chunk
from etl.settings_files.settings import Settings
from etl.stages.base import Rules, Transform, above
from etl.stages.transforms.rewrite import replace_text
from etl.text.pii_kinds import KINDS, Kind


class Masks(Settings):
    """The replacements for personal data.

    The defaults follow StarCoder (Li et al. 2023, arXiv 2305.06161). No default is real data: a model can
    be kept from generating them, and a second pass matches nothing. For FineWeb's replacements, set
    ``email: email@example.com`` and ``ip: 22.214.171.124`` (datatrove 0.10.1, which rotates several).
    """

    email: str = "<EMAIL>"
    """Replacement of e-mail addresses."""
    ip: str = "<IP>"
    """Replacement of IP addresses."""
    iban: str = "<IBAN>"
    """Replacement of IBANs."""
    card: str = "<CARD>"
    """Replacement of card numbers."""
    phone: str = "<PHONE>"
    """Replacement of phone numbers."""


class Pii(Transform):
    """Mask personal data (e-mail and IP addresses, IBANs, card and phone numbers), or reject it.

    FineWeb masks e-mail addresses and public IPv4 addresses (Penedo et al. 2024, arXiv 2406.17557);
    ``public_ips_only: false`` includes private addresses and those for documentation, and
    ``keep_resolvers: false`` public name servers such as 208.67.222.222, which are not personal. Four numbers
    below 32 ("1.2.3.4") are read as a version number; other version numbers can be mistaken for addresses.

    E-mail addresses may be quoted ("john doe"@example.com) and in any script. In a script without spaces an
    address begins after the last punctuation mark, so words before it may be masked with it. IBANs must have
    the length for their country and valid check digits; card numbers an issuer's prefix and length and a
    valid check digit. Phone numbers are international ("+49 30 1234567"), or in a format common in North
    America, China, Russia, Brazil, or in countries with a leading 0. Less certain data is not masked: names,
    street addresses, phone numbers without separators, numbers within rows of numbers, amounts.

    Kinds are matched in the order email, ip, iban, card, phone; a match of one kind is not matched again.
    Speed: at least 150 MB of text per second and core.
    """

    kind: Literal["pii"] = "pii"
    example = "pii: {find: [email, phone], action: mask}"
    shorthand = "find"
    find: Annotated[tuple[Kind, ...], Field(strict=False)] = KINDS
    """The kinds of personal data to find."""
    action: Literal["mask", "reject"] = "mask"
    """Whether to ``mask`` personal data or to ``reject`` the document."""
    masks: Masks = Masks()
    """The replacement of each kind."""
    public_ips_only: bool = True
    """Whether to leave private IP addresses and those for documentation."""
    keep_resolvers: bool = True
    """Whether to leave the addresses of public name servers."""

    def columns(self) -> dict[str, str]:
        """Return the columns with the number of matches per kind: ``pii_emails``, ``pii_ips`` ..."""
        return {_column(kind): "matches found" for kind in self._kinds()}

    def rules(self) -> Rules:
        """Return the rules ``pii.email`` ... if documents are to be rejected."""
        if self.action == "mask":
            return {}
        return {kind: above(pl.col(_column(kind)), 0) for kind in self._kinds()}

    def signals(self) -> list[str]:
        """Return the text and the columns that the rules read."""
        return ["text", *self.columns()]

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table with masked text; the same text buffers if nothing is masked."""
        from etl.kernels.bytes.spans import replace_spans
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.text.pii_patterns import find_matches

        text = one_chunk(table["text"])
        documents = buffers(text)
        counts = {}
        for kind in self._kinds():
            spans = find_matches(
                kind,
                documents,
                public_ips_only=self.public_ips_only,
                keep_resolvers=self.keep_resolvers,
            )
            counts[_column(kind)] = spans.counts()
            if len(spans.starts) > 0:
                masked = replace_spans(documents, spans, mask=getattr(self.masks, kind).encode())
                documents = buffers(masked)
                text = masked if self.action == "mask" else text
        return replace_text(table, text, counts)

    def _kinds(self) -> list[Kind]:
        return [kind for kind in KINDS if kind in self.find]


def _column(kind: Kind) -> str:
    return f"pii_{kind}s"
