"""Pages that are hard to read: pieces of HTML, short pages and hostile ones of a million bytes."""

from typing import Final

PIECES: Final = [
    *(b"<", b">", b'"', b"'", b"<!--", b"-->", b"</", b"<p>", b"</p>", b"<table>", b"<tr>", b"<td>", b"</a>", b"<a>"),
    *(b"<svg>", b"<math>", b"</math>", b"<annotation encoding='application/x-tex'>", b"<script>", b"</script>"),
    *(b"<script type='math/tex'>", b"<script type='application/ld+json'>", b'"datePublished":"', b"&", b"&#"),
    *(b"&#x", b";", b"<li>", b"<ol>", b"<ul>", b"<pre>", b"<br>", b"<select>", b"<template>", b"<button>", b"\0"),
    *(b"<![CDATA[", b"=", b"/", b"/>", b"<h1>", b"</h1>", b"&nGt;", b"<noscript>", b"\xe2\x80\xa6", b"\xc2\xa0"),
    *(b"\xc2", b"<ruby>", b"<rt>", b"<rtc>", b"<rb>", b"<title>", b"</title>", b"<meta name=date content='"),
    *(b"<img class=tex alt='", b"<link rel=license href=", b"<html lang=", b" hidden", b" style='display:none'"),
]
"""Pieces from which pages are made, and with which they are mutated."""

SMALL: Final = [
    b"",
    b"<",
    b"<a",
    b"</",
    b"</a",
    b"<!",
    b"<!-",
    b"<!--",
    b"<!---",
    b"<!-->",
    b"<?",
    b"&",
    b"&#",
    b"&#x",
    b"\0",
    b"\xc2",
    b"\xe3\x80",
    b"<p>\x80",
    b"<title>",
    b"<script>",
    b"<a b=",
    b"<a b='",
    b"<a b",
    b"<br",
    b"<pre>",
    b"<pre>\r",
    b"<svg><![CDATA[",
    b"%PDF-1.4\n\xff\xfe\0",
    bytes(range(256)),
]
"""Pages that end where more is expected."""

_SIZE: Final = 1_000_000


def _repeat(piece: bytes, size: int = _SIZE) -> bytes:
    return piece * (size // len(piece))


HOSTILE: Final = {
    "no markup": _repeat(b"word "),
    "one long line": _repeat(b"x"),
    "only white space": _repeat(b" \n"),
    "only NUL": _repeat(b"\0"),
    "only <": _repeat(b"<"),
    "only &": _repeat(b"&"),
    "only &#x": _repeat(b"&#x"),
    "only <!--": _repeat(b"<!--"),
    "only </": b"<script>" + _repeat(b"</"),
    "long names of entities": _repeat(b"&" + b"a" * 40),
    "growing entities": _repeat(b"&nGt;"),
    "nested div": _repeat(b"<div>") + b"x" + _repeat(b"</div>"),
    "nested inline": _repeat(b"<b><i><a><span>x"),
    "nested tables": _repeat(b"<table><tr><td>x"),
    "unclosed p": _repeat(b"<p>x"),
    "unclosed li below 500 div": b"<li><ul>" + b"<div>" * 500 + _repeat(b"<li></li>"),
    "</p> below 500 span": b"<p><button>" + b"<span>" * 500 + _repeat(b"</p>"),
    "formatting left open": _repeat(b"<a><div>") + _repeat(b"</a></div>"),
    "one attribute": b"<div class='" + _repeat(b"article ") + b"'>x",
    "many attributes": b"<div " + _repeat(b"class=a id=b ") + b">x",
    "unclosed quote": b"<a href='" + _repeat(b"x"),
    "one style": b"<p style='" + _repeat(b"display:nondisplay:non") + b"'>x",
    "styles": _repeat(b"<style>"),
    "line breaks": _repeat(b"a<br>"),
    "svg": _repeat(b"<svg><p>"),
    "CDATA": b"<svg>" + _repeat(b"<![CDATA[ ]>"),
    "unclosed annotations": b"<math>" + _repeat(b"<annotation encoding='application/x-tex'>"),
    "formulas": _repeat(b"<script type='math/tex'>x</script>"),
    "dates": b"<script type='application/ld+json'>" + _repeat(b'"datePublished"'),
    "titles": _repeat(b"<title>"),
    "meta": _repeat(b"<meta name=date content=a>"),
    "lists": _repeat(b"<ol><li>a<li>b"),
    "rows": b"<table>" + _repeat(b"<tr><td>a<td>b"),
    "ruby": _repeat(b"<ruby>a<rt>b<rtc>c"),
}
"""Pages of a million bytes or more that some parser is slow or deep for."""
