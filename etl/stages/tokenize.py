"""The Tokenize stage: encode documents to token ids, framed by BOS and EOS."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import field_validator

from etl.errors import TokenizerError
from etl.schemas import TOKENIZED, TableName, TokenizerRecord, is_tokens, tokens_of
from etl.stages.base import Phase, Stage
from etl.stages.tokenizer_file import hash_tokenizer, read_tokenizer, sha256_of

if TYPE_CHECKING:
    from tokenizers import AddedToken

# Common names of the tokens that end and begin a document. Special tokens come before other added tokens:
# Phi-3 ends documents with <|endoftext|>, which is special, and has Llama 2's </s>, which is not. Where a
# vocabulary has <eos> and <bos>, </s> and <s> are HTML's tags of struck-through text, as in Gemma's.
_TAGS = {"</s>": "<eos>", "<s>": "<bos>"}
_EOS = (
    "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "<|eos|>", "[EOS]",
    "<EOS_TOKEN>", "[SEP]",
)  # fmt: skip
_BOS = (
    "<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<BOS_TOKEN>",
    "<|startoftext|>", "[CLS]",
)  # fmt: skip

_CHECK_DOCUMENTS = 16  # with _CHECK_CHARACTERS the check takes the reference about 10 ms per split
_CHECK_CHARACTERS = 1024


class Tokenize(Stage):
    """Encode documents to the ids that Hugging Face ``tokenizers`` gives them.

    ``tokenizer`` is the path or URL of a tokenizer.json. Its template of special tokens is not applied:
    ``prepend_bos`` and ``append_eos`` decide whether a document has BOS and EOS. Without ``bos_token`` and
    ``eos_token`` these are the common names among its special tokens.

    ``special_tokens`` is for documents whose text spells a special token, such as ``<|endoftext|>`` on a web
    page. Special are the added tokens with ``"special": true`` in the file. ``text`` encodes the spelling as
    text: the ids of ``tokenizers`` with ``encode_special_tokens=True``. (A Unigram or WordLevel model may
    still produce the token, if its vocabulary holds it as a word; ``etl plan`` names such tokens.)
    ``keep`` makes it the token, so any page can contain the end of a document. ``reject`` adds the
    filter ``special_tokens`` after the other filters and transforms: such documents are rejected. ``etl
    report`` counts the documents with tokens whose text spells a special token.

    A recipe may have several of these stages: all but one need a ``name`` of the letters a to z and digits.
    The table ``tokens_NAME`` is made from the same texts as ``tokens``, and independent of it: a tokenizer
    that is added costs tokenizing only, and without its stage its table remains as it is.

    ``fast: false`` disables gigatoken. ``archive: true`` compresses the table as much as possible, for tables
    that are stored rather than trained on: three quarters of the size at a third of the speed. Neither
    changes any id.
    """

    kind: Literal["tokenize"] = "tokenize"
    example: ClassVar[str] = "tokenize: {tokenizer: sample/tokenizer.json, special_tokens: reject}"
    phase: ClassVar[Phase] = "tokens"
    shorthand: ClassVar[str | None] = "tokenizer"
    paths: ClassVar[tuple[str, ...]] = ("tokenizer",)

    tokenizer: str
    """The path or URL of the tokenizer.json of the model to be trained."""
    name: str | None = None
    """The name of the tokenizer, whose tokens are in ``tokens_NAME``; one of a recipe may have none."""
    append_eos: bool = True
    """Whether a document ends with ``eos_token``."""
    prepend_bos: bool = False
    """Whether a document begins with ``bos_token``."""
    eos_token: str | None = None
    """The token that ends a document; by default the tokenizer's common name for it."""
    bos_token: str | None = None
    """The token that begins a document; by default the tokenizer's common name for it."""
    special_tokens: Literal["text", "keep", "reject"] = "text"
    """What to do with text that spells a special token: encode it as ``text``, ``keep`` it as the token, or
    ``reject`` the document."""
    fast: bool = True
    """Whether to use gigatoken where it can load the tokenizer; it gives the same ids."""
    archive: bool = False
    """Whether to compress the table as far as possible, for storage rather than training."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not is_tokens(tokens_of(name)):
            reason = "which has the rows of `tokens` in random order"
            if name != "shuffled":
                reason = "which is not a valid name: use the letters a to z and digits"
            raise ValueError(f"its table would be `{tokens_of(name)}`, {reason}")
        return name

    @property
    def table(self) -> TableName:
        """The table that the stage fills."""
        return tokens_of(self.name)

    def identity(self) -> dict[str, Any]:
        """Return the settings with the file's sha256 in place of its path, so that the file can be moved.

        Raises TokenizerError if the file cannot be read.
        """
        settings = self.model_dump(mode="json", exclude={"fast", "archive"})
        return {**settings, "tokenizer": f"sha256:{hash_tokenizer(self.tokenizer)}"}


class Encoder:
    """A loaded tokenizer: texts in, lists of ids out. May be shared by threads.

    ``fallback`` is None if gigatoken is used, otherwise the reason why it is not. ``engine`` gives the ids
    without BOS and EOS.

    >>> encoder = Encoder.of(Tokenize(tokenizer="tokenizer.json"))  # doctest: +SKIP
    >>> encoder.encode(pa.array(["one text", ""])).to_pylist()  # doctest: +SKIP
    [[505, 2420, 0], [0]]
    """

    def __init__(self, stage: Tokenize, data: bytes) -> None:
        """Load ``data``, the bytes of the stage's tokenizer file; ``Encoder.of`` reads the file."""
        from etl.text.tokenizer import TokenizerEngine

        self._stage = stage
        self._sha256 = sha256_of(data)
        try:
            self.engine = TokenizerEngine(
                data, special_as_text=stage.special_tokens != "keep", fast=stage.fast
            )
        except TokenizerError as error:
            raise TokenizerError(error.what, where=stage.tokenizer, hint=error.hint) from error
        self.fallback = self.engine.fallback
        self.eos_id = self._special_id("eos_token", _EOS, needed=stage.append_eos)
        self.bos_id = self._special_id("bos_token", _BOS, needed=stage.prepend_bos)

    @classmethod
    def of(cls, stage: Tokenize) -> "Encoder":
        """Return the encoder of a stage, loaded once per process and again only if its file changes.

        Raises TokenizerError if the file is missing or not a tokenizer, or if the token that ends (or
        begins) a document is ambiguous or missing.
        """
        return _encoder(stage, read_tokenizer(stage.tokenizer))

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> pa.ListArray:
        """Return the ids of each text with the stage's BOS and EOS: list<element: int32 not null>.

        Special tokens that a text spells are encoded as ``special_tokens`` says. Texts must not be null.
        """
        return self.encode_and_count(texts)[0]

    def encode_and_count(self, texts: pa.Array | pa.ChunkedArray) -> tuple[pa.ListArray, int]:
        """Return the result of ``encode``, and the number of texts that spell a special token."""
        from etl.text.tokenizer import LISTS

        parts, count = [pa.array([], LISTS)], 0
        for chunk in _chunks(texts):
            spelled = self.engine.special.spelled_in(chunk)
            count += int(np.count_nonzero(spelled))
            parts.append(self._frame(self.engine.lists(chunk, spelled=spelled)))
        return parts[1] if len(parts) == 2 else pa.concat_arrays(parts), count

    def check(self, documents: pa.Table) -> None:
        """Compare gigatoken with ``tokenizers`` on the start of 16 documents evenly spaced over the table.

        The table has columns ``source``, ``row`` and ``text``. Raises TokenizerError with the document and
        position of the first id that differs.
        """
        step = max(1, -(-documents.num_rows // _CHECK_DOCUMENTS))
        sample = documents.select(["source", "row", "text"]).take(
            pa.array(range(0, documents.num_rows, step), pa.int64())
        )
        texts = pc.utf8_slice_codeunits(sample["text"], 0, _CHECK_CHARACTERS)
        lists = [ids for chunk in _chunks(texts) for ids in self.engine.lists(chunk)]
        for index, (text, ids) in enumerate(zip(texts.to_pylist(), lists, strict=True)):
            got, expected = np.asarray(ids.values), self.engine.reference_ids(text)
            if not np.array_equal(got, expected):
                raise TokenizerError(
                    _difference(got, expected),
                    where=f"{sample['source'][index]} row {sample['row'][index]}",
                    hint="set `fast: false` in the tokenize stage, and report the text as a bug",
                )

    def record(self) -> TokenizerRecord:
        """Return the lineage record of this tokenizer; every id is below ``vocab_size``."""
        return TokenizerRecord(
            name=_name(self._stage.tokenizer),
            sha256=self._sha256,
            vocab_size=self._vocab_size,
            bos_id=self.bos_id,
            eos_id=self.eos_id,
            append_eos=self._stage.append_eos,
            prepend_bos=self._stage.prepend_bos,
        )

    @cached_property
    def _vocab_size(self) -> int:  # 0.3 s for 150,000 tokens; only the driver needs it
        return 1 + max(self.engine.reference.get_vocab(with_added_tokens=True).values())

    def _frame(self, lists: pa.ListArray) -> pa.ListArray:
        from etl.text.tokenizer import make_lists

        bos = [self.bos_id] if self._stage.prepend_bos else []
        eos = [self.eos_id] if self._stage.append_eos else []
        if not bos and not eos:
            return lists
        offsets = np.asarray(lists.offsets).astype(np.int64)
        bounds = offsets + (len(bos) + len(eos)) * np.arange(len(offsets))
        ids = np.empty(bounds[-1], np.int32)
        is_text = np.ones(bounds[-1], np.bool_)
        for token, positions in ((bos, bounds[:-1]), (eos, bounds[1:] - 1)):
            if token:
                ids[positions] = token[0]
                is_text[positions] = False
        ids[is_text] = np.asarray(lists.values)
        return make_lists(bounds, ids)

    def _special_id(self, field: str, names: tuple[str, ...], *, needed: bool) -> int | None:
        """Return the id of the token that the stage sets in ``field``, or of the one with a common name."""
        reference = self.engine.reference
        added = reference.get_added_tokens_decoder().values()
        given: str | None = getattr(self._stage, field)
        candidates = _common_names(added, names) if given is None else [given]
        ids = [reference.token_to_id(name) for name in candidates]
        if len(ids) == 1 and ids[0] is not None:
            return int(ids[0])
        if given is None and not needed:
            return None
        if given is not None:
            what = f"the {field} {given!r} is not in the vocabulary"
            options = get_close_matches(given, reference.get_vocab(with_added_tokens=True), n=3)
        else:
            what = f"cannot determine the {field}: the tokenizer has " + (
                " and ".join(candidates) or "no token with a common name"
            )
            options = candidates or sorted(token.content for token in added)[:8]
        hint = f"set {field}" + (f", for example to one of {', '.join(options)}" if options else "")
        raise TokenizerError(what, where=self._stage.tokenizer, hint=hint)


def tokenize(documents: pa.Table, encoder: Encoder, start: int = 0) -> pa.Table:
    """Return rows of ``TOKENIZED`` for documents with ``id``, ``source``, ``row`` and ``text``.

    ``token_end`` is the cumulative sum of ``num_tokens`` plus ``start``.
    """
    return tokenize_and_count(documents, encoder, start)[0]


def tokenize_and_count(
    documents: pa.Table, encoder: Encoder, start: int = 0
) -> tuple[pa.Table, int]:
    """Return the result of ``tokenize``, and the number of texts that spell a special token."""
    tokens, spelled = encoder.encode_and_count(documents["text"])
    counts = pc.list_value_length(tokens)
    ends = start + np.cumsum(np.asarray(counts), dtype=np.int64)
    columns = [documents[name] for name in ("id", "source", "row")]
    rows = pa.table([*columns, tokens, counts, pa.array(ends)], names=TOKENIZED.names)
    return rows.cast(TOKENIZED), spelled


def _common_names(added: "Collection[AddedToken]", names: Sequence[str]) -> list[str]:
    """Return the names that a tokenizer has, of its special tokens if any of these has one.

    >>> from tokenizers import AddedToken
    >>> tokens = [AddedToken("<eos>", special=True), AddedToken("</s>", special=True)]
    >>> _common_names(tokens, ["</s>", "<eos>"])
    ['<eos>']
    """
    for tokens in ({t.content for t in added if t.special}, {t.content for t in added}):
        if found := [name for name in names if name in tokens and _TAGS.get(name) not in tokens]:
            return found
    return []


@lru_cache(maxsize=2)  # a worker runs one recipe at a time; an encoder may take 500 MB
def _encoder(stage: Tokenize, data: bytes) -> Encoder:
    return Encoder(stage, data)


def _name(path: str) -> str:
    """Return a short name of a tokenizer: the folder of its tokenizer.json, or the file without .json.

    >>> _name("s3://models/qwen3/tokenizer.json"), _name("gpt2.json")
    ('qwen3', 'gpt2')
    """
    *folders, file = path.partition("?")[0].replace("://", "/").split("/")
    stem = file.removesuffix(".json")
    return folders[-1] if stem == "tokenizer" and folders and folders[-1] else stem


def _chunks(texts: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the chunks of a column that are not empty, as string or large_string."""
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        assert chunk.null_count == 0, "texts must not be null"
        if len(chunk):
            yield chunk if pa.types.is_string(chunk.type) else chunk.cast(pa.large_string())


def _difference(got: np.ndarray, expected: np.ndarray) -> str:
    shorter = min(len(got), len(expected))
    differing = np.flatnonzero(got[:shorter] != expected[:shorter])
    first = int(differing[0]) if differing.size else shorter
    return (
        f"gigatoken and tokenizers differ at token {first} of the text: "
        f"{got[first : first + 3].tolist()} instead of {expected[first : first + 3].tolist()}"
    )
