"""Encode texts to the token ids of Hugging Face ``tokenizers``, at the speed of gigatoken.

Algorithm: gigatoken looks up pre-tokens in a cache, directly from Arrow's buffers. On byte-level BPE it
is 30 to 100 times as fast as ``tokenizers``, but not equivalent to it. gigatoken 0.10 differs from
tokenizers 0.23, the reference, in four ways:

1. It rejects WordPiece, Unigram and most normalizers, and *silently accepts* some files that it does not
   implement (other values of a split's ``behavior``, ``single_word`` tokens, no ByteLevel at all).
   Therefore it is used only if it gives the ids of the reference for a probe when it is loaded.
2. It follows Unicode 17, the reference Unicode 16 (patterns) and 9 (NFC), and it does not find an added
   token of ASCII that only NFC makes of other characters. Texts with characters that the two treat
   differently are encoded by the reference.
3. It cannot encode special tokens as text. Texts that spell one are encoded by the reference.
4. Its cache never shrinks. It is loaded again when its calls have increased the memory of the process by
   too much.

Cost: one search for special tokens (0.1 ns per byte), and one scan of each text that is not ASCII (1.4 ns
per byte). Loading takes 0.2 to 1.3 s and 50 to
200 MB for vocabularies of 50,000 to 200,000 tokens.
"""

import ctypes
import mmap
import os
import unicodedata
from pathlib import Path

import gigatoken
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers

from etl.errors import TokenizerError
from etl.schemas import TOKENS
from etl.text.find_special_tokens import SpecialTokenFinder

LISTS = TOKENS.field("tokens").type
"""The type of a column of token ids: list<element: int32 not null>."""

# Chosen here: English text fills it after about 1.5 GB, mixed languages after 0.5 GB; a reload takes 1 s.
_MAX_CACHE_BYTES = 300 << 20

# Characters unknown to the reference: the code points added in Unicode 17.0 (DerivedAge.txt) ...
_UNICODE_17 = """
    88F C5C CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 FDC8-FDCE
    10940-10959 10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8
    16EBB-16ED3 16FF2-16FF6 187F8-187FF 18D09-18D1E 18D80-18DF2 1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0
    1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8 1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8
    1FACD 1FAEA 1FAEF 1FBFA 2B73A-2B73F 2CEA2-2CEAD 323B0-33479"""
# ... and those added in Unicode 10 to 16 that NFC reorders or composes (UnicodeData.txt).
_NFC_10_TO_16 = """
    7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 105C9 105D2 105DA 105E4
    10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11382-11385
    1138B 1138E 11390-11391 113B8 113BB 113C2 113C5 113C7-113C9 113CE-113D0 1145E 11839-1183A 11930
    11935 11938 1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42
    1611E-16129 1612F 16D63 16D67-16D6A 16FF0-16FF1 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF
    1E5EE-1E5EF"""

# ... and the characters that NFC replaces by ASCII: the Greek question mark and varia, the kelvin sign.
_NFC_TO_ASCII = "37E 1FEF 212A"

# Texts on which pre-tokenizers and normalizers differ: contractions, digits, white space, case, marks,
# scripts without spaces, joined emoji, control characters, long runs.
_PROBE = (
    "don't I'LL we'Ve 'tis ''s ca'n o'clock's",
    "1234567 12,345.67 1e-9 7th x86_64 abc123def ½ ² Ⅷ ٣٤٥",
    "  two\n\n \t tab\r\n\r\n   x\u00a0\u3000z\u2003  \n end  \n ",
    'Hello World HTTPServer fooBar_baz -- ... ?!?! «a» “b” ✓ © $5 <p class="x">/a//b',
    "naïve café cafe\u0301 A\u030a ſ K Å ﬁ Ｆｕｌｌ İi",
    "漢字かな交じり文。カタカナ 한국어 \u1112\u1161\u11ab 中文，标点。",
    "مرحبا بالعالم \u0651\u064e हिन्दी ไทย ភាសាខ្មែរ עִבְרִית привет Ёлка ΑΒΓ",
    "🎉👩\u200d👩\u200d👧 🇩🇪 ✊🏽 \x00\x01\x7f\u0085\ufeff\u200b\ufffd",
    "a" * 99 + "ab" * 99 + " " * 99 + "\n" * 9 + "=" * 99,
)


