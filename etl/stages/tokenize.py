"""Documents to token ids: which tokenizer, and how a document begins and ends."""

import hashlib
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl import storage
from etl.errors import StorageError, TokenizerError
from etl.schemas import TOKENS, TokenizerRecord
from etl.stages.base import Stage
from etl.text.tokenizer import LISTS, TokenizerEngine, lists_of

# How the tokenizers of the field name the token that ends a document, and the one that begins it.
_EOS = (
    "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "<|eos|>", "[EOS]",
    "<EOS_TOKEN>", "[SEP]",
)  # fmt: skip
_BOS = (
    "<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<BOS_TOKEN>",
    "<|startoftext|>", "[CLS]",
)  # fmt: skip

_CHECK_DOCUMENTS = 16  # with the next line about 10 ms of the reference's time per split
_CHECK_CHARACTERS = 1024


class Tokenize(Stage):
    """Turn documents into the ids that Hugging Face ``tokenizers`` gives them.

    ``tokenizer`` is the path or URL of a tokenizer.json. Its own template of special tokens is not
    applied: a document is its text, with BOS before and EOS after it as asked for here. Without a name
    they are found among the well-known ones. ``fast: false`` leaves gigatoken out; ``archive: true`` packs
    the table as small as it gets, for one that is kept rather than trained on: three quarters of the room,
    a third of the speed. No id depends on either.
    """

    kind: Literal["tokenize"] = "tokenize"
    shorthand: ClassVar[str | None] = "tokenizer"
    paths: ClassVar[tuple[str, ...]] = ("tokenizer",)

    tokenizer: str
    append_eos: bool = True
    prepend_bos: bool = False
    eos_token: str | None = None
    bos_token: str | None = None
    fast: bool = True
    archive: bool = False

    def identity(self) -> dict[str, Any]:
        """The settings with the file's sha256 in place of its path, so that it may move.

        Raises TokenizerError if the file cannot be read.
        """
        settings = self.model_dump(mode="json", exclude={"fast", "archive"})
        return {**settings, "tokenizer": f"sha256:{_sha256(_read(self.tokenizer))}"}


