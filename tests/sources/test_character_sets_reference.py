"""Decoding is as fast as today's and has the results of a plain implementation."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.sources.formats.character_sets import decode_text
from etl.sources.formats.odd_characters import odd_ratio
from tests.helpers import naive_character_sets as naive
from tests.sources.test_character_sets import SENTENCES

ENCODINGS = (
    *("utf-8", "cp1252", "cp1251", "gb18030", "cp932", "euc_jp", "big5", "cp949", "koi8-u"),
    *("utf-16-le", "iso2022_jp", "cp850", "cp1256", "mac-roman"),
)
LABELS = (None, "utf-8", "iso-8859-1", "windows-1251", "gbk", "shift_jis", "unknown", "ISO-8859-15")
ODD = st.sampled_from([*"\0aZé’ßİФж世界ʼ́\u0301\ufffd©½\u0600ئأ\uff41\uff21\U00010428 .,0\x85\xa0"])
TEXTS = st.text(ODD, max_size=60) | st.sampled_from([*SENTENCES.values()]) | st.text(max_size=40)
META = st.sampled_from(LABELS).map(lambda label: f"<meta charset={label}>" if label else "")


@given(TEXTS)
@example("é" * 5000 + "©")
@example("a" * 65_534 + "éЖé" + "a" * 10 + "ж©")
@example("aÀ\uff41À")
def test_odd_ratio(text: str) -> None:
    assert odd_ratio(text) == naive.odd_ratio(text)


@given(
    st.lists(TEXTS, max_size=5),
    META,
    st.sampled_from(ENCODINGS),
    st.sampled_from(LABELS),
    st.binary(max_size=5),
)
@settings(max_examples=300)
def test_decoded_text(texts: list[str], meta: str, encoding: str, label: str, noise: bytes) -> None:
    content = (meta + " ".join(texts)).encode(encoding, "replace") + noise
    for each, declared in ((content, label), (content * 3, None)):
        decoded, expected = decode_text(each, declared), naive.decode_text(each, declared)
        assert (decoded.text, decoded.encoding, decoded.bad) == tuple(expected)
        assert decoded.is_noise == expected.is_noise
        assert decoded.starts_with_binary_data(4) == ("\0" in expected.text[:4])
