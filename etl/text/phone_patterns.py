"""The patterns of telephone numbers, and of other numbers with the same digits and separators.

A number in international form must begin with a country's calling code. National forms match where one is
common and few other numbers have it; the examples of numbers that are not matched are in the golden file of
the stage.
"""

import re
from typing import Final, NamedTuple

Span = tuple[int, int]

SPACE = rb"(?:[ ]|\xc2\xa0|\xe2\x80\xaf)"  # includes the no-break spaces U+00A0 and U+202F
_GAP = rb"(?:[ ./-]|\xc2\xa0|\xe2\x80[\xaf\x91])"  # includes the no-break hyphen U+2011
ALONE = rb"(?<![\w.+\#/=@-]) (?<!\d[ :]) (?<!\d\xc2\xa0) (?<!\d\xe2\x80[\xaf\x91])"
END = rb"(?![\w@]) (?! %s \d) (?!:\d) (?!\.\w)" % _GAP


class _PhoneFormat(NamedTuple):
    """A format of phone numbers: a pattern and a range for the number of digits."""

    pattern: re.Pattern[bytes]
    min_digits: int
    max_digits: int


def _phone_format(pattern: bytes, min_digits: int, max_digits: int) -> _PhoneFormat:
    parts = {
        b"alone": ALONE,
        b"gap": _GAP,
        b"space": SPACE,
        b"digits": rb"(?: %s? \d )" % _GAP,
        b"area": rb"[2-9] (?!11) [0-8] \d",  # the North American Numbering Plan; N11 are services
    }
    whole = re.compile(pattern % parts + END, re.VERBOSE)
    return _PhoneFormat(whole, min_digits, max_digits)


_PHONES: Final = (
    # +49 30 1234567: E.164 allows at most 15 digits; a minimum of 9 is chosen here. Not a decimal fraction.
    _phone_format(
        rb"(?<![\w+]) \+ (?! \d+ \. \d+ (?! %(gap)s? \d ) ) [1-9] %(digits)s{8,14}", 9, 15
    ),
    # +49 (0)30 1234567
    _phone_format(rb"(?<![\w+]) \+ [1-9]\d{0,2} %(gap)s? \( \d{1,5} \) %(digits)s{4,14}", 9, 15),
    # 0049 30 1234567, 0049 (0)30 1234567
    _phone_format(rb"%(alone)s 00 (?= \d+ %(gap)s ) [1-9] %(digits)s{8,14}", 11, 17),
    _phone_format(rb"%(alone)s 00 [1-9]\d{0,2} %(gap)s? \( \d{1,5} \) %(digits)s{4,14}", 11, 17),
    # (212) 555-1234, 1 (212) 555 1234: North America
    _phone_format(rb"(?<!\w) \( %(area)s \) (?: %(space)s | - )? [2-9]\d\d [ .-] \d{4}", 10, 10),
    _phone_format(rb"%(alone)s 1 %(gap)s \( %(area)s \) %(space)s? [2-9]\d\d [ .-] \d{4}", 11, 11),
    # 212-555-1234, 1.212.555.1234: North America
    _phone_format(rb"%(alone)s (?: 1 [ .-] )? %(area)s ([.-]) [2-9]\d\d \1 \d{4}", 10, 11),
    # 01 23 45 67 89: France. Not a row of hex bytes.
    _phone_format(
        rb"%(alone)s (?<! [0-9A-Fa-f]{2}[ ] ) 0[1-9] (%(gap)s) \d\d (?: \1 \d\d ){3}"
        rb"(?! [ ] [0-9A-Fa-f]{2} \b )",
        10,
        10,
    ),
    # 030/1234567, 020 7946 0958, 03-1234-5678: Germany, United Kingdom, Japan ...
    _phone_format(
        rb"%(alone)s 0[1-9]\d{0,4} (?: %(space)s? / %(space)s? | %(space)s | - ) \d{3,8}"
        rb"(?: (?: %(space)s | - ) \d{1,4} ){0,3}",
        9,
        11,
    ),
    # 012 34 56 78, 0450 00 12 34, 044/668.18.00: Belgium, Switzerland, Austria ...
    _phone_format(rb"%(alone)s 0[1-9]\d{1,2} [ /-] \d\d ([ .-]) \d\d \1 \d\d", 9, 10),
    # (030) 1234567
    _phone_format(
        rb"(?<!\w) \( 0[1-9]\d{0,4} \) %(space)s? \d{3,8} (?: (?: %(space)s | - ) \d{1,4} ){0,3}",
        9,
        11,
    ),
    # 138 1234 5678: mobile phones in China
    _phone_format(rb"%(alone)s 1[3-9]\d ([ -]) \d{4} \1 \d{4}", 11, 11),
    # 8 (495) 123-45-67, 8-800-555-35-35: Russia and Kazakhstan
    _phone_format(
        rb"%(alone)s 8 (?: %(space)s? \( [3-9]\d\d \) %(space)s? | ([ -]) [3-9]\d\d [ -] )"
        rb"\d{3} [ -] \d\d [ -] \d\d",
        11,
        11,
    ),
    # (11) 91234-5678: Brazil
    _phone_format(rb"(?<!\w) \( [1-9]\d \) %(space)s? (?: 9\d{4} | [2-5]\d{3} ) - \d{4}", 10, 11),
)

