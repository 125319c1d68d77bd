"""The ids equal the ids of ``tokenizers`` for any text and file, with gigatoken and without it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gigatoken
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from etl.errors import TokenizerError
from etl.schemas import TOKENIZED, TOKENS
from etl.stages.tokenize import Encoder, Tokenize, tokenize
from etl.text.tokenizer import TokenizerEngine

EOS = "<|endoftext|>"
BYTE_LEVEL = (
    "gpt2", "gpt-neox-20b", "cl100k_base", "o200k_base", "qwen3", "mistral_nemo", "deepseek_v3",
)  # fmt: skip
OTHERS = ("bert-base-uncased-wordpiece", "xlm-roberta-unigram")

_CORPUS = (
    "It's Anna's idea: they'll see that we're late, don't you think? I'd say so.",
    "Der schnelle braune Fuchs springt über den faulen Hund. 0123456789 12345 2024-10-31",
    "def f(x):\n    return x + 1\n\n\nclass Café:\n\tpass  # naïve e\u0301 \u00e9\r\n",
    "敏捷的棕色狐狸跳过懒狗。すばしっこい茶色の狐。Быстрая лиса. الثعلب البني 🦊🦊",
)

# Characters that the two libraries treat differently: a letter of Unicode 17, a mark of Unicode 16, and
# a pair that composes since Unicode 16.
DISPUTED = ("\u088f's", "a\u0315\u0897", "\U000105d2\u0307")
ODD = (
    "", " ", "\n", "\x00", "a\x00b", "\u0301", "e\u0301", "\u0315\u0327\u0301", "\ufeff", "\ufffd",
    EOS, f"a{EOS}b", f"{EOS}{EOS}", EOS[:-1], EOS[1:], f" {EOS} ", "'s", "'ſ", "İ", "ß", "\U0010ffff",
    "   \n\t \r\n  x", "👩\u200d👩\u200d👧", "한글 \u1112\u1161\u11ab", *DISPUTED,
)  # fmt: skip


def train(**changes: Any) -> dict[str, Any]:
    """Return the JSON of a small byte-level BPE tokenizer with some parts replaced."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        min_frequency=1,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    for name, value in changes.items():
        head, *rest = name.split("__")
        if rest:
            parts[head][rest[0]] = value
        else:
            parts[head] = value
    return parts


def with_token(content: str, **flags: bool) -> dict[str, Any]:
    parts = train()
    token = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    number = len(parts["model"]["vocab"])
    parts["added_tokens"].append({"id": number, "content": content, **token, **flags})
    return parts


def load_engine(parts: dict[str, Any] | bytes, *, special_as_text: bool = True) -> TokenizerEngine:
    data = parts if isinstance(parts, bytes) else json.dumps(parts).encode()
    return TokenizerEngine(data, special_as_text=special_as_text)


def expected(
    reference: Tokenizer, texts: Sequence[str], *, special_as_text: bool = True
) -> list[list[int]]:
    reference.encode_special_tokens = special_as_text
    return [reference.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.fixture(scope="session", params=["none", "nfc"])
def parts(request: pytest.FixtureRequest) -> dict[str, Any]:
    return train(normalizer={"type": "NFC"} if request.param == "nfc" else None)


@pytest.fixture(scope="session")
def engine(parts: dict[str, Any]) -> TokenizerEngine:
    loaded = load_engine(parts)
    assert loaded.fallback is None
    return loaded


@pytest.fixture(scope="session")
def tiny(tiny_tokenizer: Path) -> Encoder:
    return Encoder.of(Tokenize(tokenizer=str(tiny_tokenizer)))


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    """A function that writes a tokenizer.json and returns its path."""

    def write(parts: dict[str, Any], name: str = "tokenizer.json") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(parts))
        return str(path)

    return write


def documents(texts: Sequence[str]) -> pa.Table:
    """Return kept documents in the schema of a lake's table."""
    rows = range(len(texts))
    columns = [[f"d{i}" for i in rows], ["file:///in.jsonl"] * len(rows), list(rows), list(texts)]
    schema = pa.schema([*(TOKENS.field(n) for n in ("id", "source", "row")), ("text", pa.string())])
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


