"""Compare matches of personal data with matching at every byte."""

import re
from ipaddress import ip_address

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.text.pii_patterns import _KINDS, KINDS, _iban, _is_luhn, _is_reserved, find_matches
from tests.helpers.personal_data import masked, matches, texts


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
