"""Words of Chinese, Japanese and Korean against the libraries that find them, and what is missing."""

import importlib.util
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.stages import FinewebQuality, GopherQuality
from etl.text import segmenters
from etl.text.segmenters import MAX_CHARS, find_words

installed = pytest.mark.skipif(
    any(
        importlib.util.find_spec(name) is None
        for names in segmenters.PACKAGES.values()
        for name in names
    ),
    reason="needs the extra segmenters: pip install 'tokenlake[segmenters]'",
)
TEXT = {
    "ja": "吾輩は猫である。名前はまだ無い。\n",
    "ko": "나는 학교에 갔다. 비가 왔다.\n",
    "zh": "我来到北京清华大学。天气很好。\n",
}
PIECES = [
    "吾輩は猫",
    "である。",
    "학교에 갔다",
    "했",
    "北京清华",
    "大学",
    " ",
    "\n",
    "a1",
    "😀",
    "…",
    "\u3000",
]


def words(text: str, language: str) -> list[str]:
    return [text[first:last] for first, last in find_words(text, language).tolist()]


@installed
@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("zh", "我来到北京清华大学。\n", "我 来到 北京 清华大学 。"),
        ("ja", "吾輩は猫である。 名前", "吾輩 は 猫 で ある 。 名前"),
        ("ko", "나는 학교에 갔다.", "나 는 학교 에 갔 갔 다 ."),  # 가 and 었 are both in 갔
    ],
)
def test_words_are_those_of_the_library(language, text, expected):
    assert words(text, language) == expected.split()


@installed
@pytest.mark.parametrize("language", segmenters.PACKAGES)
@settings(max_examples=30, deadline=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_words_are_ranges_of_the_text_in_order(language, text):
    found = find_words(text, language)
    assert found.shape == (len(found), 2)
    assert (found[:, 0] < found[:, 1]).all()
    assert (found[:-1, 0] <= found[1:, 0]).all()
    assert all(0 <= first < last <= len(text) for first, last in found.tolist())
    covered = {k for first, last in found.tolist() for k in range(first, last)}
    assert all(text[k].isspace() for k in {*range(len(text))} - covered)


@installed
@pytest.mark.parametrize("language", ["ja", "zh"])
def test_a_long_text_is_read_in_lines(language):
    line = TEXT[language]
    text = line * (2 * MAX_CHARS // len(line))
    assert words(text, language) == words(line, language) * (2 * MAX_CHARS // len(line))


@installed
def test_a_long_run_is_cut():
    text = "東" * (2 * MAX_CHARS + 5)
    assert "".join(words(text, "ja")) == text  # SudachiPy alone refuses it


@installed
def test_a_long_number_does_not_move_the_words_after_it():
    assert words("번호 12345678901234567890123 학교", "ko") == ["번호", "학교"]


def test_a_missing_package_is_an_error_with_the_command_that_installs_it(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(segmenters, "version", missing)
    for stage in (GopherQuality(words="dictionary"), FinewebQuality(words="dictionary")):
        with pytest.raises(RecipeError) as error:
            stage.identity()
        assert "sudachipy, which is not installed" in str(error.value)
        assert "pip install 'tokenlake[segmenters]'" in str(error.value)
    GopherQuality().identity()  # needs none


@installed
def test_versions_are_part_of_the_identity():
    identity = GopherQuality(words="dictionary").identity()
    assert identity["sudachidict_core"] == segmenters.identity()["sudachidict_core"]
    assert {"jieba", "kiwipiepy", "kiwipiepy_model", "sudachipy", "model"} <= {*identity}
    assert "jieba" not in GopherQuality(languages="fineweb2").identity()
