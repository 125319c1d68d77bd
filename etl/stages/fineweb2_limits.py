"""Named tables of filter limits per language, such as FineWeb-2's.

The table ``fineweb2`` has the values of FineWeb-2 (huggingface/fineweb-2, ``configs/*.yml`` at the commits
05e6729 and d331bee, each of which has the last version of some files; ODC-By 1.0; Penedo et al. 2025,
arXiv 2506.20920), derived from the Wikipedia of each language. It does not contain English, for which the
filters' own limits apply.

FineWeb-2 counts dictionary words in Chinese, Japanese and Thai and morphemes in Korean, and so do filters
with ``words: dictionary``, except in Thai. Otherwise, a word is a character or the text between two spaces
(``etl.kernels.words.spacy``). ``_CHOSEN`` has the limits that depend on this.
"""

from collections.abc import Collection, Mapping
from typing import Final, Literal

LimitsTable = Literal["fineweb2"]
Limits = dict[str, int | float | None]  # field of a filter -> its limit; None: no limit

_WORDS_AND_LINES: Final = (
    ("gopher_quality", "min_mean_word_length"),
    ("gopher_quality", "max_mean_word_length"),
    ("gopher_quality", "min_alpha_word_ratio"),
    ("fineweb_quality", "min_terminal_line_ratio"),
    ("fineweb_quality", "max_newline_word_ratio"),
    ("gopher_repetition", "max_duplicate_line_ratio"),
)
_FINEWEB2_WORDS_AND_LINES: Final = {
    "ar": (2, 9, 0.787, 0.143, 0.189, 0.304),
    "bg": (3, 10, 0.756, 0.154, 0.142, 0.317),
    "cs": (3, 11, 0.781, 0.06, 0.182, 0.311),
    "da": (3, 11, 0.798, 0.1, 0.182, 0.305),
    "de": (0, 15, 0.774, 0, 0.152, 0.263),
    "el": (3, 11, 0.809, 0.167, 0.116, 0.31),
    "es": (3, 14, 0.825, 0.182, 0.138, 0.252),
    "fa": (2, 9, 0.812, 0.2, 0.15, 0.246),
    "fi": (3, 14, 0.755, 0.114, 0.161, 0.293),
    "fr": (2, 11, 0.812, 0.1, 0.185, 0.264),
    "he": (2, 9, 0.799, 0.2, 0.126, 0.34),
    "hi": (2, 21, 0.837, 0.091, 0.316, 0.206),
    "hu": (3, 15, 0.766, 0.067, 0.231, 0.322),
    "id": (3, 12, 0.805, 0.111, 0.157, 0.241),
    "it": (3, 21, 0.807, 0.025, 0.2, 0.246),
    "ja": (1, 6, 0.759, 0.096, 0.13, 0.328),
    "ko": (1, 6, 0.791, 0.062, 0.196, 0.374),
    "lo": (2, 9, 0.85, 0, 0.2, 0.327),
    "nl": (3, 17, 0.828, 0.102, 0.154, 0.296),
    "no": (3, 12, 0.783, 0.107, 0.167, 0.283),
    "pl": (3, 12, 0.726, 0.087, 0.158, 0.32),
    "pt": (3, 13, 0.814, 0.077, 0.186, 0.287),
    "ro": (1, 14, 0.779, 0.081, 0.207, 0.289),
    "ru": (3, 11, 0.713, 0.231, 0.139, 0.322),
    "sv": (3, 12, 0.841, 0.2, 0.135, 0.292),
    "th": (2, 10, 0.9, 0, 0.153, 0.349),
    # From commit baedee4, the last one with Turkish; it has no limits for n-grams.
    "tr": (3, 21, 0.773, 0.2, 0.273, 0.303),
    "uk": (3, 11, 0.694, 0.167, 0.175, 0.3),
    "vi": (3, 11, 0.803, 0.333, 0.103, 0.293),
    "zh": (1, 5, 0.735, 0.106, 0.178, 0.287),
}

