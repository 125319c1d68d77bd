"""Compare matches of personal data with matching at every byte; masking is complete and exact."""

import re
from ipaddress import ip_address

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages import Pii
from etl.text.pii_patterns import _KINDS, KINDS, _iban, _is_luhn, _is_reserved, find_matches
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
    ),
    *("DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32"),
    *(
        "4111111111111111",
        "4111 1111 1111 1111",
        "3782-822463-10005",
        "+49 30 1234567",
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
    *("138 1234 5678", "03\u00a01234\u20115678", "12", "0", "1", "2020"),
    *(
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
    | st.lists(st.sampled_from(PIECES[:-20]), max_size=8).map(" ".join)
    | st.text(st.sampled_from("0123456789+-./() @:aF"), max_size=40)
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)
MASK = re.compile("<(?:EMAIL|IP|IBAN|CARD|PHONE)>")


def table(documents) -> pa.Table:
    return pa.table({"text": pa.array(documents, pa.string())})


def masked(documents, **settings) -> list[dict]:
    return Pii(**settings).apply(table(documents)).to_pylist()


def matches(kind, documents) -> list[list[str]]:
    array = pa.array(["1", *documents, "a@b.de"], pa.string())[1:-1]
    whole = buffers(array)
    spans = find_matches(kind, whole, public_ips_only=True)
    pieces = [
        bytes(whole.data[a:b]).decode() for a, b in zip(spans.starts, spans.ends, strict=True)
    ]
    return [pieces[a:b] for a, b in zip(spans.first_span, spans.first_span[1:], strict=False)]


def naive(kind, text: str) -> list[str]:
    """Try the kind's pattern at every byte, and start again after each match."""
    rest, offset, result = memoryview(text.encode()), 0, []
    while offset < len(rest):
        if match := _KINDS[kind][1](rest, offset):
            result.append(bytes(rest[slice(*match)]).decode())
            rest, offset = rest[match[1] :], 0
        else:
            offset += 1
    return result


@settings(max_examples=150)
@given(st.lists(texts, max_size=3), st.sampled_from(KINDS))
@example(["+(1)2-3-4-5-6-7-8-9", "(0301) 23456", "1"], "phone")
def test_no_candidate_is_missed(documents, kind):
    assert matches(kind, documents) == [naive(kind, text) for text in documents]


@settings(max_examples=150)
@given(st.lists(texts, max_size=3))
@example(["+49 30 12345678901 4111 1111 1111 1111", "4111111111111111:0049 30 12345678"])
@example(["2020::DE89370400440532013000"])
@example(["+100000000)010000/000", "+100000000 (0301) 2345678"])
@example(["2a00:1450::81.2.3.4", "2a00:1:2:3:4:5::81.2.69.142", "2a00::1:2:3:4:5:81.2.69.142"])
def test_masked_text_has_no_more_matches(documents):
    once = masked(documents)
    twice = masked([row["text"] for row in once])
    assert [row["text"] for row in twice] == [row["text"] for row in once]
    for text, row, again in zip(documents, once, twice, strict=True):
        assert {*again.values()} == {again["text"], 0}
        if not MASK.search(text):
            assert sum(list(row.values())[1:]) == len(MASK.findall(row["text"]))


@given(st.lists(texts, min_size=1, max_size=3))
def test_text_outside_the_matches_is_unchanged(documents):
    for text, row in zip(documents, masked(documents), strict=True):
        if not MASK.search(text):
            kept = map(re.escape, MASK.split(row["text"]))
            assert re.fullmatch("(.+)".join(kept), text, re.DOTALL)


def test_text_without_matches_is_not_copied():
    before = table(["no data" * 10, None, ""])  # fewer than 64 bytes would be copied
    for stage in (Pii(), Pii(action="reject")):
        after = stage.apply(before)
        assert buffers(after["text"]).data.ctypes.data == buffers(before["text"]).data.ctypes.data
    assert Pii().apply(before).to_pylist()[1] == dict.fromkeys(["text", *Pii().columns()])


@given(st.lists(texts, max_size=3))
def test_reject_counts_like_mask_and_does_not_change_the_text(documents):
    stage = Pii(action="reject")
    result = stage.apply(table(documents))
    assert result["text"].to_pylist() == documents
    counts = [*stage.columns()]
    assert result.select(counts).equals(Pii().apply(table(documents)).select(counts))


@settings(max_examples=200)
@given(st.text(st.sampled_from("ab1._%+-@ é東"), max_size=25))
def test_email_addresses_agree_with_a_single_expression(text):
    label = "[a-z0-9é](?:[a-z0-9é-]*[a-z0-9é])?"
    local = r"[a-z0-9é_][a-z0-9é._%+-]*(?<!\.)"
    expression = rf"{local}@(?:{label}\.)+[a-z]{{2,63}}(?![a-z0-9_])"
    assert matches("email", [text]) == [re.findall(expression, text)]


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
@example(ip_address("2000::"))
@example(ip_address("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
@example(ip_address("223.255.255.255"))
@example(ip_address("224.0.0.0"))
def test_exactly_the_public_ip_addresses_match(address):
    is_low = address.version == 4 and max(address.packed) < 32
    public = not is_low and not _is_reserved(address)
    assert matches("ip", [f"at {address}."]) == [[str(address)] if public else []]
    spans = find_matches("ip", buffers(pa.array([str(address)])), public_ips_only=False)
    is_name = not any(map(str.isdigit, str(address)))
    assert spans.counts().tolist() == [not (is_low or is_name)]
    if public and address.version == 4:
        assert address.is_global


def test_reserved_addresses_agree_with_the_standard_library():
    for first in range(256):
        address = ip_address(f"{first}.200.200.200")
        assert _is_reserved(address) == (not address.is_global or address.is_multicast)


@given(st.from_regex(r"[0-9]{12,18}", fullmatch=True), st.data())
def test_one_wrong_digit_of_a_card_is_detected(digits, data):
    (whole,) = [digits + last for last in "0123456789" if _is_luhn(digits + last)]
    index = data.draw(st.integers(0, len(digits)))
    other = data.draw(st.sampled_from([d for d in "0123456789" if d != whole[index]]))
    assert not _is_luhn(whole[:index] + other + whole[index + 1 :])


@given(st.from_regex(r"[0-9]{18}", fullmatch=True), st.data())
def test_one_wrong_digit_of_an_iban_is_detected(account, data):
    check = 98 - int(f"{account}131400") % 97  # ISO 13616; DE is 13 14
    whole = f"DE{check:02}{account}".encode()
    assert _iban(memoryview(whole), 0) == (0, 22)
    index = data.draw(st.integers(2, 21))
    other = data.draw(st.sampled_from([d for d in b"0123456789" if d != whole[index]]))
    wrong = whole[:index] + bytes([other]) + whole[index + 1 :]
    assert _iban(memoryview(wrong), 0) is None


def test_long_runs_take_linear_time_and_do_not_match():
    runs = [
        "a" * 200_000,
        "@" * 100_000,
        "a.@" * 50_000,
        "1 " * 100_000,
        "1:" * 100_000,
        "é" * 100_000,
    ]
    runs += [
        "0" * 200_000,
        "+1" * 100_000,
        "AB12" * 50_000,
        "-" * 100_000 + "@a.de",
        "a@" + "a-" * 50_000,
    ]
    for row, text in zip(masked(runs), runs, strict=True):
        assert row["text"] == text


def test_invalid_settings_are_rejected():
    with pytest.raises(ValidationError, match="find.0"):
        Pii(find=["mail"])
    with pytest.raises(ValidationError, match="masks.mail"):
        Pii.model_validate({"masks": {"mail": "x"}})


def test_real_documents(data):
    documents = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"])
    result = Pii().apply(documents)
    totals = {name: sum(result[name].to_pylist()) for name in Pii().columns()}
    assert totals["pii_emails"] > 500
    assert totals["pii_cards"] + totals["pii_ibans"] == 0
    again = Pii().apply(result.select(["text"]))
    assert {sum(again[name].to_pylist()) for name in Pii().columns()} == {0}
