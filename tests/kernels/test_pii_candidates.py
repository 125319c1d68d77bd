"""Candidates for personal data against plain expressions: every match begins at a candidate."""

import re

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import pii_candidates
from etl.kernels.bytes.utf8 import texts as buffers
from tests.helpers.tricky_text import TRICKY

GAPS = "[ /().\u00a0\u202f\u2011-]*"  # between the digits of a number
LOCAL = "a-zA-Z0-9._%+'À-ÖØ-öø-\u037dЀ-Я-"  # in the local part of an e-mail address
UNSPACED = "ぁ-ん一-龥가-힣ก-ฮ"  # letters of scripts without spaces
EXPRESSIONS = {
    pii_candidates.EMAIL: (
        f"(?<![{LOCAL}])[{LOCAL}]+(?<![{UNSPACED}])@"
        f"|(?<![{LOCAL}{UNSPACED}])[{LOCAL}{UNSPACED}]*[{UNSPACED}]@"
        r'|(?<!\\)"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f]){1,10}"@'
    ),
    pii_candidates.IP: (
        r"(?<!\d)\d{1,3}(?:\.\d{1,3}){3}"
        r"|(?<![0-9A-Fa-f:])(?:(?:[0-9A-Fa-f]{1,4}:){6}|[0-9A-Fa-f]{0,4}::)"
    ),
    pii_candidates.IBAN: r"[A-Z]{2}\d\d",
    pii_candidates.CARD: rf"(?<!\d)[2-6](?:{GAPS}\d){{12}}",
    pii_candidates.PHONE: (
        rf"(?<!\d)(?:\+\d|\(\d|0|[18](?!\d))(?:{GAPS}\d){{8}}|(?<!\d)\d{{3}}[ .-](?:{GAPS}\d){{6}}"
    ),
}
"""Simple forms, of which each match must begin at a candidate."""

pieces = st.sampled_from(
    [
        *(
            "foo@bar.com",
            "é.a@b",
            "@",
            "o'b@c",
            "東@b",
            "a b",
            '"',
            "\\",
            "иван@",
            "8 (495)",
            "81.2.69.142",
            "1.2.3.4",
            "2a00:1450::8",
            "1:2:3:4:5:6:7:8",
        ),
        *("DE89", "DE89 3704", "4111 1111 1111 1111", "+49 30 1234567", "(212) 555-1234"),
        *("212-555-1234", "01 23 45 67 89", "138 1234 5678", "0", "12", "A", "AB", "f"),
        *(" ", " ", ".", "-", "/", ":", "::", "(", ")", "+", "\u00a0", "\u2011", "é", "東"),
    ]
)
texts = (
    st.lists(pieces, max_size=10).map("".join)
    | st.text(st.sampled_from("0123456789+-./() @:aFDE"), max_size=40)
    | st.text(st.sampled_from(TRICKY), max_size=30)
)


def candidates(array: pa.Array, kind: int) -> list[list[int]]:
    """The candidates of each document, as offsets in it."""
    documents = buffers(array)
    starts, first = pii_candidates.find_candidates(documents, kind)
    return [
        (starts[first[k] : first[k + 1]] - documents.offsets[k]).tolist() for k in range(len(array))
    ]


def naive_starts(text: str, expression: str) -> set[int]:
    """The bytes at which an expression matches, overlapping matches included."""
    matches = re.finditer(f"(?={expression})", text)
    return {len(text[: match.start()].encode()) for match in matches}


@pytest.mark.parametrize("kind", EXPRESSIONS)
@given(documents=st.lists(texts, max_size=3))
@example(documents=["1", "::1", "+1", "x(030) 123456"])
def test_every_match_begins_at_a_candidate(kind, documents):
    array = pa.array(["0123456789", *documents, "a@b.de"], pa.string())[1:-1]
    for text, starts in zip(documents, candidates(array, kind), strict=True):
        assert all(0 <= start < len(text.encode()) for start in starts)
        assert naive_starts(text, EXPRESSIONS[kind]) <= {*starts}


def test_text_without_triggers_has_no_candidates():
    for kind in EXPRESSIONS:
        assert candidates(pa.array(["No data here.", None, ""]), kind) == [[], [], []]


@pytest.mark.parametrize(
    ("kind", "text", "start"),
    [
        (pii_candidates.EMAIL, "Ask müller@example.org", 4),
        (pii_candidates.EMAIL, "Ask o'brien@example.org", 4),
        (pii_candidates.EMAIL, "Ask иван@пример.рф", 4),
        (pii_candidates.EMAIL, "邮箱foo@example.org", 6),
        (pii_candidates.EMAIL, "请用foo用户@example.org", 0),
        (pii_candidates.EMAIL, 'Ask "john \\" doe"@example.org', 4),
        (pii_candidates.IP, "at 81.2.69.142", 3),
        (pii_candidates.IP, "at fe80::1", 3),
        (pii_candidates.IBAN, "IBAN DE89370400440532013000", 5),
        (pii_candidates.CARD, "card 4111-1111-1111-1111", 5),
        (pii_candidates.PHONE, "call (030) 1234567", 5),
        (pii_candidates.PHONE, "call 8 (495) 123-45-67", 5),
    ],
)
def test_a_candidate_is_the_first_byte_of_a_match(kind, text, start):
    assert candidates(pa.array([text]), kind)[0][0] == start


def test_a_quoted_local_part_has_64_bytes_on_its_line():
    for text in ('"' + "a" * 65 + '"@b.de', '"a\nb"@c.de', 'a"@b.de', '"@b.de', '\\"a"@b.de'):
        assert candidates(pa.array([text]), pii_candidates.EMAIL) == [[]]
    assert candidates(pa.array(['"' + "a" * 64 + '"@b.de']), pii_candidates.EMAIL) == [[0]]
