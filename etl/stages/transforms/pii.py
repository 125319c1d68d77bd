"""Personal data that has a form, masked or a reason to reject."""

from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from etl.kernels.bytes.spans import replace
from etl.kernels.bytes.utf8 import one_chunk
from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages.base import Rules, Transform, above
from etl.stages.transforms.rewrite import rewritten
from etl.text.pii_patterns import KINDS, Kind, find_matches


class Masks(BaseModel):
    """What stands in the place of personal data.

    The names in brackets are those of StarCoder (Li et al. 2023, arXiv 2305.06161) and of no person: a
    model can be kept from writing them, and a second pass finds nothing. For FineWeb's, take
    ``email: email@example.com`` and ``ip: 22.214.171.124`` (datatrove 0.10.1, which has several in turn).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    email: str = "<EMAIL>"
    ip: str = "<IP>"
    iban: str = "<IBAN>"
    card: str = "<CARD>"
    phone: str = "<PHONE>"


class Pii(Transform):
    """Mask e-mail and IP addresses, IBANs, card and telephone numbers, or reject documents that have any.

    E-mail addresses and public IP addresses are what FineWeb masks (Penedo et al. 2024, arXiv 2406.17557);
    ``public_ips_only: false`` takes private ones and those for documentation, too. Four numbers below 32
    ("1.2.3.4") are taken for a version; other versions look like addresses. IBANs have the length of their
    country and the right check digits, cards an issuer's first digits, its length and the right check
    digit. Telephone numbers are international ("+49 30 1234567"), or have a form that is usual in North
    America, China, or where a 0 leads. What is less sure is left alone: names, street addresses, numbers
    of telephones without any separator, numbers in a row of others.

    Kinds are looked for in the order email, ip, iban, card, phone; what is one is no other. 150 MB of text
    and more per second and core.
    """

    kind: Literal["pii"] = "pii"
    shorthand = "find"
    find: Annotated[tuple[Kind, ...], Field(strict=False)] = KINDS
    action: Literal["mask", "reject"] = "mask"
    masks: Masks = Masks()
    public_ips_only: bool = True

    def columns(self) -> dict[str, str]:
        """How many of each kind were found: ``pii_emails``, ``pii_ips`` ..."""
        return {_column(kind): "matches found" for kind in self._kinds()}

    def rules(self) -> Rules:
        """``pii.email`` ... if documents are to be rejected."""
        if self.action == "mask":
            return {}
        return {kind: above(pl.col(_column(kind)), 0) for kind in self._kinds()}

    def signals(self) -> list[str]:
        """The text, and what the rules read."""
        return ["text", *self.columns()]

    def apply(self, table: pa.Table) -> pa.Table:
        """The table with its text masked; the same text buffers if nothing was found or is to be masked."""
        text = one_chunk(table["text"])
        documents = buffers(text)
        counts = {}
        for kind in self._kinds():
            spans = find_matches(kind, documents, public_ips_only=self.public_ips_only)
            counts[_column(kind)] = spans.counts()
            if len(spans.starts) > 0:
                masked = replace(documents, spans, mask=getattr(self.masks, kind).encode())
                documents = buffers(masked)
                text = masked if self.action == "mask" else text
        return rewritten(table, text, counts)

    def _kinds(self) -> list[Kind]:
        return [kind for kind in KINDS if kind in self.find]


def _column(kind: Kind) -> str:
    return f"pii_{kind}s"