class TokenizerEngine:
    """A loaded tokenizer.json; may be shared by threads.

    ``fallback`` is None if gigatoken is used, otherwise the reason why it is not.
    """

    def __init__(
        self,
        data: bytes,
        *,
        special_as_text: bool,
        fast: bool = True,
        max_cache_bytes: int = _MAX_CACHE_BYTES,
    ) -> None:
        """Load ``data``, the bytes of a tokenizer.json.

        ``special_as_text`` encodes a special token that a text spells as text, as ``tokenizers`` does with
        ``encode_special_tokens=True``; otherwise it becomes the token.

        Raises TokenizerError if ``tokenizers`` cannot read it or if its ids are random.
        """
        self.reference = _load_reference(data)
        self.special = SpecialTokenFinder(self.reference)
        self._special_as_text = special_as_text
        self._data = data
        self._max_cache_bytes = max_cache_bytes
        self._cache_bytes = 0
        self._fast: gigatoken.Tokenizer | None = None
        self.fallback: str | None = "the recipe sets fast: false"
        if fast and special_as_text and self.special.are_normalized:
            self.fallback = "its special tokens are found in normalized text"
        elif fast:
            self._fast, self.fallback = _load_fast(data, self.reference)
        # The last change of the reference, which is not copied: its threads share this setting.
        self.reference.encode_special_tokens = special_as_text

    def lists(
        self, texts: pa.Array, *, spelled: npt.NDArray[np.bool_] | None = None
    ) -> pa.ListArray:
        """Return the ids of each text (string or large_string without nulls), without BOS and EOS.

        ``spelled`` is ``special.spelled_in(texts)``, if it is known.
        """
        if self._cache_bytes > self._max_cache_bytes:
            self._empty_cache()
        fast = self._fast
        if fast is None:
            return self._reference_lists(texts)
        differs = _has_disputed_character(texts)
        if self._special_as_text:
            differs |= self.special.spelled_in(texts) if spelled is None else spelled
        if not differs.any():
            return self._fast_lists(fast, texts)
        parts = [
            self._fast_lists(fast, texts.filter(pa.array(~differs))),
            self._reference_lists(texts.filter(pa.array(differs))),
        ]
        order = np.argsort(np.concatenate([np.flatnonzero(~differs), np.flatnonzero(differs)]))
        return pa.concat_arrays(parts).take(pa.array(order))

    def spelled_by_model(self) -> list[str]:
        """Return the special tokens that are encoded to their ids even as text.

        The vocabulary of Unigram and WordLevel models may hold them as ordinary words.
        """
        found = []
        unknown = getattr(self.reference.model, "unk_token", None)
        for number, token in self.reference.get_added_tokens_decoder().items():
            if token.special and token.content != unknown:
                text = f"{token.content} a{token.content}"
                if number in self.reference_ids(text):
                    found.append(token.content)
        return found if self._special_as_text else []

    def reference_ids(self, text: str) -> npt.NDArray[np.int32]:
        """Return the ids that ``tokenizers`` gives for a text."""
        # The batch call is a third faster, but it starts threads unless the environment forbids them (as
        # on our workers), and a fork after that prints a warning and loses the threads.
        if os.environ.get("TOKENIZERS_PARALLELISM") == "false":
            encoding = self.reference.encode_batch_fast([text], add_special_tokens=False)[0]
        else:
            encoding = self.reference.encode(text, add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int32)

    def _reference_lists(self, texts: pa.Array) -> pa.ListArray:
        ids = [self.reference_ids(text.as_py()) for text in texts]
        return make_lists(
            np.cumsum([0, *map(len, ids)]), np.concatenate([np.empty(0, np.int32), *ids])
        )

    def _fast_lists(self, fast: gigatoken.Tokenizer, texts: pa.Array) -> pa.ListArray:
        before = _resident_bytes()
        lists = _gigatoken_lists(fast, texts)
        after = _resident_bytes()
        # If memory cannot be measured, assume the size of the texts: no text was seen to add more cache.
        grown = texts.nbytes if before is None or after is None else after - before - lists.nbytes
        self._cache_bytes += max(0, grown)
        return lists

    def _empty_cache(self) -> None:
        self._cache_bytes = 0
        # Loaded before it is assigned, because other threads may use the old one.
        self._fast = gigatoken.Tokenizer.from_json(self._data)
        _return_freed_memory()