_N_GRAMS: Final = (
    *(("gopher_repetition", f"max_top_{n}gram_char_ratio") for n in range(2, 5)),
    *(("gopher_repetition", f"max_duplicate_{n}gram_char_ratio") for n in range(5, 11)),
)
_FINEWEB2_N_GRAMS: Final = {
    "ar": (0.197, 0.172, 0.146, 0.165, 0.153, 0.142, 0.131, 0.12, 0.109),
    "bg": (0.173, 0.157, 0.139, 0.17, 0.158, 0.144, 0.131, 0.12, 0.108),
    "cs": (0.206, 0.183, 0.165, 0.168, 0.157, 0.145, 0.133, 0.121, 0.109),
    "da": (0.367, 0.297, 0.232, 0.169, 0.158, 0.147, 0.134, 0.123, 0.112),
    "de": (0.169, 0.153, 0.137, 0.141, 0.134, 0.126, 0.117, 0.108, 0.098),
    "el": (0.194, 0.175, 0.156, 0.174, 0.163, 0.153, 0.142, 0.13, 0.119),
    "es": (0.156, 0.14, 0.125, 0.145, 0.136, 0.127, 0.117, 0.108, 0.099),
    "fa": (0.189, 0.164, 0.143, 0.157, 0.147, 0.137, 0.127, 0.117, 0.107),
    "fi": (0.253, 0.202, 0.179, 0.153, 0.143, 0.133, 0.122, 0.112, 0.101),
    "fr": (0.161, 0.149, 0.134, 0.15, 0.141, 0.131, 0.121, 0.111, 0.1),
    "he": (0.239, 0.202, 0.173, 0.16, 0.151, 0.14, 0.129, 0.118, 0.108),
    "hi": (0.208, 0.198, 0.161, 0.135, 0.125, 0.116, 0.108, 0.099, 0.09),
    "hu": (0.226, 0.198, 0.172, 0.169, 0.159, 0.148, 0.136, 0.124, 0.112),
    "id": (0.194, 0.166, 0.145, 0.166, 0.155, 0.144, 0.133, 0.122, 0.111),
    "it": (0.198, 0.156, 0.133, 0.144, 0.136, 0.127, 0.118, 0.109, 0.1),
    "ja": (0.239, 0.196, 0.172, 0.243, 0.225, 0.207, 0.19, 0.175, 0.159),
    "ko": (0.282, 0.228, 0.185, 0.201, 0.184, 0.168, 0.154, 0.14, 0.127),
    "lo": (0.198, 0.175, 0.143, 0.187, 0.175, 0.163, 0.149, 0.135, 0.123),
    "nl": (0.213, 0.182, 0.158, 0.156, 0.146, 0.136, 0.126, 0.115, 0.104),
    "no": (0.204, 0.175, 0.15, 0.146, 0.139, 0.128, 0.119, 0.11, 0.099),
    "pl": (0.222, 0.198, 0.176, 0.172, 0.16, 0.148, 0.136, 0.123, 0.111),
    "pt": (0.371, 0.191, 0.163, 0.163, 0.153, 0.141, 0.13, 0.119, 0.108),
    "ro": (0.161, 0.146, 0.131, 0.16, 0.149, 0.138, 0.127, 0.117, 0.106),
    "ru": (0.184, 0.164, 0.146, 0.168, 0.156, 0.145, 0.133, 0.121, 0.109),
    "sv": (0.242, 0.195, 0.174, 0.156, 0.147, 0.136, 0.125, 0.116, 0.105),
    "th": (0.221, 0.197, 0.162, 0.185, 0.168, 0.152, 0.137, 0.124, 0.111),
    "uk": (0.189, 0.172, 0.153, 0.16, 0.148, 0.136, 0.124, 0.113, 0.102),
    "vi": (0.223, 0.197, 0.171, 0.178, 0.163, 0.15, 0.136, 0.124, 0.111),
    "zh": (0.256, 0.201, 0.171, 0.198, 0.182, 0.167, 0.154, 0.14, 0.127),
}