# --- the ids ----------------------------------------------------------------------------------------


def test_ids_of_a_known_vocabulary(save: Callable[..., str]) -> None:
    alphabet = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["Ġ", "hell"]]
    words = {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    eos = {"id": 260, "content": EOS, "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}  # fmt: skip
    parts = train(model__vocab={**alphabet, **words}, model__merges=merges, added_tokens=[eos])
    path = save(parts)
    encoder, keeping = (
        Encoder.of(Tokenize(tokenizer=path, special_tokens=s)) for s in ("text", "keep")
    )
    texts = pa.array(["hell hello", "", f"h{EOS}é\n"])
    end = [alphabet["Ã"], alphabet["©"], alphabet["Ċ"], 260]
    known = [[258, 259, alphabet["o"], 260], [260]]
    assert encoder.fallback is None
    assert encoder.encode(texts).to_pylist() == [
        *known,
        [alphabet["h"], *(alphabet[char] for char in EOS), *end],
    ]
    assert keeping.encode(texts).to_pylist() == [*known, [alphabet["h"], 260, *end]]


def test_unusual_texts_have_the_ids_of_tokenizers(engine: TokenizerEngine) -> None:
    ids = engine.lists(pa.array(ODD))
    assert ids.type == TOKENS.field("tokens").type
    assert ids.to_pylist() == expected(engine.reference, ODD)


# Texts on which pre-tokenizers differ, including the disputed characters.
_pieces = st.one_of(
    st.sampled_from(ODD), st.text(), st.sampled_from(["'s", "'ll", "  ", "\n", "7"])
)
texts = st.lists(st.lists(_pieces, max_size=6).map("".join), max_size=8)


@given(texts=texts)
def test_any_text_has_the_ids_of_tokenizers(engine: TokenizerEngine, texts: list[str]) -> None:
    assert engine.lists(pa.array(texts, pa.string())).to_pylist() == expected(
        engine.reference, texts
    )


def with_tokens(*tokens: tuple[str, dict[str, bool]], **changes: Any) -> dict[str, Any]:
    """Return the JSON of the small tokenizer with further added tokens."""
    parts = train(**changes)
    size = len(parts["model"]["vocab"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    parts["added_tokens"] += [
        {"id": size + n, "content": content, **flags, "special": True, **changed}
        for n, (content, changed) in enumerate(tokens)
    ]
    return parts


def like_llama() -> dict[str, Any]:
    """Return a BPE tokenizer with byte fallback as converted from sentencepiece, such as Llama 2's."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {
        name: n for n, name in enumerate([*names, *"▁1023abcdefghijklmnopqrstuvwxyz<>/|", "▁a"])
    }
    special = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return {
        "version": "1.0", "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "added_tokens": [{"id": n, "content": names[n], **special, "special": True} for n in range(3)],
        "normalizer": {
            "type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": [["▁", "a"]], "unk_token": "<unk>",
                  "fuse_unk": True, "byte_fallback": True},
    }  # fmt: skip


# Added tokens that are easy to get wrong, each with the words that its texts are made of.
SPECIAL: dict[str, tuple[Callable[[], dict[str, Any]], tuple[str, ...]]] = {
    "plain": (train, (EOS, "<|END|>")),
    "like Llama 2": (like_llama, ("<s>", "</s>", "<unk>", "<0x0A>", "10")),
    "not special": (
        lambda: with_tokens(("<tool>", {"special": False}), ("<s>", {})), ("<tool>", "<s>", EOS)
    ),
    "overlapping": (
        lambda: with_tokens(("<a", {}), ("<a>", {}), ("a>b", {"special": False})),
        ("<a", "<a>", "<a>b", "a>b", ">"),
    ),
    "strips": (
        lambda: with_tokens(("<l>", {"lstrip": True}), ("<r>", {"rstrip": True, "special": False})),
        ("<l>", "<r>", " ", "\n"),
    ),
    "single word": (
        lambda: with_tokens(("<w>", {"single_word": True}), ("w>", {})), ("<w>", "w>", "a", " ")
    ),
    "normalized, without a normalizer": (
        lambda: with_tokens(("<N>", {"normalized": True})), ("<N>", "<n>", EOS)
    ),
    "normalized, in lower case": (
        lambda: with_tokens(
            ("<Eos>", {"normalized": True}), ("<Raw>", {}), normalizer={"type": "Lowercase"}
        ),
        ("<EOS>", "<eos>", "<Eos>", "<raw>", "<Raw>"),
    ),
    "normalized, composed": (
        lambda: with_tokens(("[MASK]", {"normalized": True}), normalizer={"type": "NFC"}),
        ("[MASK]", "[MAS\u212a]", "e\u0301", "\u212a"),
    ),
    "raw, composed": (
        lambda: with_tokens(("[MASK]", {}), ("caf\u00e9", {}), normalizer={"type": "NFC"}),
        ("[MASK]", "[MAS\u212a]", "cafe\u0301", "caf\u00e9"),
    ),
}  # fmt: skip

_words = st.sampled_from(["a", " ", "the dog", "\n", "<", ">", "|", "é", "'s", "犬", *DISPUTED])


@cache
def _special_engines(name: str, *, special_as_text: bool) -> tuple[TokenizerEngine, Tokenizer]:
    parts = SPECIAL[name][0]()
    engine = load_engine(parts, special_as_text=special_as_text)
    return engine, Tokenizer.from_str(json.dumps(parts))


@pytest.mark.parametrize("special_as_text", [True, False])
@pytest.mark.parametrize("name", SPECIAL)
@given(draw=st.data())
def test_spelled_special_tokens_have_the_ids_of_tokenizers(
    name: str, special_as_text: bool, draw: st.DataObject
) -> None:
    engine, reference = _special_engines(name, special_as_text=special_as_text)
    pieces = st.lists(_words | st.sampled_from(SPECIAL[name][1]), max_size=6).map("".join)
    texts = draw.draw(st.lists(pieces, max_size=6))
    ids = engine.lists(pa.array(texts, pa.string())).to_pylist()
    assert ids == expected(reference, texts, special_as_text=special_as_text)


@pytest.mark.parametrize("name", SPECIAL)
@given(draw=st.data())
def test_no_text_contains_a_special_token_unless_it_is_kept(name: str, draw: st.DataObject) -> None:
    engine, reference = _special_engines(name, special_as_text=True)
    pieces = st.lists(_words | st.sampled_from(SPECIAL[name][1]), max_size=6).map("".join)
    texts = draw.draw(st.lists(pieces, max_size=6))
    added = reference.get_added_tokens_decoder()
    special = {n for n, token in added.items() if token.special and token.content != "<unk>"}
    spelled = engine.special.spelled_in(pa.array(texts, pa.string())).tolist()
    kept = expected(reference, texts, special_as_text=False)
    for text, is_spelled, as_text, as_token in zip(
        texts, spelled, expected(reference, texts), kept, strict=True
    ):
        assert special.isdisjoint(as_text)
        assert is_spelled or special.isdisjoint(as_token)
        assert is_spelled == (engine.special.first_in(text) is not None)


def test_gigatoken_encodes_the_texts_that_spell_no_special_token() -> None:
    for name in ("plain", "not special", "overlapping", "normalized, without a normalizer"):
        assert _special_engines(name, special_as_text=True)[0].fallback is None
    engine = _special_engines("normalized, composed", special_as_text=True)[0]
    assert engine.fallback == "its special tokens are found in normalized text"


def test_the_tokens_that_a_model_has_as_words_are_named(save: Callable[..., str]) -> None:
    words = Tokenizer(
        models.WordLevel({"<unk>": 0, "</s>": 1, "<s>": 2, "a": 3}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<unk>", "</s>", "<s>"])
    engine = load_engine(words.to_str().encode())
    assert engine.spelled_by_model() == ["</s>", "<s>"]
    assert load_engine(train()).spelled_by_model() == []


@given(text=st.lists(_pieces).map("".join))
def test_decoding_restores_the_text(engine: TokenizerEngine, text: str) -> None:
    [ids] = engine.lists(pa.array([text])).to_pylist()
    normalizer = engine.reference.normalizer
    normal = text if normalizer is None else normalizer.normalize_str(text)
    assert engine.reference.decode(ids, skip_special_tokens=False) == normal


@pytest.mark.parametrize("text", DISPUTED)
def test_gigatoken_alone_would_differ(text: str) -> None:
    # If gigatoken gave the right ids, the lists of characters in encoder.py could be removed.
    parts = train(normalizer={"type": "NFC"})
    alone = gigatoken.Tokenizer.from_json(json.dumps(parts)).encode_batch([text]).to_list()
    reference = Tokenizer.from_str(json.dumps(parts))
    assert alone != expected(reference, [text])


@given(texts=texts, cuts=st.lists(st.integers(0, 8), max_size=3), large=st.booleans())
def test_the_memory_layout_does_not_matter(
    tiny: Encoder, texts: list[str], cuts: list[int], large: bool
) -> None:
    array = pa.array(["before", *texts, "after"], pa.large_string() if large else pa.string())
    array = array.slice(1, len(texts))
    bounds = [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    pieces = [array[a:b] for a, b in pairwise(bounds)]
    whole = tiny.encode(array)
    assert tiny.encode(pa.chunked_array(pieces, array.type)).equals(whole)
    assert len(whole) == len(texts)


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("eos", [False, True])
@given(texts=texts)
def test_bos_and_eos_are_added_as_set(
    tiny_tokenizer: Path, bos: bool, eos: bool, texts: list[str]
) -> None:  # fmt: skip
    stage = Tokenize(tokenizer=str(tiny_tokenizer), append_eos=eos, prepend_bos=bos, bos_token="a")
    encoder = Encoder.of(stage)
    reference = Tokenizer.from_file(str(tiny_tokenizer))
    begin = [reference.token_to_id("a")] if bos else []
    end = [reference.token_to_id(EOS)] if eos else []
    encoded = encoder.encode(pa.array(texts, pa.string())).to_pylist()
    assert encoded == [[*begin, *ids, *end] for ids in expected(reference, texts)]


def test_a_huge_text_and_a_huge_word_have_the_right_ids(engine: TokenizerEngine) -> None:
    line = "It's Anna's idea: 1234 über\n"
    [ids] = engine.lists(pa.array([line * 200_000])).to_pylist()  # 5.8 MB
    assert ids == expected(engine.reference, [line])[0] * 200_000
    word = "ab" * 25_000
    assert engine.lists(pa.array([word])).to_pylist() == expected(engine.reference, [word])


def test_truncation_and_padding_of_the_file_are_ignored() -> None:
    short = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    wide = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": EOS}  # fmt: skip
    plain, cut = (load_engine(p) for p in
                  (train(), train(truncation=short, padding=wide)))  # fmt: skip
    texts = pa.array(["a", "a text of more than three tokens", DISPUTED[0]])
    assert cut.lists(texts).equals(plain.lists(texts))
    assert cut.reference_ids("a text of more than three tokens").size > 3


# --- tokenizers that gigatoken does not support -----------------------------------------------------


def _split(behavior: str) -> dict[str, Any]:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}  # fmt: skip
    return {"type": "Sequence", "pretokenizers": [split, level]}


UNSUPPORTED: dict[str, Callable[[], dict[str, Any]]] = {
    "rejected: nfkc": lambda: train(normalizer={"type": "NFKC"}),
    "rejected: white space": lambda: train(pre_tokenizer={"type": "WhitespaceSplit"}),
    "silent: no pre-tokenizer": lambda: train(pre_tokenizer=None),
    "silent: no pattern": lambda: train(pre_tokenizer__use_regex=False),
    "silent: behavior": lambda: train(pre_tokenizer=_split("Contiguous")),
    "silent: suffix": lambda: train(model__end_of_word_suffix="</w>"),
    "silent: single word": lambda: with_token("<mask>", single_word=True),
    "silent: composed token": lambda: {
        **with_token("cafe\u0301", normalized=True), "normalizer": {"type": "NFC"}
    },
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_the_reference_is_used_if_gigatoken_does_not_support_the_file(name: str) -> None:
    engine = load_engine(UNSUPPORTED[name]())
    reason = "cannot load it" if name.startswith("rejected") else "gives different ids for"
    assert engine.fallback is not None
    assert reason in engine.fallback
    texts = [*ODD, *_CORPUS, "a<mask>b <mask>", "caf\u00e9 cafe\u0301"]
    assert engine.lists(pa.array(texts)).to_pylist() == expected(engine.reference, texts)


def test_the_reference_is_used_for_wordpiece(tmp_path: Path) -> None:
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "fox": 1, "##es": 2, "[SEP]": 3}))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(["[SEP]"])
    words.save(str(tmp_path / "tokenizer.json"))
    encoder = Encoder.of(Tokenize(tokenizer=str(tmp_path / "tokenizer.json")))
    assert encoder.fallback is not None
    assert encoder.encode(pa.array(["Foxes", "", "a fox"])).to_pylist() == [
        [1, 2, 3],
        [3],
        [0, 1, 3],
    ]


@pytest.mark.parametrize("setting", ["true", "false", None])
def test_the_reference_is_the_same_with_and_without_threads(
    engine: TokenizerEngine, monkeypatch: pytest.MonkeyPatch, setting: str | None
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if setting is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", setting)
    assert [engine.reference_ids(text).tolist() for text in ODD] == expected(engine.reference, ODD)


def test_fast_false_uses_the_reference(tiny_tokenizer: Path) -> None:
    fast, slow = (
        Encoder.of(Tokenize(tokenizer=str(tiny_tokenizer), fast=f)) for f in (True, False)
    )
    assert (fast.fallback, slow.fallback) == (None, "the recipe sets fast: false")
    assert fast.encode(pa.array(ODD)).equals(slow.encode(pa.array(ODD)))


# --- the check against the reference ----------------------------------------------------------------


def test_the_check_reports_the_document_and_the_token(tiny_tokenizer: Path) -> None:
    encoder = Encoder(Tokenize(tokenizer=str(tiny_tokenizer)), tiny_tokenizer.read_bytes())
    table = documents(["fox"] * 99 + ["\n\n dog"] + ["fox"] * 99)
    encoder.check(table)
    # Replace gigatoken by a tokenizer that splits numbers differently.
    other = json.loads(tiny_tokenizer.read_text())
    other["pre_tokenizer"] = _split("Isolated")
    encoder.engine._fast = gigatoken.Tokenizer.from_json(json.dumps(other))
    encoder.check(table)
    wrong = documents(["fox"] * 7 + ["x = f(y)[i] + 1\t\n\n and"] * 80)
    with pytest.raises(TokenizerError, match=r"in\.jsonl row \d+: gigatoken and tokenizers differ"):
        encoder.check(wrong)


def test_the_check_passes_without_differences_or_documents(tiny: Encoder) -> None:
    tiny.check(documents([]))
    tiny.check(documents(list(ODD)))
    tiny.check(documents(["long " * 1_000_000]))  # only the beginning is read


# --- cache, threads and forks -----------------------------------------------------------------------


def test_emptying_a_full_cache_does_not_change_the_ids(parts: dict[str, Any]) -> None:
    data = json.dumps(parts).encode()
    small, large = (
        TokenizerEngine(data, special_as_text=True, **limit)
        for limit in ({"max_cache_bytes": -1}, {})
    )
    for _ in range(3):
        before = small._fast
        assert small.lists(pa.array(ODD)).equals(large.lists(pa.array(ODD)))
        assert small._fast is not before


def test_threads_share_an_encoder(engine: TokenizerEngine) -> None:
    batch = pa.array([*_CORPUS, *ODD] * 50)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: engine.lists(batch), range(16)))
    assert all(ids.equals(results[0]) for ids in results)


_FORK = """
import os, sys
import pyarrow as pa
from etl.stages.tokenize import Encoder, Tokenize
texts = pa.array(["The fox", "", "\\u088f's"] * 100)
encoder = Encoder.of(Tokenize(tokenizer=sys.argv[1]))
ids = encoder.encode(texts)
pid = os.fork()
if pid == 0:
    os._exit(0 if encoder.encode(texts).equals(ids) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_an_encoder_works_in_a_fork_without_a_warning(tiny_tokenizer: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", _FORK, str(tiny_tokenizer)]
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_encoder_is_loaded_again_only_if_its_file_changes(save: Callable[..., str]) -> None:
    stage = Tokenize(tokenizer=save(train()))
    first = Encoder.of(stage)
    assert Encoder.of(stage) is first
    save(with_token("<new>"))
    assert Encoder.of(stage) is not first
    assert Encoder.of(stage).record().sha256 != first.record().sha256


# --- the stage --------------------------------------------------------------------------------------


def test_identity_depends_on_the_content_and_not_the_path(save: Callable[..., str]) -> None:
    here, there = save(train(), "a/tokenizer.json"), save(train(), "b/renamed.json")
    other = save(with_token("<new>"), "c/tokenizer.json")
    identity = Tokenize(tokenizer=here).identity()
    assert identity["tokenizer"].startswith("sha256:")
    assert Tokenize(tokenizer=there).identity() == identity
    assert Tokenize(tokenizer=there, fast=False).identity() == identity
    assert Tokenize(tokenizer=other).identity() != identity
    assert Tokenize(tokenizer=here, append_eos=False).identity() != identity


def test_the_lineage_record_has_all_fields(save: Callable[..., str]) -> None:
    path = save(train(), "tiny/tokenizer.json")
    record = Encoder.of(Tokenize(tokenizer=path)).record()
    assert record.model_dump() == {
        "name": "tiny", "vocab_size": len(train()["model"]["vocab"]), "sha256": record.sha256,
        "bos_id": None, "eos_id": 0, "append_eos": True, "prepend_bos": False,
    }  # fmt: skip
    assert len(record.sha256) == 64


@pytest.mark.parametrize(
    ("names", "settings", "tokens"),
    [
        (["<s>", "</s>"], {"prepend_bos": True}, ("<s>", "</s>")),
        (["[CLS]", "[SEP]"], {}, ("[CLS]", "[SEP]")),
        ([EOS, "<|im_end|>"], {}, (None, EOS)),
        ([EOS, "</s>"], {"eos_token": "</s>"}, (None, "</s>")),
        ([EOS, "</s>"], {"append_eos": False}, (None, None)),
        ([EOS], {"prepend_bos": True, "bos_token": EOS}, (EOS, EOS)),
        (["<eos>", "<bos>", "<s>", "</s>"], {"prepend_bos": True}, ("<bos>", "<eos>")),
        (["<stop>"], {"eos_token": "<stop>"}, (None, "<stop>")),
    ],
)
def test_bos_and_eos_are_found_by_common_names(
    tmp_path: Path, names: list[str], settings: dict[str, Any], tokens: tuple[str | None, ...]
) -> None:
    path, tokenizer = _with_specials(tmp_path, names)
    encoder = Encoder.of(Tokenize(tokenizer=path, **settings))
    ids = tuple(name if name is None else tokenizer.token_to_id(name) for name in tokens)
    assert (encoder.bos_id, encoder.eos_id) == ids


@pytest.mark.parametrize(
    ("special", "other", "ends"),
    [
        # Gemma: tags of HTML are added tokens, but not special.
        (["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
         ["<mask>", "<unused0>", "<table>", "<s>", "</s>", "<b>", "</b>"], ("<bos>", "<eos>")),
        # Phi-3: Llama 2's </s> is not special.
        (["<unk>", "<s>", EOS, "<|end|>"], ["</s>"], ("<s>", EOS)),
        ([], ["<s>", "</s>"], ("<s>", "</s>")),
    ],
)  # fmt: skip
def test_bos_and_eos_are_special_tokens_if_any_of_these_has_a_common_name(
    tmp_path: Path, special: list[str], other: list[str], ends: tuple[str, str]
) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(other)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder = Encoder.of(Tokenize(tokenizer=str(tmp_path / "tokenizer.json"), prepend_bos=True))
    assert (encoder.bos_id, encoder.eos_id) == tuple(map(tokenizer.token_to_id, ends))


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (
            [EOS, "</s>"],
            {},
            r"the eos_token: the tokenizer has <\|endoftext\|> and </s>\n  hint: set eos_token",
        ),
        (["<stop>"], {}, "the eos_token: the tokenizer has no token with a common name\n.*<stop>"),
        ([EOS], {"prepend_bos": True}, "cannot determine the bos_token"),
        (
            [EOS],
            {"eos_token": "<|endoftxt|>"},
            rf"eos_token '<\|endoftxt\|>' is not in the vocabulary\n.*{EOS[2:11]}",
        ),
        ([EOS], {"bos_token": "<nothing>"}, "bos_token '<nothing>' is not in the vocabulary"),
    ],
)
def test_an_ambiguous_or_missing_special_token_is_an_error(
    tmp_path: Path, names: list[str], settings: dict[str, Any], message: str
) -> None:
    path, _ = _with_specials(tmp_path, names)
    with pytest.raises(TokenizerError, match=message):
        Encoder.of(Tokenize(tokenizer=path, **settings))


def _with_specials(folder: Path, names: list[str]) -> tuple[str, Tokenizer]:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.add_special_tokens(names)
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json"), tokenizer


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a tokenizer.json"),
        (b"\x00\xff sentencepiece", "not a tokenizer.json"),
        (b"{}", "not a tokenizer.json"),
        (b'{"model": {"type": "BPE"}}', "not a tokenizer.json"),
        (json.dumps(train(model__dropout=0.1)).encode(), "dropout makes the ids of this tokenizer"),
    ],
)
def test_an_invalid_tokenizer_file_is_an_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json: .*{message}[\s\S]*hint: "):
        Encoder.of(Tokenize(tokenizer=str(path)))


@pytest.mark.parametrize("name", ["missing/tokenizer.json", "", "gpt2"])
def test_a_missing_tokenizer_file_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for method in (Encoder.of, Tokenize.identity):
        with pytest.raises(TokenizerError, match=r"file does not exist\n  hint: give the path"):
            method(Tokenize(tokenizer=str(tmp_path / name)))


@pytest.mark.slow
def test_a_tokenizer_can_be_in_a_bucket(s3: str, tiny_tokenizer: Path, tiny: Encoder) -> None:
    import s3fs

    url = f"{s3}/models/tiny/tokenizer.json"
    s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"]).put(str(tiny_tokenizer), url)
    encoder = Encoder.of(Tokenize(tokenizer=url))
    assert encoder.record() == tiny.record().model_copy(update={"name": "tiny"})
    with pytest.raises(TokenizerError, match="the tokenizer file does not exist"):
        Encoder.of(Tokenize(tokenizer=f"{s3}/models/other/tokenizer.json"))


# --- rows of the table ------------------------------------------------------------------------------


@given(texts=texts, start=st.integers(0, 2**40))
def test_rows_have_ids_counts_and_cumulative_ends(
    tiny: Encoder, texts: list[str], start: int
) -> None:
    rows = tokenize(documents(texts), tiny, start)
    rows.validate(full=True)
    assert rows.schema == TOKENIZED
    assert rows.select(["id", "source", "row"]).equals(
        documents(texts).select(["id", "source", "row"])
    )
    lengths = [len(ids) for ids in rows["tokens"].to_pylist()]
    assert rows["num_tokens"].to_pylist() == lengths
    assert rows["token_end"].to_pylist() == (start + np.cumsum(lengths, dtype=int)).tolist()


# --- real tokenizers and text -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=[*BYTE_LEVEL, *OTHERS])
def real(data: Path, request: pytest.FixtureRequest) -> tuple[str, Encoder]:
    """Return the name and the encoder of each tokenizer in turn; loading one takes a second."""
    return request.param, _load_real(data, request.param)


def test_real_tokenizers_encode_special_tokens_as_text(real: tuple[str, Encoder]) -> None:
    name, encoder = real
    reference = encoder.engine.reference
    added = [*reference.get_added_tokens_decoder().values()][:60]
    texts = [f"{t.content}a {t.content}\n{t.content}{t.content} b's" for t in added]
    lists, count = encoder.encode_and_count(pa.array(texts))
    assert lists.to_pylist() == expected(reference, texts)
    assert count == sum(token.special for token in added)
    has_words = name == "xlm-roberta-unigram"  # Unigram's vocabulary holds them as words
    assert bool(encoder.engine.spelled_by_model()) == has_words


def test_real_tokenizers_agree_on_a_sample(data: Path, real: tuple[str, Encoder]) -> None:
    name, encoder = real
    assert (encoder.fallback is None) == (name in BYTE_LEVEL)
    _assert_same_ids(encoder, _documents(data, 197 if name in BYTE_LEVEL else 597))


@pytest.mark.slow
@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_real_tokenizers_agree_on_every_document(data: Path, name: str) -> None:
    _assert_same_ids(_load_real(data, name), _documents(data, 1))


def _load_real(data: Path, name: str) -> Encoder:
    path = data / "tokenizers" / name / "tokenizer.json"
    return Encoder.of(Tokenize(tokenizer=str(path), append_eos=False))


def _assert_same_ids(encoder: Encoder, documents: pa.Array) -> None:
    batch = pa.concat_arrays([documents, pa.array(ODD)])
    for start in range(0, len(batch), 1000):
        texts = batch[start : start + 1000]
        for ids, text in zip(encoder.encode(texts), texts.to_pylist(), strict=True):
            [right] = expected(encoder.engine.reference, [text])
            assert np.array_equal(np.asarray(ids.values), right), text[:200]


@cache
def _documents(data: Path, every: int) -> pa.Array:
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"])
    return table["text"].take(pa.array(range(0, table.num_rows, every))).combine_chunks()


@pytest.mark.slow
@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_every_character_has_the_ids_of_tokenizers(data: Path, name: str) -> None:
    engine = load_engine((data / "tokenizers" / name / "tokenizer.json").read_bytes())
    for first in range(0, 0x34000, 0x4000):  # higher code points are private or unassigned
        points = [p for p in range(first, first + 0x4000) if not 0xD800 <= p < 0xE000]
        for context in (
            "'%sa 'l%sx %s's %s",
            "\n%s\n %s\t%s1%sB",
            "a%s\u0301\u0327%s\u0315%s\u0307%s",
        ):
            texts = [context % ((chr(p),) * 4) for p in points]
            got = engine.lists(pa.array(texts)).to_pylist()
            right = expected(engine.reference, texts)
            assert [hex(p) for p, a, b in zip(points, got, right, strict=True) if a != b] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_a_word_of_a_megabyte_and_a_text_of_fifty_megabytes(data: Path, name: str) -> None:
    engine = load_engine((data / "tokenizers" / name / "tokenizer.json").read_bytes())
    word = "ab" * 500_000
    assert engine.lists(pa.array([word])).to_pylist() == expected(engine.reference, [word])
    unit = "".join(_CORPUS) + "\n"
    [ids] = engine.lists(pa.array([unit * (50_000_000 // len(unit.encode()))]))
    right = np.array(expected(engine.reference, [unit])[0])
    assert np.array_equal(np.asarray(ids.values).reshape(-1, len(right))[1:], right[None].repeat(
        len(ids.values) // len(right) - 1, axis=0))  # fmt: skip
