"""Hosts as browsers see them: each case has the result of Node.js 20.20 for a URL with that host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.text.hosts import normalize_host

CASES = {
    "Example.COM": "example.com",
    "example.com.": "example.com",
    "_dmarc.-a.a-.ab--c": "_dmarc.-a.a-.ab--c",
    "*.example": "*.example",
    "a..b": "a..b",
    "": None,
    "..": None,
    "a b": None,
    "a\x00b": None,
    "a<b": None,
    "a:80": None,  # a host and a port
    "user@a": None,  # a user and a host
    # percent signs
    "ex%61mple.com": "example.com",
    "b%C3%BCcher.example": "xn--bcher-kva.example",
    "a%2Eb": "a.b",
    "a%00b": None,
    "a%2Fb": None,
    "a%ffb": None,
    "a%": None,
    # UTS 46
    "bücher.example": "xn--bcher-kva.example",
    "bu\u0308cher.example": "xn--bcher-kva.example",
    "BÜCHER．example": "xn--bcher-kva.example",
    "XN--BCHER-KVA.example": "xn--bcher-kva.example",
    "ｅｘａｍｐｌｅ。ｃｏｍ": "example.com",
    "example｡com": "example.com",
    "faß.de": "xn--fa-hia.de",
    "xn--fa-hia.de": "xn--fa-hia.de",
    "ΑΣ.gr": "xn--mxa0b.gr",
    "i❤.ws": "xn--i-7iq.ws",
    "👍": "xn--yp8h",
    "a†--": "xn--a---kp0a",
    "≠": "xn--1ch",
    "℡.example": "tel.example",
    "a\u00adb": "ab",
    "\u00ad": None,
    "℀.com": None,
    "\ufffd.com": None,
    "\u0301a.com": None,
    "xn--a": None,
    "xn--": None,
    "xn--tešla": None,
    "xn--zn7c.com": None,
    # joiners and direction
    "क\u094d\u200dष": "xn--11b2ezcw70k",
    "a\u200db": None,
    "1.\u064a": "1.xn--mhb",
    "0à.א": "xn--0-sfa.xn--4db",
    "\u064aa": None,
    "xn--a-yoc": None,
    # IPv4
    "127.0.0.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "0X7F000001": "127.0.0.1",
    "017700000001": "127.0.0.1",
    "1.2.772": "1.2.3.4",
    "1.2.3.4.": "1.2.3.4",
    "１．２．３．４": "1.2.3.4",
    "0x": "0.0.0.0",
    "4294967295": "255.255.255.255",
    "4294967296": None,
    "256.1": None,
    "1.2.3.4.5": None,
    "1..2": None,
    "08.1": None,
    "a.0x7f": None,
    "a.1": None,
    "1.a": "1.a",
    "१.२": "xn--e4b.xn--f4b",
    # IPv6
    "[::1]": "[::1]",
    "[0:0:0:0:0:0:0:1]": "[::1]",
    "[2001:DB8:0:0:1:0:0:1]": "[2001:db8::1:0:0:1]",
    "[1:0:2:3:4:5:6:7]": "[1:0:2:3:4:5:6:7]",
    "[::ffff:1.2.3.4]": "[::ffff:102:304]",
    "[::1.2.3.4]": "[::102:304]",
    "[::1%25eth0]": None,
    "[::1": None,
    "[::1]a": None,
    "[1::2::3]": None,
    "[]": None,
    "::1": None,
}


@pytest.mark.parametrize(("text", "host"), CASES.items())
def test_hosts_are_those_of_browsers(text, host):
    assert normalize_host(text) == host


def test_a_host_of_any_length_is_read():
    assert normalize_host("a." * 400 + "ü") == "a." * 400 + "xn--tda"
    for text in (
        "1" * 5000,
        "a" * 100_000,
        "%41" * 100_000,
        "[" + "1:" * 100_000 + "]",
        "ü" * 100_000,
    ):
        assert normalize_host(text) is None


@given(st.text(max_size=20) | st.text("aé.%41xn-ßא１0。[:]", max_size=12))
def test_normalized_hosts_are_in_ascii_and_stay_the_same(text):
    host = normalize_host(text)
    if host is not None:
        assert host == host.encode("ascii").decode().lower()
        assert normalize_host(host) == normalize_host(host.upper()) == host
