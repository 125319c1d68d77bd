"""Texts with personal data, and its matches in them."""

import pyarrow as pa
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages import Pii
from etl.text.pii_patterns import find_matches
from tests.helpers.tricky_text import TRICKY

PIECES = [
    *(
        "foo@bar.com",
        "müller@b-c.de",
        "a@b",
        "@",
        "x_y.z",
        "81.2.69.142",
        "1.2.3.4",
        "2a00:1450::8",
        "::",
        "208.67.222.222",
    ),
    *("o'brien@example.com", '"john doe"@b.de', "иван@пример.рф", "用户@例子.中国", "東@a.com"),
    *("DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32"),
    *(
        "4111111111111111",
        "4111 1111 1111 1111",
        "3782-822463-10005",
        "+49 30 1234567",
        "+491234567",
        "+1234567890",
    ),
    *(
        "0049 30 12345678901",
        "(212) 555-1234",
        "212-555-1234",
        "01 23 45 67 89",
        "030/1234567",
        "(030) 123456",
    ),
    *("138 1234 5678", "03\u00a01234\u20115678", "8 (495) 123-45-67", "(11) 91234-5678"),
    *("12", "0", "1", "2020", "ISBN", "Euro"),
    *(
        "'",
        '"',
        "$",
        "%",
        "€",
        " ",
        " ",
        ".",
        "-",
        "/",
        ":",
        "(",
        ")",
        "+",
        "_",
        ",",
        "\n",
        "\u00a0",
        "\u202f",
        "\u2011",
        "é",
        "東",
        "😀",
    ),
]


texts = (
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
    | st.lists(st.sampled_from(PIECES[:-25]), max_size=8).map(" ".join)
    | st.text(st.sampled_from("0123456789+-./() @:aF"), max_size=40)
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)


def matches(kind, documents) -> list[list[str]]:
    array = pa.array(["1", *documents, "a@b.de"], pa.string())[1:-1]
    whole = buffers(array)
    spans = find_matches(kind, whole, public_ips_only=True)
    pieces = [
        bytes(whole.data[a:b]).decode() for a, b in zip(spans.starts, spans.ends, strict=True)
    ]
    return [pieces[a:b] for a, b in zip(spans.first_span, spans.first_span[1:], strict=False)]


def table(documents) -> pa.Table:
    return pa.table({"text": pa.array(documents, pa.string())})


def masked(documents, **settings) -> list[dict]:
    return Pii(**settings).apply(table(documents)).to_pylist()