def make_lists(offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int32]) -> pa.ListArray:
    """Return lists of ids from n + 1 offsets and one array with all ids, which is not copied."""
    assert offsets[-1] < 2**31, "a batch holds fewer than 2**31 tokens"
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids), type=LISTS)


def _load_reference(data: bytes) -> tokenizers.Tokenizer:
    """Load a tokenizer.json with ``tokenizers``, without its truncation and padding.

    Raises TokenizerError if it cannot be read or if BPE dropout makes its ids random.
    """
    try:
        reference = tokenizers.Tokenizer.from_buffer(data)
    except BaseException as error:
        _raise_if_exit(error)
        raise TokenizerError(
            f"not a tokenizer.json that tokenizers can read ({_first_line(error)})",
            hint="give the file tokenizer.json, as written by save_pretrained() of transformers",
        ) from error
    if getattr(reference.model, "dropout", None) not in (None, 0.0):
        raise TokenizerError(
            "BPE dropout makes the ids of this tokenizer random",
            hint='set "dropout" to null under "model" in the file',
        )
    reference.no_truncation()  # a file may set the model's context length, but documents are longer
    reference.no_padding()
    return reference


def _load_fast(
    data: bytes, reference: tokenizers.Tokenizer
) -> tuple[gigatoken.Tokenizer | None, str | None]:
    try:
        fast = gigatoken.Tokenizer.from_json(data)
    except BaseException as error:  # noqa: BLE001  # files that it cannot load are for the reference
        _raise_if_exit(error)
        return None, f"gigatoken cannot load it ({_first_line(error)})"
    probe = [*_PROBE]
    for token in reference.get_added_tokens_decoder().values():
        probe.append(f"x{token.content}y {token.content} 1 {token.content}{token.content}\n")
        probe += [unicodedata.normalize(form, token.content) for form in ("NFC", "NFD")]
    probe_ids = _gigatoken_lists(fast, pa.array(probe)).to_pylist()
    for text, ids in zip(probe, probe_ids, strict=True):
        if ids != reference.encode(text, add_special_tokens=False).ids:
            return None, f"gigatoken gives different ids for {text[:40]!r}"
    return fast, None


def _gigatoken_lists(fast: gigatoken.Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Encode texts with gigatoken without copies: awkward arrays over Arrow's buffers and vice versa."""
    import awkward as ak

    if not len(texts):
        return pa.array([], LISTS)
    _, offsets, data = texts.buffers()
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    bounds = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1]
    chars = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    strings = ak.contents.ListOffsetArray(
        ak.index.Index64(bounds.astype(np.int64)),
        ak.contents.NumpyArray(chars, parameters={"__array__": "char"}),
        parameters={"__array__": "string"},
    )
    ids = fast.encode_batch(ak.Array(strings), parallel=False).layout
    return make_lists(ids.offsets.data, ids.content.data.view(np.int32))


def _character_class(*ranges: str) -> str:
    r"""Return an RE2 character class of hexadecimal code points and ranges.

    >>> print(_character_class("88F 1ACF-1ADD"))
    [\x{88F}\x{1ACF}-\x{1ADD}]
    """
    ends = [each.split("-") for each in " ".join(ranges).split()]
    return "[" + "".join("-".join(f"\\x{{{end}}}" for end in pair) for pair in ends) + "]"


_DISPUTED = _character_class(_UNICODE_17, _NFC_10_TO_16, _NFC_TO_ASCII)


def _has_disputed_character(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which texts have a character that the two libraries treat differently: bool (texts,)."""
    mask = ~np.asarray(pc.string_is_ascii(texts))
    if mask.any():
        matches = pc.match_substring_regex(texts.filter(pa.array(mask)), _DISPUTED)
        mask[mask] = np.asarray(matches)
    return mask


def _resident_bytes() -> int | None:
    """Return the resident memory of this process, or None if /proc does not provide it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return None


def _return_freed_memory() -> None:
    # glibc keeps small blocks that were freed: without this, 90 of 160 MB stayed with the process.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _raise_if_exit(error: BaseException) -> None:
    """Raise KeyboardInterrupt, SystemExit and the like again, but not Rust panics of a library.

    A Rust panic is a BaseException, but not an Exception.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
