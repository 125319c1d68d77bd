"""`TokenTransform`: what happens to the tokens of some documents before they are packed.

Which documents are transformed depends on the seed and on their row group alone, and each grows by the same
number of tokens. So the length of every row group is arithmetic on the counts in the footers, and positions,
windows and states are as exact as without a transform. Where a document is cut, or whatever else a transform
draws, is seeded by the epoch too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from etl.errors import LoaderError
from etl.loader.order.shuffle_settings import permutation, random_bits
from etl.schemas import TokenizerRecord


class TokenTransform(Protocol):
    """Changes the tokens of a share of the documents; all of its instances with equal settings do the same.

    The result for a document must depend only on its tokens, the seed and the settings, on every machine.
    """

    @property
    def rate(self) -> float:
        """The share of the documents with tokens that are transformed, from 0 to 1."""

    @property
    def num_added(self) -> int:
        """The number of tokens by which each of these documents grows, at least 0."""

    def settings(self) -> Mapping[str, Any]:
        """Return everything that decides the result, as JSON data; saved states have it."""

    def check(self, tokenizers: Sequence[TokenizerRecord]) -> None:
        """Raise LoaderError unless the transform fits the tokenizers in the lineage of a table."""

    def __call__(self, tokens: np.ndarray, seed: int) -> np.ndarray:
        """Return the transformed tokens of a document, (n + num_added,) int32.

        ``tokens`` (n,) int32 are those between BOS and EOS, which stay where they are; n may be 0. ``seed``
        is a random number below 2**64, another one for each document and epoch.
        """


def transform_to_json(transform: TokenTransform) -> str:
    """Return the name and the settings of a transform as text, for saved states."""
    return json.dumps({"name": type(transform).__name__, **transform.settings()})


@dataclass(frozen=True)
class TransformedDocuments:
    """The documents of G row groups that are transformed, and how, in one epoch.

    Documents without tokens do not count.
    """

    transform: TokenTransform
    seed: int
    documents: np.ndarray  # (G,) int32, of each row group
    counts: np.ndarray  # (G,) int64: how many of these are transformed
    bos: frozenset[int]  # tokens that stay the first ones of their documents
    eos: frozenset[int]  # and the last ones
    epoch: int = 0

    @staticmethod
    def of(
        transform: TokenTransform,
        documents: np.ndarray,
        *,
        seed: int,
        tokenizers: Sequence[TokenizerRecord],
    ) -> "TransformedDocuments":
        """Return the share of the documents of each row group, (G,) int32, that a transform changes.

        Raises LoaderError if the transform is not valid, or does not fit the tokenizers.
        """
        if not 0 <= transform.rate <= 1 or transform.num_added < 0:
            raise LoaderError(
                f"a transform has rate={transform.rate} and num_added={transform.num_added}",
                hint="a rate is from 0 to 1, and documents do not become shorter",
            )
        transform.check(tokenizers)
        # Round the running total, so that the share is exact over the table, however small row groups are.
        done = np.floor(np.append(0, np.cumsum(documents, dtype=np.int64)) * transform.rate)
        return TransformedDocuments(
            transform,
            seed,
            documents,
            np.minimum(np.diff(done).astype(np.int64), documents),
            frozenset(r.bos_id for r in tokenizers if r.prepend_bos and r.bos_id is not None),
            frozenset(r.eos_id for r in tokenizers if r.append_eos and r.eos_id is not None),
        )

    def digest(self) -> str:
        """Return a hash of everything that decides the transformed tokens but for the documents."""
        parts = [transform_to_json(self.transform), self.seed, sorted(self.bos), sorted(self.eos)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def added_tokens(self) -> np.ndarray:
        """Return the number of tokens by which each row group grows, (G,) int32."""
        return (self.counts * self.transform.num_added).astype(np.int32)

    def is_transformed(self, group: int) -> np.ndarray:
        """Return which of the documents with tokens of a row group are transformed, (documents,) bool."""
        return _choose(int(self.documents[group]), int(self.counts[group]), self.seed, group)

    def added_to(self, group: int, lengths: np.ndarray) -> np.ndarray:
        """Return by how many tokens the documents of a row group grow, (n,) int64.

        ``lengths`` are their tokens; documents without tokens remain empty.
        """
        added = np.zeros(len(lengths), np.int64)
        added[lengths > 0] = self.is_transformed(group) * self.transform.num_added
        return added

    def seeds(self, group: int) -> np.ndarray:
        """Return the seed of each document with tokens of a row group in this epoch, (documents,) uint64."""
        return random_bits(int(self.documents[group]), self.seed, self.epoch, "transform", group)

    def apply(self, tokens: np.ndarray, seed: int) -> np.ndarray:
        """Return the transformed tokens of a document, (n + num_added,) int32.

        Raises LoaderError if the transform returns another number of tokens.
        """
        begin = int(int(tokens[0]) in self.bos)
        end = len(tokens) - int(len(tokens) > begin and int(tokens[-1]) in self.eos)
        changed = np.asarray(self.transform(tokens[begin:end], seed))
        expected = end - begin + self.transform.num_added
        if changed.shape != (expected,) or not np.issubdtype(changed.dtype, np.integer):
            raise LoaderError(
                f"{type(self.transform).__name__} returned {changed.dtype} of shape {changed.shape} for "
                f"{end - begin} tokens, but with num_added={self.transform.num_added} it must return "
                f"({expected},) int32",
                hint="return the same number of added tokens for every document",
            )
        changed = changed.astype(np.int32, copy=False)
        if end - begin == len(tokens):
            return changed
        return np.concatenate([tokens[:begin], changed, tokens[end:]])


@lru_cache(maxsize=1024)  # lanes and samples ask for the same row groups
def _choose(documents: int, count: int, seed: int, group: int) -> np.ndarray:
    chosen = np.zeros(documents, bool)
    chosen[permutation(documents, seed, "transformed", group)[:count]] = True
    chosen.flags.writeable = False
    return chosen
