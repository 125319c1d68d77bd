"""Count the distinct stop words of each document in its own language.

In languages with spaces a stop word must be a whole run of letters, digits and marks. In languages without
spaces, and in Korean, which attaches particles to words, it may occur anywhere. Whole words
take one pass over the bytes of a document; the others take one pass each, up to the first occurrence.
"""

import hashlib
import json
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import (
    DIGIT,
    HEBREW,
    JOINER,
    KATAKANA,
    LETTER,
    MARK,
    NUM_CLASSES,
    UNIT,
    ZWJ,
    classes,
)
from etl.kernels.bytes.hash64 import SEED, fnv_step
from etl.kernels.bytes.simd import count_ones
from etl.kernels.bytes.utf8 import Texts, class_at
from etl.kernels.jit import inner, kernel

STOP_WORDS: Final = {
    # Rae et al. 2021, appendix A.1.1
    "en": "the be to of and that have with",
    # huggingface/fineweb-2, configs, commits 05e6729 and d331bee (my, km, tr: baedee4, their last
    # version): the most frequent words of each Wikipedia (Penedo et al. 2025, arXiv 2506.20920),
    # except its punctuation marks (، · ・) and words that end in one (l' d' s. г.), which are not words here.
    "ar": "في من على إلى عام أن مع أو هو عن التي كان بين ما كانت هي المتحدة بعد",
    "bg": "на и в е от за се с през да по",
    "cs": "v a se na je z s do",
    "da": "i og af en til er den at som på for med det blev var der fra de han et",
    "de": "der und die in von im den des mit das er dem als wurde für",
    "el": "του και το της η την από ο με τον να που των στην για στο σε είναι τη τα οι",
    "es": "de la en el y a que del los se por un con una las su",
    "fa": "در و به از که است این را با یک",
    "fi": "ja on oli hän vuonna myös joka se ei sen ovat sekä mutta että tai vuoden kanssa hänen "
    "jälkeen the",
    "fr": "de la le et à en des du les est un une il dans par au",
    "he": "של את על הוא עם בשנת גם היה היא לאחר לא ידי בין או כי",
    "hi": "के में है की और से का को एक हैं पर",
    "hu": "a az és is egy volt hogy nem meg de magyar első el között",
    "id": "dan yang di pada dari ini dengan adalah untuk dalam",
    "it": "di e il la in a del che è della un per nel con da i una",
    "ja": "の に を は た て が と で 年 し 月 れ さ",
    "km": "មាន បាន ដែល ជា និង នៅ របស់ ក្នុង ថា នេះ នៃ ហើយ ទៅ ដោយ",
    "ko": "의 다 이 는 에 을 한 년 하 은 를 했 고 에서 가 있 으로 인 월 로 되",
    "lo": "ແລະ ໃນ ຂອງ ເປັນ ທີ່ ໄດ້ ມີ",
    "my": "သည် များ ကို တွင် ဖြစ် ၏ သော ခဲ့ နှင့် ရှိ တို့ မှာ ဦး ၌ က မ မှ",
    "nl": "de van in het een en is op voor met door zijn werd hij uit",
    "no": "i og av som en er til på for ble med den det var han de å fra",
    "pl": "w i na z do się roku od a jest przez po jako oraz o został był nie",
    "pt": "de a e o em do da que um no uma com para na é foi",
    "ro": "de în a și din la o cu este un pe fost care al",
    "ru": "в и на с года по году из был к не от что за для его как а он также до после",
    "sv": "i och är av en som den med på till att för",
    "th": "ใน ที่ และ ของ เป็น มี การ ได้",
    "tr": "ve bir olarak bu ile için olan da de tarafından yılında sonra en daha ilk the",
    "uk": "у в на і з та до року за що",
    "vi": "là và của một được trong năm các có loài này đã người",
    "zh": "的 年 在 月 是 和 日 了 於 為 有 被 人 中 为 他 與 後 也 而 由",
}
"""Language (ISO 639-1) -> its stop words. The comparison is case-sensitive."""

ANYWHERE: Final = ("ja", "km", "ko", "lo", "my", "th", "zh")
"""The languages whose stop words may occur inside a run of letters."""

_CODES: Final = tuple(STOP_WORDS)
_NONE: Final = -1  # the index of a language without a list
_PRIME: Final = 1099511628211  # FNV-1a, 64 bits
_KEY, _BIT = range(2)


class StopWordTables(NamedTuple):
    """The lists of stop words as arrays."""

    of_run: NDArray[np.bool_]  # (NUM_CLASSES,) whether a class is part of a run
    words: NDArray[np.int64]  # (slots, [_KEY, _BIT]) hash table of the whole words of all languages
    longest: int  # of these words, in bytes
    # Words that may occur anywhere:
    first: NDArray[np.int64]  # (languages + 1,) the first word of each language
    starts: NDArray[np.int64]  # (words + 1,) where each word begins in data
    data: NDArray[np.uint8]


