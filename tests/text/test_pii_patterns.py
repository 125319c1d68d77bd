"""Compare matches of personal data with matching at every byte."""

import re
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.kernels.bytes.pii_candidates import LETTERS, SPACED, UNSPACED
from etl.kernels.bytes.utf8 import texts as buffers
from etl.text.email_pattern import _SPACED, _UNSPACED
from etl.text.pii_kinds import KINDS
from etl.text.pii_patterns import _KINDS, _iban, _is_luhn, _is_reserved, find_matches
from tests.helpers.personal_data import masked, matches, texts

ROOT = Path(__file__).parents[2]


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
@example("東a@東.ab")
def test_email_addresses_agree_with_a_single_expression(text):
    label = "[a-z0-9é東](?:[a-z0-9é東-]*[a-z0-9é東])?"
    local = r"[a-z0-9é_][a-z0-9é._%+-]*(?<!\.)"
    top = r"(?:[a-z]{2,63}(?![a-z0-9_])|(?![a-z0-9])[a-z0-9é]{2,63})"
    assert matches("email", [text]) == [re.findall(rf"{local}@(?:{label}\.)+{top}", text)]


def test_letters_are_those_of_the_candidates():
    for classes, pattern in ((SPACED, _SPACED), (UNSPACED, _UNSPACED)):
        letter = re.compile(pattern, re.VERBOSE)
        for point, actual in enumerate(LETTERS.tolist()):
            if point >= 0x80 and point not in range(0xD800, 0xE000):
                assert bool(letter.fullmatch(chr(point).encode())) == (actual == classes)


SAMPLES = (
    ("email", "o'brien@example.com"),
    ("email", '"john doe"@example.com'),
    ("email", '"a\\"b"@example.com'),
    ("email", "müller@bücher.example"),
    ("email", "иван@пример.рф"),
    ("email", "χρήστης@παράδειγμα.ελ"),
    ("email", "अजय@डाटा.भारत"),
    ("email", "用户@例子.中国"),
    ("email", "홍길동@example.kr"),
    ("email", "joe@xn--e1afmkfd.xn--p1ai"),
    ("ip", "81.2.69.142"),
    ("ip", "2a00:1450:4001:81b::200e"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("card", "4111 1111 1111 1111"),
    ("phone", "+49 30 1234567"),
    ("phone", "+1 (212) 555-1234"),
    ("phone", "0049 (0)30 1234567"),
    ("phone", "8 (495) 123-45-67"),
    ("phone", "(11) 91234-5678"),
    ("phone", "0450 00 12 34"),
)


@given(
    st.sampled_from(SAMPLES),
    st.text("abЖ東ก,;:!?(\n\t é", max_size=12).map(lambda text: text and f"{text} "),
    st.text("abЖ東ก,;:!?)\n\t é", max_size=12).map(lambda text: text and f" {text}"),
)
def test_matches_do_not_depend_on_the_text_around_them(sample, before, after):
    kind, text = sample
    assert matches(kind, [before + text + after, before + text + "," + after]) == [[text]] * 2
    spans = find_matches(kind, buffers(pa.array([before + text + after])))
    assert spans.starts.tolist() == [len(before.encode())]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("'joe@example.com'", "joe@example.com"),
        ("N'joe@example.com'", "joe@example.com"),
        ("'o'brien@example.com'", "o'brien@example.com"),
        ("d'info@example.com", "d'info@example.com"),
        ('name + "@example.com"', None),
        ('["a" + "@example.org/b"]', None),
        ('" "@example.com', None),
        ("使用@vue.js", None),
        ("ありがとう@taro.yamada", None),
        ("コード@mozilla.org/x", None),
        ("请写信给：用户@例子.公司谢谢", "用户@例子.公司"),
        ("메일foo@bar.com으로", "foo@bar.com"),
        ("ru: почта@example.com.", "почта@example.com"),
        ("راسلنا،علي@مثال.مصر", "علي@مثال.مصر"),
    ],
)
def test_quotes_and_scripts_without_spaces(text, address):
    assert matches("email", [text]) == [[address] if address else []]


@pytest.mark.parametrize("address", ["208.67.222.222", "149.112.112.112", "2606:4700:4700::1111"])
def test_name_servers_are_kept_unless_the_setting_says_otherwise(address):
    text = f"nameserver {address}"
    assert masked([text]) == masked([text], public_ips_only=False)
    assert masked([text])[0]["text"] == text
    assert masked([text], keep_resolvers=False)[0]["text"] == "nameserver <IP>"


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
@example(ip_address("2000::"))
@example(ip_address("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
@example(ip_address("223.255.255.255"))
@example(ip_address("224.0.0.1"))
def test_exactly_the_public_ip_addresses_match(address):
    is_version = address.version == 4 and (
        max(address.packed) < 32 or str(address).endswith(".0.0.0")
    )
    public = not is_version and not _is_reserved(address)
    assert matches("ip", [f"at {address}."]) == [[str(address)] if public else []]
    spans = find_matches("ip", buffers(pa.array([str(address)])), public_ips_only=False)
    is_name = not any(map(str.isdigit, str(address)))
    assert spans.counts().tolist() == [not (is_version or is_name)]
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


HOSTILE = (
    *(
        "a",
        "a.@",
        "1 ",
        "1:",
        "é",
        "0",
        "+1",
        "AB12",
        "a.a.a.a@",
        "(",
        "((((((",
        "1.",
        "1.1.1.1.",
        "...",
    ),
    *(
        '"',
        '"a',
        'a"@',
        '"a"@',
        '\\"',
        "'",
        "'a@",
        "用户",
        "用户@",
        "(0)",
        "+1 (",
        "0-",
        "::",
        "f:",
        "@",
    ),
    *("0 0", "8 (", "1234 ", "+49 30 ", "DE89 ", "a-", "@a.", "@a-", "x@é."),
)
"""Pieces whose repetitions try many candidates or long ones."""


@pytest.mark.slow
def test_time_is_linear():
    """A text of 200 KB takes a fraction of a second in linear time, and minutes in quadratic time."""
    code = """
from tests.helpers.personal_data import masked
from tests.text.test_pii_patterns import HOSTILE
for piece in HOSTILE:
    masked(["a@" + piece * (200_000 // len(piece)) + "@a.de"])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=ROOT)


def test_long_runs_do_not_match():
    runs = [piece * (8_000 // len(piece)) for piece in HOSTILE if piece != "+49 30 "]
    runs += ["-" * 10_000 + "@a.de", "a@" + "a-" * 10_000, "a@" + "a." * 10_000]
    for row, text in zip(masked(runs), runs, strict=True):
        assert row["text"] == text