_CALLING: Final = re.compile(
    r"""1 [2-9] (?!11) [0-8] \d [2-9] \d{6} | 7 [3-9] \d{9}
    | (?: 2 (?: [07] | 1[1-368] | [2-46]\d | 5[0-8] | 9[017-9] ) | 3 (?: [0-469] | [57]\d | 8[0-35-79] )
        | 4 (?: [013-9] | 2[013] ) | 5 (?: [1-8] | [09]\d ) | 6 (?: [0-6] | 7[02-9] | 8[0-35-9] | 9[0-2] )
        | 8 (?: [1246] | 0[08] | 5[02356] | 7[08] | 8[0-368] )
        | 9 (?: [0-58] | 6[0-8] | 7[0-79] | 9[2-68] ) ) (?!00) \d+""",
    re.VERBOSE,
)
"""A calling code that is assigned (ITU-T E.164, list of 2016 and later bulletins) and a number.

Two zeros do not begin a number, and in North America and Russia numbers have a fixed length and form. So most
integers and amounts with a plus sign are not phone numbers: +2147483647, +1 000 000 000.
"""

_OTHERS: Final = re.compile(
    r"""\d{2,3} [ /-] (?:1[89]|20)\d\d [ -] (?:1[89]|20)\d\d  # 03 2019 2020: a number and years
    | \( \d\d \) [ ]? (?:1[89]|20)\d\d - (?:1[89]|20)\d\d  # (11) 2019-2020: a volume and years
    | 0\d / (?:1[89]|20)\d\d [ -] \d+                    # 01/2020-123: a number of a year
    | 0\d[0-5]\d - [0-2]\d[0-5]\d [ ] \d\d?      # 0930-1200 15 (March)
    | 0\d\d-\d{3}-\d\d-\d                        # 016-001-00-4: an index number of a chemical (CLP)
    | 1\d\d [ ] \d\d00 [ ] \d\d00                # 150 2000 3000
    | \+ .* [ .] 000 [ .] 000                    # +49 000 000 000
    | \+ \d\d \. \d{4,} - \d{3} \. \d+ .*       # +40.1213-075.0015: a place (ISO 6709)""",
    re.VERBOSE,
)

_IDENTIFIER: Final = re.compile(
    rb"""(?: \b (?: CAS | DOI | EAN | GTIN | ID | IMEI | ISBN | ISIN | ISSN | NDC | OCLC | PID | PMID | UPC )
    (?: -1[03] )? [ -]? (?: No | Nr | number | Nummer )? [ .:\#]{0,3}
    | (?: [$] | \xc2[\xa3\xa5\xb1] | \xe2\x82\xac | \b (?: CHF | EUR | GBP | USD ) ) [ ]? ) \Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""What precedes a number that identifies something else, or an amount."""
_MAX_IDENTIFIER_BYTES: Final = 24
_UNIT: Final = re.compile(
    SPACE
    + rb"? (?: [%$] | \xc2[\xa3\xa5\xb0] | \xe2\x82\xac | \xe2\x80\xb0 | (?: EUR | Euro | USD )\b )",
    re.VERBOSE,
)


def match_phone(text: memoryview, offset: int) -> Span | None:
    """Return the span of the number that begins at an offset."""
    for phone in _PHONES:
        match = phone.pattern.match(text, offset)
        if match is None:
            continue
        number = re.sub(r"[\u00a0\u202f]", " ", match[0].decode()).replace("\u2011", "-")
        digits = re.sub(r"\D", "", number)
        if phone.min_digits <= len(digits) <= phone.max_digits and _is_phone(number, digits):
            start, end = match.span()
            preceding = bytes(text[max(start - _MAX_IDENTIFIER_BYTES, 0) : start])
            is_other = _IDENTIFIER.search(preceding) or _UNIT.match(text, end)
            return None if is_other else (start, end)
    return None


def _is_phone(number: str, digits: str) -> bool:
    """Return whether a number with the format of a phone number can be one."""
    if number.startswith(("+", "00")) and not _CALLING.fullmatch(digits.removeprefix("00")):
        return False
    pairs = re.findall(r"\b\d\d\b", number)
    if len(pairs) == 5 and len(digits) == 10:
        is_ascending = pairs == sorted(set(pairs)) and pairs[-1] < "50"  # 03 12 25 31 44: a draw
        is_chapter = sum(pair.startswith("0") for pair in pairs) >= 4  # 02.02.10.02.03
        if is_ascending or is_chapter:
            return False
    return not _OTHERS.fullmatch(number)