def count_stop_words(texts: Texts, languages: pa.Array) -> NDArray[np.int64]:
    """Count the distinct stop words of each document in its language: int64 (n,).

    ``languages`` (string) are ISO 639-1 codes. The count is 0 if the code is null or has no list here.

    >>> from etl.kernels.bytes.utf8 import texts
    >>> documents = texts(pa.array(["Die Würde des Menschen und die des Tieres", "写的是什么"]))
    >>> count_stop_words(documents, pa.array(["de", "zh"]))
    array([3, 2])
    """
    index = pc.fill_null(pc.index_in(languages, pa.array(_CODES)), _NONE)
    out = np.zeros(len(texts.offsets) - 1, np.int64)
    _count(texts.offsets, texts.data, index.to_numpy().astype(np.int64), classes(), _tables(), out)
    return out


@cache
def identity() -> dict[str, str]:
    """Return the sha256 of the lists, which determine the counts."""
    text = json.dumps({"words": STOP_WORDS, "anywhere": ANYWHERE}, sort_keys=True)
    return {"stop_words": hashlib.sha256(text.encode()).hexdigest()}


@cache
def _tables() -> StopWordTables:
    """Return the tables; built once per process."""
    of_run = np.zeros(NUM_CLASSES, np.bool_)
    of_run[[LETTER, HEBREW, KATAKANA, UNIT, DIGIT, JOINER, MARK, ZWJ]] = True
    whole = [
        (_hash_of(word.encode(), index), 1 << bit, len(word.encode()))
        for index, code in enumerate(_CODES)
        if code not in ANYWHERE
        for bit, word in enumerate(STOP_WORDS[code].split())
    ]
    slots = np.zeros((2048, 2), np.int64)  # at most a quarter full
    assert 4 * len(whole) <= len(slots)
    for key, bit, _ in whole:
        slot = (key >> 32) % len(slots)
        while slots[slot, _KEY] != 0:
            assert slots[slot, _KEY] != key
            slot = (slot + 1) % len(slots)
        slots[slot] = key, bit
    anywhere = [STOP_WORDS[code].split() if code in ANYWHERE else [] for code in _CODES]
    words = [word.encode() for of_language in anywhere for word in of_language]
    return StopWordTables(
        of_run=of_run,
        words=slots,
        longest=max(length for _, _, length in whole),
        first=np.cumsum([0, *map(len, anywhere)], dtype=np.int64),
        starts=np.cumsum([0, *map(len, words)], dtype=np.int64),
        data=np.frombuffer(b"".join(words), np.uint8),
    )


def _hash_of(word: bytes, index: int) -> int:
    """Return FNV-1a of the index of a language and a word, as a signed 64-bit number."""
    key = SEED
    for byte in (index, *word):
        key = (key ^ byte) * _PRIME
        key = (key + (1 << 63)) % (1 << 64) - (1 << 63)  # wrap around as an int64
    return key


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    languages: NDArray[np.int64],
    classes: NDArray[np.uint8],
    tables: StopWordTables,
    out: NDArray[np.int64],
) -> None:
    for k in range(len(out)):
        index, at, end = languages[k], offsets[k], offsets[k + 1]
        if index == _NONE:
            continue
        first, last = tables.first[index], tables.first[index + 1]
        if first == last:
            out[k] = _count_runs(data, at, end, classes, tables, index)
        for word in range(first, last):
            out[k] += _occurs(data, at, end, tables, word)


@inner
def _count_runs(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    classes: NDArray[np.uint8],
    tables: StopWordTables,
    index: int,
) -> int:
    """Count the distinct words of a language that are whole runs of a document."""
    of_run, words = tables.of_run, tables.words
    seed = fnv_step(SEED, index)  # a key is the hash of a language and a word
    start, key, bits = at, seed, np.int64(0)
    while at < end:
        byte = data[at]
        kind, width = np.int64(LETTER), 1
        if not 97 <= (byte | 32) <= 122:  # most of many languages: ASCII letters
            kind, width = class_at(data, at, end, classes)
        if of_run[kind]:
            for k in range(at, at + width):
                key = fnv_step(key, np.int64(data[k]))
        else:
            if 0 < at - start <= tables.longest:
                bits |= _bit(words, key)
            start, key = at + width, seed
        at += width
    if 0 < at - start <= tables.longest:
        bits |= _bit(words, key)
    return count_ones(int(bits))


@inner
def _bit(words: NDArray[np.int64], key: np.int64) -> np.int64:
    """Return the bit of the word with this hash, or 0."""
    last = len(words) - 1
    slot = (key >> 32) & last
    while words[slot, _KEY] != 0 and words[slot, _KEY] != key:
        slot = (slot + 1) & last
    return np.int64(words[slot, _BIT])


@inner
def _occurs(data: NDArray[np.uint8], at: int, end: int, tables: StopWordTables, word: int) -> bool:
    """Return whether a word occurs anywhere in a document."""
    first, last = tables.starts[word], tables.starts[word + 1]
    length, head, tail = last - first, tables.data[first], tables.data[last - 1]
    for start in range(at, end - length + 1):
        if data[start + length - 1] != tail or data[start] != head:
            continue
        k = 1
        while k < length - 1 and data[start + k] == tables.data[first + k]:
            k += 1
        if k >= length - 1:
            return True
    return False
