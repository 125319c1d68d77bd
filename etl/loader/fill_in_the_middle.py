"""`FillInTheMiddle`: documents whose middle comes last, so that a model of code learns to fill it in."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from etl import storage
from etl.errors import LoaderError
from etl.loader.fetch.token_transform import TokenTransform, transform_to_json
from etl.schemas import TokenizerRecord


@dataclass(frozen=True, kw_only=True)
class FillInTheMiddle:
    """Cuts a share of the documents at two random tokens, and moves the middle to the end.

    ``prefix``, ``suffix`` and ``middle`` are the ids of the special tokens before each part. Of the documents
    that are transformed, a share of ``spm_rate`` has the suffix first:

    - PSM: prefix id, prefix, suffix id, suffix, middle id, middle
    - SPM: prefix id, suffix id, suffix, middle id, prefix, middle

    Both have three more tokens than the document, whose BOS and EOS remain the first and the last token. Any
    part may be empty. All labels count, as in all of the papers. Cuts are between tokens; the papers cut
    between characters, which changes the number of tokens, so a cursor inside a token is rarer here.

    The default rates are of StarCoder (Li et al., arXiv 2305.06161). Code Llama (Rozière et al., arXiv
    2308.12950) has ``rate=0.9``, DeepSeek-Coder (Guo et al., arXiv 2401.14196) ``spm_rate=0``. The order of
    SPM is that of Bavarian et al., Efficient Training of Language Models to Fill in the Middle (arXiv
    2207.14255), for training on both.

    ``of_tokenizer`` finds the ids by name. ``tokenizer`` is the sha256 of its file, which is compared with
    the lineage of the table; None leaves that out.

    Raises LoaderError if ids are equal or a rate is not from 0 to 1.

    >>> fim = FillInTheMiddle(prefix=97, suffix=98, middle=99, spm_rate=0)
    >>> fim(np.arange(5, dtype=np.int32), 1).tolist()
    [97, 0, 1, 2, 3, 98, 99, 4]
    """

    prefix: int
    suffix: int
    middle: int
    rate: float = 0.5
    spm_rate: float = 0.5
    tokenizer: str | None = None
    num_added: ClassVar[int] = 3

    def __post_init__(self) -> None:
        ids = (self.prefix, self.suffix, self.middle)
        if len({*ids}) < len(ids) or min(ids) < 0:
            raise LoaderError(
                f"prefix={self.prefix}, suffix={self.suffix} and middle={self.middle} of FillInTheMiddle are "
                "not three ids",
                hint="FillInTheMiddle.of_tokenizer finds them by name",
            )
        for name in ("rate", "spm_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise LoaderError(
                    f"{name}={getattr(self, name)} of FillInTheMiddle is not from 0 to 1"
                )

    @classmethod
    def of_tokenizer(
        cls,
        path: str,
        *,
        prefix: str = "<fim_prefix>",
        suffix: str = "<fim_suffix>",
        middle: str = "<fim_middle>",
        **rates: float,
    ) -> Self:
        """Return the transform with the special tokens of a tokenizer.json; StarCoder has the default names.

        ``path`` is a path or a URL. Raises LoaderError if one is not a special token of the tokenizer,
        StorageError if the file cannot be read.
        """
        from tokenizers import Tokenizer

        url = storage.normalize(path)
        with storage.open_input(url) as file:
            content = bytes(file.read())
        added = Tokenizer.from_buffer(content).get_added_tokens_decoder()
        special = {token.content: number for number, token in added.items() if token.special}
        missing = [name for name in (prefix, suffix, middle) if name not in special]
        if missing:
            raise LoaderError(
                f"{', '.join(missing)} is not a special token of the tokenizer, which has "
                f"{', '.join(special) or 'none'}",
                where=url,
                hint="name its tokens for filling in: of_tokenizer(path, prefix=..., suffix=..., middle=...)",
            )
        return cls(
            prefix=special[prefix],
            suffix=special[suffix],
            middle=special[middle],
            tokenizer=hashlib.sha256(content).hexdigest(),
            **rates,
        )

    def settings(self) -> Mapping[str, Any]:
        """Return the fields."""
        return asdict(self)

    def check(self, tokenizers: Sequence[TokenizerRecord]) -> None:
        """Raise LoaderError unless the ids are of the tokenizers of a table, and not their BOS or EOS."""
        if not tokenizers and self.tokenizer is not None:
            raise LoaderError(
                "the lineage names no tokenizer, so the ids of FillInTheMiddle cannot be checked",
                hint="pass prefix, suffix and middle as ids, without a tokenizer",
            )
        for record in tokenizers:
            if self.tokenizer not in (None, record.sha256):
                raise LoaderError(
                    f"FillInTheMiddle has the ids of another tokenizer, with sha256 {self.tokenizer}",
                    hint=f"use {record.name} with sha256 {record.sha256}, which the lineage names",
                )
            for name in ("prefix", "suffix", "middle"):
                number = getattr(self, name)
                if number >= record.vocab_size or number in (record.bos_id, record.eos_id):
                    raise LoaderError(
                        f"{name}={number} of FillInTheMiddle is not an id for it: {record.name} has "
                        f"{record.vocab_size:,} ids, BOS {record.bos_id} and EOS {record.eos_id}",
                        hint="tokenize with a tokenizer that has special tokens for filling in",
                    )

    def __call__(self, tokens: np.ndarray, seed: int) -> np.ndarray:
        """Return the parts of a document in another order, (n + 3,) int32; ``tokens`` are (n,) int32."""
        digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=24).digest()
        numbers = [int.from_bytes(digest[at : at + 8], "little") for at in (0, 8, 16)]
        first, last = sorted(number % (len(tokens) + 1) for number in numbers[:2])
        # Filled in place: to concatenate the parts would take three times as long.
        changed, size = np.empty(len(tokens) + 3, np.int32), len(tokens) - last
        changed[0] = self.prefix
        if numbers[2] < self.spm_rate * 2.0**64:
            changed[1] = self.suffix
            changed[2 : 2 + size] = tokens[last:]
            changed[2 + size] = self.middle
            changed[3 + size :] = tokens[:last]
            return changed
        changed[1 : 1 + first] = tokens[:first]
        changed[1 + first] = self.suffix
        changed[2 + first : 2 + first + size] = tokens[last:]
        changed[2 + first + size] = self.middle
        changed[3 + first + size :] = tokens[first:last]
        return changed


def transform_from_json(
    text: str | None, given: TokenTransform | Sequence[TokenTransform] | None
) -> TokenTransform | None:
    """Return the transform of a saved state, or the given one; of several, the one with its settings.

    Raises LoaderError for a transform of your own that is not given.
    """
    if given is not None and not isinstance(given, Sequence):
        return given
    if text is None:
        return None
    settings = json.loads(text)
    name = settings.pop("name")
    if name == FillInTheMiddle.__name__:
        return FillInTheMiddle(**settings)
    named = [
        each for each in given or () if json.loads(transform_to_json(each)) == json.loads(text)
    ]
    if not named:
        raise LoaderError(
            f"the state has the transform {name} of your own, with the settings {settings}",
            hint="pass it: from_state(..., transform=...), or --transform MODULE:NAME",
        )
    return named[0]
