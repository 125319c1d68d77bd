"""Check a table against the model before the first step: tokenizer, vocabulary, BOS and EOS."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from etl import storage
from etl.errors import LoaderError
from etl.loader.fetch.row_group_files import open_files
from etl.loader.fetch.selected_row_groups import open_row_groups
from etl.loader.fetch.table_index import TableIndex
from etl.schemas import TokenizerRecord

_SHARE_BY_CHANCE = 0.5  # chosen here: with the setting the share is 1, without it nearly 0
_SAMPLED_ROW_GROUPS = 8
_PIECES = 2  # of each row group: its first pages, about 130,000 tokens


def check_same_tokenizer(tables: Mapping[str, Sequence[TokenizerRecord]], *, where: str) -> None:
    """Raise LoaderError if the lineages of tables, by their names, have different tokenizers."""
    first: tuple[str, TokenizerRecord] | None = None
    for name, records in tables.items():
        for record in records:
            first = first or (name, record)
            if record.sha256 != first[1].sha256:
                raise LoaderError(
                    f"the tables have different tokenizers: {first[0]} has {first[1].name} (sha256 "
                    f"{first[1].sha256}), {name} has {record.name} (sha256 {record.sha256})",
                    where=where,
                    hint="mix only tables whose token ids mean the same: tokenize one of them again",
                )


@dataclass(frozen=True, kw_only=True)
class Expect:
    """The properties that the model requires of a table; None skips a check.

    - ``tokenizer``: the sha256 of the tokenizer.json, or its path or URL; compared with the table's lineage.
    - ``vocab_size``: the number of rows of the model's embedding. All ids of the tokenizer in the lineage
      must be lower. Each token read is checked too, which costs about a tenth of the loader's time.
    - ``bos``, ``eos``: whether documents begin with BOS and end with EOS. Compared with the settings in the
      lineage, and with the documents at the front of eight row groups.

    >>> Expect(vocab_size=50257, eos=True).bos is None
    True
    """

    tokenizer: str | None = None
    vocab_size: int | None = None
    bos: bool | None = None
    eos: bool | None = None

    def check(self, records: Sequence[TokenizerRecord], *, where: str) -> None:
        """Compare with the tokenizers recorded in a table's lineage.

        Raises LoaderError if they differ, or if the lineage names no tokenizer but a check needs one.
        """
        if not records and (self.tokenizer, self.bos, self.eos) != (None, None, None):
            raise LoaderError(
                "the lineage names no tokenizer, so tokenizer, bos and eos cannot be checked",
                where=where,
                hint="set only vocab_size in Expect, or write the table with `etl run`",
            )
        for record in records:
            self._check_tokenizer(record, where)
            if self.vocab_size is not None and record.vocab_size > self.vocab_size:
                raise LoaderError(
                    f"tokenizer {record.name} has ids up to {record.vocab_size - 1:,}, "
                    f"but the model has vocab_size={self.vocab_size:,}",
                    where=where,
                    hint=f"use a model with {record.vocab_size:,} embeddings, or another table",
                )
            for name, verb, expected, recorded in (
                ("bos", "begin with BOS", self.bos, record.prepend_bos),
                ("eos", "end with EOS", self.eos, record.append_eos),
            ):
                if expected is not None and expected != recorded:
                    key = {"bos": "prepend_bos", "eos": "append_eos"}[name]
                    raise LoaderError(
                        f"documents {'' if recorded else 'do not '}{verb}, but {name}={expected} is expected",
                        where=where,
                        hint=f"tokenize again with `{key}: {str(expected).lower()}`, "
                        f"or set {name}={recorded} in Expect",
                    )

    def check_ends(self, records: Sequence[TokenizerRecord], index: TableIndex) -> None:
        """Compare with the first and last tokens of documents in the table itself.

        If BOS or EOS is expected, all documents must have it; if not, fewer than half may, since a text can
        contain the token itself. Raises LoaderError if they differ.
        """
        if (self.bos, self.eos) == (None, None) or not records:
            return
        bos, eos = ({getattr(r, n) for r in records} - {None} for n in ("bos_id", "eos_id"))
        sampled = sample_ends(index, bos, eos)
        for name, verb, expected, share in (
            ("bos", "begin with BOS", self.bos, sampled.begin_with_bos),
            ("eos", "end with EOS", self.eos, sampled.end_with_eos),
        ):
            if expected is None or share is None:
                continue
            if not (share == 1 if expected else share < _SHARE_BY_CHANCE):
                raise LoaderError(
                    f"in a sample, {share:.1%} of the documents {verb}, but {name}={expected} is expected",
                    where=index.url,
                    hint=f"the lineage disagrees: see `etl history`, or do not set {name} in Expect",
                )

    def _check_tokenizer(self, record: TokenizerRecord, where: str) -> None:
        if self.tokenizer is None:
            return
        if re.fullmatch("[0-9a-f]{64}", self.tokenizer):
            sha256, size = self.tokenizer, ""
        else:
            content = _read_file(self.tokenizer)
            sha256 = hashlib.sha256(content).hexdigest()
            size = f"{_count_ids(content, self.tokenizer):,} ids, "
        if sha256 != record.sha256:
            raise LoaderError(
                f"the table was written with tokenizer {record.name} ({record.vocab_size:,} ids, "
                f"sha256 {record.sha256}), not with the expected one ({size}sha256 {sha256})",
                where=where,
                hint="use the table's tokenizer for the model, or open a table written with the model's",
            )


class EndShares(NamedTuple):
    """Shares of the sampled documents that begin with BOS and end with EOS; None without documents."""

    begin_with_bos: float | None
    end_with_eos: float | None


def sample_ends(index: TableIndex, bos: Collection[int], eos: Collection[int]) -> EndShares:
    """Return the shares of documents that begin with an id in ``bos`` and end with an id in ``eos``.

    The sample is the front of up to eight row groups, evenly spread over the table, without empty documents.
    Raises as ``RowGroups.open`` does.
    """
    row_groups = open_row_groups(index, open_files(index))
    groups = np.flatnonzero(index.group_tokens)
    size = min(_SAMPLED_ROW_GROUPS, len(groups))
    sampled = np.linspace(0, len(groups) - 1, size).astype(np.int64)
    firsts, lasts = [], []
    for group in groups[sampled].tolist():
        bounds = np.unique(row_groups.document_starts(group))
        pieces = islice(row_groups.pieces(group), _PIECES)
        tokens = np.concatenate([piece.tokens for piece in pieces])
        starts, ends = bounds[:-1], bounds[1:]
        firsts.append(tokens[starts[starts < len(tokens)]])
        lasts.append(tokens[ends[ends <= len(tokens)] - 1])
    return EndShares(_share_in(firsts, bos), _share_in(lasts, eos))


def _share_in(parts: list[np.ndarray], ids: Collection[int]) -> float | None:
    tokens = np.concatenate([*parts, np.zeros(0, np.int32)])
    return float(np.isin(tokens, list(ids)).mean()) if len(tokens) else None


def _read_file(path: str) -> bytes:
    with storage.open_input(storage.normalize(path)) as file:
        return bytes(file.read())


def _count_ids(content: bytes, path: str) -> int:
    """Return the highest id of a tokenizer.json plus one; raises LoaderError if it is not valid."""
    try:
        data: Any = json.loads(content)
        vocabulary = data["model"]["vocab"]  # token -> id, or a list (Unigram)
        last = max(vocabulary.values()) if isinstance(vocabulary, dict) else len(vocabulary) - 1
        return 1 + max([int(last), *(int(token["id"]) for token in data.get("added_tokens") or ())])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise LoaderError(
            f"not a valid tokenizer.json ({error!r})",
            where=path,
            hint="set Expect(tokenizer=...) to the path of a tokenizer.json, or to its sha256 in hex",
        ) from error