_SYLLABLES: Final = {  # Thai, Lao, Khmer, Burmese: a word is at most a syllable
    # A run of n such words is not a phrase: in the Universal Declaration of Human Rights 34 to 42 % of the
    # characters are in repeated 5-grams (English: 7 %), 9 to 18 % in repeated 10-grams (English: 1 %).
    **{("gopher_repetition", f"max_duplicate_{n}gram_char_ratio"): None for n in range(5, 10)},
    ("gopher_repetition", "max_duplicate_10gram_char_ratio"): 0.3,
    # Mean word lengths in the Declaration: 1.3 to 2.2; 99th percentile of 63 Thai technical pages: 3.1
    ("gopher_quality", "min_mean_word_length"): 1,
    ("gopher_quality", "max_mean_word_length"): 5,
    # FineWeb-2's limits for Thai and Lao (0.9, 0.85) are relative to fewer and longer words
    ("gopher_quality", "min_alpha_word_ratio"): 0.8,
}

_CHOSEN: Final[Mapping[str, Mapping[tuple[str, str], int | float | None]]] = {
    # min_words: as much text as 50 English words, by the number of words of the Declaration in both
    # languages (English: 1,747)
    "km": {**_SYLLABLES, ("gopher_quality", "min_words"): 175},
    "lo": {**_SYLLABLES, ("gopher_quality", "min_words"): 200},
    "my": {**_SYLLABLES, ("gopher_quality", "min_words"): 175},
    "th": {**_SYLLABLES, ("gopher_quality", "min_words"): 200},
    "zh": {
        ("gopher_quality", "min_words"): 75,
        # 99th percentile of 348 technical pages: 5.9
        ("gopher_quality", "max_mean_word_length"): 6,
    },
    "ja": {
        ("gopher_quality", "min_words"): 110,
        # 99th percentile of 431 technical pages: 6.8
        ("gopher_quality", "max_mean_word_length"): 7,
        # 99th percentile of 431 technical pages: 0.24, of 350 literary texts: 0.12
        ("fineweb_quality", "max_newline_word_ratio"): 0.24,
        # 99th percentiles of 350 literary texts, where they are above FineWeb-2's: 0.326, 0.251, 0.215
        ("gopher_repetition", "max_duplicate_5gram_char_ratio"): 0.33,
        ("gopher_repetition", "max_duplicate_6gram_char_ratio"): 0.26,
        ("gopher_repetition", "max_duplicate_7gram_char_ratio"): 0.22,
    },
    "ko": {
        ("gopher_quality", "min_words"): 35,
        # 99th percentile of 296 technical pages: 8.4, in the Declaration 2.9
        ("gopher_quality", "max_mean_word_length"): 10,
        # 99th percentile of 296 technical pages: 0.35; two morphemes to a word
        ("fineweb_quality", "max_newline_word_ratio"): 0.3,
    },
}
"""Limits that depend on how text is split into words; chosen here by measuring good pages."""


def limits_of_table(
    name: LimitsTable, kind: str, segmented: Collection[str] = ()
) -> dict[str, Limits]:
    """Return the limits of a kind of filter in a named table: language (ISO 639-1) -> field -> limit.

    ``segmented`` are the languages whose words come from a dictionary, as in FineWeb-2.

    >>> limits_of_table("fineweb2", "gopher_quality")["de"]
    {'min_mean_word_length': 0, 'max_mean_word_length': 15, 'min_alpha_word_ratio': 0.774}
    """
    assert name == "fineweb2"  # the only one so far
    result: dict[str, Limits] = {}
    for code in sorted({*_FINEWEB2_WORDS_AND_LINES, *_CHOSEN}):
        limits = {
            **dict(zip(_WORDS_AND_LINES, _FINEWEB2_WORDS_AND_LINES.get(code, ()), strict=False)),
            **dict(zip(_N_GRAMS, _FINEWEB2_N_GRAMS.get(code, ()), strict=False)),
            **(_CHOSEN.get(code, {}) if code not in segmented else {}),
        }
        result[code] = {field: limit for (of, field), limit in limits.items() if of == kind}
    return result
