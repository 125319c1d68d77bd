"""Character sets that pages do not declare, or declare wrongly."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.sources.formats.character_sets import decode_text
from etl.sources.formats.odd_characters import odd_ratio
from tests.helpers import naive_character_sets as naive

SENTENCES = {
    "Arabic": "هذه فقرة عربية للكشف عن ترميز الأحرف، والقاهرة هي عاصمة مصر وهي مدينة كبيرة جدا.",
    "Chinese": "这是一个用于检测字符编码的段落。北京是中国的首都，也是一个历史悠久的城市，人口众多。",
    "Taiwanese": "這是一個用於檢測字元編碼的段落。台北是台灣的首都，也是一個歷史悠久的城市，人口眾多。",
    "Czech": "Toto je český odstavec pro zjištění kódování. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "French": "Ceci est un paragraphe français. L'été, la forêt, où ça ? Noël, naïve, déjà très âgé.",
    "German": "Dies ist ein deutscher Absatz. Größe, Äpfel, Öl, Übung und Straße sind schöne Wörter.",
    "Greek": "Αυτή είναι μια ελληνική παράγραφος για την κωδικοποίηση. Η Αθήνα είναι η πρωτεύουσα.",
    "Hebrew": "זוהי פסקה בעברית לזיהוי קידוד התווים. ירושלים היא בירת ישראל והיא עיר גדולה מאוד.",
    "Hungarian": "Ez egy magyar bekezdés a kódolás felismeréséhez. Árvíztűrő tükörfúrógép, őszi szőlő.",
    "Japanese": "これは日本語の文章です。文字コードを判定するための文章を用意しました。東京は首都です。",
    "Korean": "이것은 문자 인코딩을 감지하기 위한 한국어 단락입니다. 서울은 대한민국의 수도입니다.",
    "Lithuanian": "Tai yra lietuviška pastraipa koduotei nustatyti, ąžuolas, šventė, žmogus, ėjo, jūra.",
    "Polish": "To jest polski akapit do wykrywania kodowania. Zażółć gęślą jaźń, Łódź, źdźbło, mąż.",
    "Russian": "Это русский абзац для определения кодировки. Москва является столицей России.",
    "Thai": "นี่คือย่อหน้าภาษาไทยสำหรับการตรวจจับการเข้ารหัส กรุงเทพเป็นเมืองหลวงของประเทศไทย",
    "Turkish": "Bu kodlamayı algılamak için Türkçe bir paragraftır. İstanbul büyük bir şehir, çağ.",
    "Ukrainian": "Це український абзац для визначення кодування. Київ є столицею, їжак і ґанок.",
}
UNDECLARED = {
    "Arabic": ("cp1256", "iso8859-6"),
    "Chinese": ("gb18030", "utf-16-be"),
    "Taiwanese": ("big5",),
    "Czech": ("cp1250", "iso8859-2", "cp852"),
    "French": ("cp1252", "cp850", "mac-roman"),
    "German": ("cp1252", "cp850", "cp437", "mac-roman", "utf-16-le"),
    "Greek": ("cp1253", "iso8859-7"),
    "Hebrew": ("cp1255",),
    "Hungarian": ("cp1250", "iso8859-2"),
    "Japanese": ("iso2022_jp", "cp932", "euc_jp", "utf-16-le"),
    "Korean": ("cp949", "iso2022_kr", "utf-16-be"),
    "Lithuanian": ("cp1257",),
    "Polish": ("cp1250", "iso8859-2", "cp852"),
    "Russian": ("cp1251", "koi8-r", "iso8859-5", "cp866", "mac-cyrillic"),
    "Thai": ("cp874",),
    "Turkish": ("cp1254",),
    "Ukrainian": ("cp1251", "koi8-u"),
}


def page(language: str, head: str = "") -> str:
    return f"<html><head>{head}</head><body><p>{SENTENCES[language] * 3}</p></body></html>"


@pytest.mark.parametrize(
    ("language", "encoding"),
    [(language, encoding) for language, names in UNDECLARED.items() for encoding in names],
)
def test_undeclared_character_sets(language: str, encoding: str) -> None:
    text = page(language)
    assert decode_text(text.encode(encoding), None).text == text


@pytest.mark.parametrize(
    ("label", "encoding", "language"),
    [
        ("iso-2022-jp", "iso2022_jp", "Japanese"),
        ("shift_jis", "cp932", "Japanese"),
        ("euc-kr", "cp949", "Korean"),
        ("windows-1251", "cp1251", "Russian"),
        # wrong declarations
        ("utf-8", "iso2022_jp", "Japanese"),
        ("iso-8859-1", "iso2022_jp", "Japanese"),
        ("utf-8", "cp1250", "Polish"),
        ("iso-8859-2", "cp1250", "Polish"),
        ("utf-8", "utf-16-le", "German"),
    ],
)
def test_declared_character_sets(label: str, encoding: str, language: str) -> None:
    text = page(language, f'<meta http-equiv="Content-Type" content="text/html; charset={label}">')
    content = text.encode(encoding)
    assert decode_text(content, None).text == text
    assert decode_text(content, label).text == text


def test_control_characters_of_a_wrong_character_set_are_bad() -> None:
    decoded = decode_text(b"<p>one " + b"w\x81\x8d\x8f\x90\x9d " * 9, "iso-8859-1")
    assert decoded.is_noise
    assert not any("\x80" <= char <= "\x9f" for char in decoded.text)


def test_utf_8_with_damage_stays_utf_8() -> None:
    content = page("Russian").encode() + b"\xff" * 40
    decoded = decode_text(content, None)
    assert (decoded.encoding, decoded.bad, decoded.is_noise) == ("utf-8", 40, True)


@given(st.binary(max_size=300), st.none() | st.sampled_from(["utf-8", "iso-8859-2", "koi8-r"]))
def test_no_decoding_leaves_control_characters(content: bytes, label: str | None) -> None:
    decoded = decode_text(content, label)
    if not decoded.encoding.startswith("utf"):
        assert not any("\x80" <= char <= "\x9f" for char in decoded.text)
    assert decoded.bad == decoded.text.count("\ufffd")


# As the plain implementation

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
