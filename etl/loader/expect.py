"""What a training run expects of a table, checked before its first step."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etl import storage
from etl.errors import LoaderError
from etl.loader.ends import sample_ends
from etl.loader.index import Index
from schemas import TokenizerRecord

_SHARE_BY_CHANCE = 0.5  # chosen here: with the setting it is 1, without it next to 0


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What the model is made for; what is None is not checked, and a table of another kind is refused.

    - ``tokenizer``: the sha256 of the tokenizer.json, or its path or URL, against the table's lineage.
    - ``vocab_size``: the rows of the model's embedding. The lineage's tokenizer must make lower ids only,
      and every token that is read is compared with it, at about a tenth of the loader's time.
    - ``bos``, ``eos``: whether documents begin with BOS and end with EOS, as the lineage says they were
      tokenized, and as those do that stand at the front of eight row groups.

    >>> Expect(vocab_size=50257, eos=True).bos is None
    True
    """

    tokenizer: str | None = None
    vocab_size: int | None = None
    bos: bool | None = None
    eos: bool | None = None

    def check(self, records: Sequence[TokenizerRecord], *, where: str) -> None:
        """Compare with the tokenizers that a table's lineage names.

        Raises LoaderError at what differs, or if the lineage names none and is asked for one.
        """
        if not records and (self.tokenizer, self.bos, self.eos) != (None, None, None):
            raise LoaderError(
                "its lineage names no tokenizer to compare with what is expected",
                where=where,
                hint="expect vocab_size alone, or write the table with `etl run`",
            )
        for record in records:
            self._check_tokenizer(record, where)
            if self.vocab_size is not None and record.vocab_size > self.vocab_size:
                raise LoaderError(
                    f"tokenizer {record.name} makes ids up to {record.vocab_size - 1:,}, "
                    f"the model takes vocab_size={self.vocab_size:,}",
                    where=where,
                    hint=f"give the model {record.vocab_size:,} embeddings, or another tokenizer's table",
                )
            for name, verb, expected, found in (
                ("bos", "begin with BOS", self.bos, record.prepend_bos),
                ("eos", "end with EOS", self.eos, record.append_eos),
            ):
                if expected is not None and expected != found:
                    key = {"bos": "prepend_bos", "eos": "append_eos"}[name]
                    raise LoaderError(
                        f"its documents {'' if found else 'do not '}{verb}, {name}={expected} is expected",
                        where=where,
                        hint=f"tokenize anew with `{key}: {str(expected).lower()}`, or expect {name}={found}",
                    )

    def check_ends(self, records: Sequence[TokenizerRecord], index: Index) -> None:
        """Compare with how documents begin and end in the table itself.

        Where BOS and EOS are expected, all documents must have them; where not, fewer than half, since a
        text may hold the token itself. Raises LoaderError at what differs.
        """
        if (self.bos, self.eos) == (None, None) or not records:
            return
        bos, eos = ({getattr(r, n) for r in records} - {None} for n in ("bos_id", "eos_id"))
        found = sample_ends(index, bos, eos)
        for name, verb, expected, share in (
            ("bos", "begin with BOS", self.bos, found.begin_with_bos),
            ("eos", "end with EOS", self.eos, found.end_with_eos),
        ):
            if expected is None or share is None:
                continue
            if not (share == 1 if expected else share < _SHARE_BY_CHANCE):
                raise LoaderError(
                    f"{share:.1%} of a sample of its documents {verb}, {name}={expected} is expected",
                    where=index.url,
                    hint=f"its lineage says otherwise: see `etl history`, or leave {name} out",
                )

    def _check_tokenizer(self, record: TokenizerRecord, where: str) -> None:
        if self.tokenizer is None:
            return
        if re.fullmatch("[0-9a-f]{64}", self.tokenizer):
            found, size = self.tokenizer, ""
        else:
            content = _read(self.tokenizer)
            found = hashlib.sha256(content).hexdigest()
            size = f" of {_vocab_size(content, self.tokenizer):,} ids"
        if found != record.sha256:
            raise LoaderError(
                f"its ids are of tokenizer {record.name} of {record.vocab_size:,} ids with sha256 "
                f"{record.sha256}, expected is one{size} with sha256 {found}",
                where=where,
                hint="give the model the table's tokenizer, or open a table of the model's",
            )


def _read(path: str) -> bytes:
    with storage.open_input(storage.normalize(path)) as file:
        return bytes(file.read())


def _vocab_size(content: bytes, path: str) -> int:
    """One more than the greatest id of a tokenizer.json."""
    try:
        data: Any = json.loads(content)
        vocabulary = data["model"]["vocab"]  # id by token, or a list (Unigram)
        last = max(vocabulary.values()) if isinstance(vocabulary, dict) else len(vocabulary) - 1
        return 1 + max([int(last), *(int(token["id"]) for token in data.get("added_tokens") or ())])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise LoaderError(
            f"no tokenizer.json ({error!r})",
            where=path,
            hint="give its path, or a sha256 of 64 digits",
        ) from error