class Encoder:
    """A loaded tokenizer: texts in, lists of ids out. May be shared by threads.

    ``fallback`` is None where the fast path is taken, else it says why not; ``engine`` has the bare ids.

    >>> encoder = Encoder.of(Tokenize(tokenizer="tokenizer.json"))  # doctest: +SKIP
    >>> encoder.encode(pa.array(["one text", ""])).to_pylist()  # doctest: +SKIP
    [[505, 2420, 0], [0]]
    """

    def __init__(self, stage: Tokenize, data: bytes) -> None:
        """Load ``data``, the bytes of the file that the stage names; ``of`` reads them itself."""
        self._stage = stage
        self._sha256 = _sha256(data)
        try:
            self.engine = TokenizerEngine(data, fast=stage.fast)
        except TokenizerError as error:
            raise TokenizerError(error.what, where=stage.tokenizer, hint=error.hint) from error
        self.fallback = self.engine.fallback
        self.eos_id = self._special("eos_token", _EOS, needed=stage.append_eos)
        self.bos_id = self._special("bos_token", _BOS, needed=stage.prepend_bos)

    @classmethod
    def of(cls, stage: Tokenize) -> "Encoder":
        """The encoder of a stage, loaded once per process and again only if its file changes.

        Raises TokenizerError if the file is missing or no tokenizer, or if the token that ends (or
        begins) a document cannot be decided.
        """
        return _encoder(stage, _read(stage.tokenizer))

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> pa.ListArray:
        """The ids of each text, framed as the stage says: list<element: int32 not null>.

        What looks like a special token in a text becomes that token, as ``tokenizers`` has it with
        ``add_special_tokens=False``. Texts must not be null.
        """
        parts = [self._framed(self.engine.lists(chunk)) for chunk in _chunks(texts)]
        return pa.concat_arrays(parts) if parts else pa.array([], LISTS)

    def check(self, documents: pa.Table) -> None:
        """Compare both paths on the beginnings of 16 documents, evenly spaced over the table.

        Columns ``source``, ``row``, ``text``. Raises TokenizerError, naming the document, at the first
        id that differs.
        """
        step = max(1, -(-documents.num_rows // _CHECK_DOCUMENTS))
        sample = documents.select(["source", "row", "text"]).take(
            pa.array(range(0, documents.num_rows, step), pa.int64())
        )
        texts = pc.utf8_slice_codeunits(sample["text"], 0, _CHECK_CHARACTERS)
        found = [ids for chunk in _chunks(texts) for ids in self.engine.lists(chunk)]
        for at, (text, ids) in enumerate(zip(texts.to_pylist(), found, strict=True)):
            got, expected = np.asarray(ids.values), self.engine.reference_ids(text)
            if not np.array_equal(got, expected):
                raise TokenizerError(
                    _difference(got, expected),
                    where=f"{sample['source'][at]} row {sample['row'][at]}",
                    hint="set `fast: false` on tokenize, and report the text",
                )

    def record(self) -> TokenizerRecord:
        """What lineage says of this tokenizer; every id is below ``vocab_size``."""
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
    def _vocab_size(self) -> int:  # 0.3 s for 150,000 tokens, and only the driver asks
        return 1 + max(self.engine.reference.get_vocab(with_added_tokens=True).values())

    def _framed(self, lists: pa.ListArray) -> pa.ListArray:
        bos = [self.bos_id] if self._stage.prepend_bos else []
        eos = [self.eos_id] if self._stage.append_eos else []
        if not bos and not eos:
            return lists
        offsets = np.asarray(lists.offsets).astype(np.int64)
        bounds = offsets + (len(bos) + len(eos)) * np.arange(len(offsets))
        ids = np.empty(bounds[-1], np.int32)
        is_text = np.ones(bounds[-1], np.bool_)
        for token, places in ((bos, bounds[:-1]), (eos, bounds[1:] - 1)):
            if token:
                ids[places] = token[0]
                is_text[places] = False
        ids[is_text] = np.asarray(lists.values)
        return lists_of(bounds, ids)

    def _special(self, field: str, names: tuple[str, ...], *, needed: bool) -> int | None:
        """The id of the token that ``field`` of the stage names, or of the one well-known name."""
        reference = self.engine.reference
        added = {token.content for token in reference.get_added_tokens_decoder().values()}
        given: str | None = getattr(self._stage, field)
        found = [name for name in names if name in added] if given is None else [given]
        ids = [reference.token_to_id(name) for name in found]
        if len(ids) == 1 and ids[0] is not None:
            return int(ids[0])
        if given is None and not needed:
            return None
        if given is not None:
            what = f"its vocabulary has no token {given!r}, the {field}"
            near = get_close_matches(given, reference.get_vocab(with_added_tokens=True), n=3)
        else:
            what = f"cannot tell which token is the {field}: it has " + (
                " and ".join(found) or "none of the well-known names"
            )
            near = found or sorted(added)[:8]
        hint = f"set {field} to the right one" + (f" of {', '.join(near)}" if near else "")
        raise TokenizerError(what, where=self._stage.tokenizer, hint=hint)


def tokenize(documents: pa.Table, encoder: Encoder, start: int = 0) -> pa.Table:
    """The rows of table ``tokens`` for documents: columns ``id``, ``source``, ``row``, ``text``.

    ``token_end`` is the running total of ``num_tokens``, which begins at ``start``.
    """
    tokens = encoder.encode(documents["text"])
    counts = pc.list_value_length(tokens)
    ends = start + np.cumsum(np.asarray(counts), dtype=np.int64)
    columns = [documents[name] for name in ("id", "source", "row")]
    return pa.table([*columns, tokens, counts, pa.array(ends)], names=TOKENS.names).cast(TOKENS)


@lru_cache(maxsize=2)  # a worker serves one recipe at a time; each may take 500 MB
def _encoder(stage: Tokenize, data: bytes) -> Encoder:
    return Encoder(stage, data)


def _read(path: str) -> bytes:
    """The bytes of a tokenizer file; from the store once per process, unless the file changes."""
    try:
        uri = storage.normalize(path)
        files = [file for file in storage.find_files(path) if file.uri == uri]
        if files:
            return _content(files[0])
    except StorageError as error:
        raise TokenizerError(f"the tokenizer {error.what}", where=path) from error
    raise TokenizerError(
        "there is no such tokenizer file",
        where=path,
        hint="give the path or URL of a tokenizer.json, not its folder or the name of a model",
    )


@lru_cache(maxsize=2)
def _content(file: storage.FileInfo) -> bytes:
    with storage.open_input(file.uri) as source:
        return bytes(source.read())


@lru_cache(maxsize=2)
def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _name(path: str) -> str:
    """What people call a tokenizer: the folder of its tokenizer.json, or the file without ending.

    >>> _name("s3://models/qwen3/tokenizer.json"), _name("gpt2.json")
    ('qwen3', 'gpt2')
    """
    *folders, file = path.partition("?")[0].replace("://", "/").split("/")
    stem = file.removesuffix(".json")
    return folders[-1] if stem == "tokenizer" and folders and folders[-1] else stem


def _chunks(texts: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """The arrays of a column that are not empty, as string or large_string."""
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        assert chunk.null_count == 0, "a text without characters is empty, not null"
        if len(chunk):
            yield chunk if pa.types.is_string(chunk.type) else chunk.cast(pa.large_string())


def _difference(got: np.ndarray, expected: np.ndarray) -> str:
    shorter = min(len(got), len(expected))
    differing = np.flatnonzero(got[:shorter] != expected[:shorter])
    at = int(differing[0]) if differing.size else shorter
    return (
        f"gigatoken and tokenizers part at token {at} of the text: "
        f"{got[at : at + 3].tolist()} instead of {expected[at : at + 3].tolist()}"
    )
