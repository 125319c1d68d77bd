"""Near-duplicates: texts that share most of their runs of words."""

from math import comb
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.minhash import Shingling, signatures
from etl.stages.base import Stage
from etl.stages.reference_list import Against

_MAX_PERMUTATIONS: Final = 4096
_SIMILARITIES: Final = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # of the curve that a plan shows

Count = Annotated[int, Field(ge=1)]


class KeepRule(BaseModel):
    """Which of several documents that are alike is best; exactly one of the fields is set.

    ``highest`` and ``lowest`` name a number column of ``documents`` (null is worst); ``sources`` are
    patterns of input files in the order of preference, such as ``["*/wiki/*", "*/web/*"]`` (others last).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    highest: str | None = None
    lowest: str | None = None
    sources: Annotated[tuple[str, ...], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> "KeepRule":
        if sum(value is not None for value in (self.highest, self.lowest, self.sources)) != 1:
            raise ValueError("say one of highest, lowest, sources")
        return self


class DedupMinhash(Stage):
    """Keep one of the documents that are alike: MinHash signatures, compared in bands, then verified.

    Likeness is Jaccard's, of the documents' sets of ``ngram`` words (or characters, with ``unit: chars``)
    in a row, in lower case, with digits as 0 and without accents unless asked otherwise. Documents are
    compared if all ``rows`` numbers of one of their ``bands`` agree; the defaults are those of FineWeb
    (Penedo et al. 2024: 14 bands of 8, 5 words), which finds 92 % of the pairs with a likeness of 0.8.
    Such a pair counts if it is alike by at least ``min_similarity``: as estimated from the signatures, or,
    with ``verify: exact``, as counted in the texts of the candidates, which are read again for it. An
    estimate is off by 0.04 (one standard error, of 112 numbers at 0.8), so that half of the pairs just at
    ``min_similarity`` are passed over; `etl plan` shows the curves of both.

    Of those alike the first by address stays, or the longest, or the best by a column or a list of
    sources: see ``KeepRule``. Each duplicate is like the document that is kept for it; chains do not
    collapse. What has tokens already always stays.

    Documents that are like one that a lake in ``against`` keeps go: a URL, or ``{lake: URL, version: N}``
    (of the lake's ``documents``; the newest, if not said), or a list of them. Its signatures must be made
    with the same settings. What such a lake has not decided yet does not count.
    """

    paths: ClassVar[tuple[str, ...]] = ("against",)

    kind: Literal["dedup_minhash"] = "dedup_minhash"
    ngram: Count = 5
    unit: Literal["words", "chars"] = "words"
    bands: Count = 14
    rows: Count = 8
    min_similarity: Annotated[float, Field(gt=0, le=1)] = 0.8  # Rae et al. 2021 (Gopher), A.1.1
    verify: Literal["estimate", "exact"] = "estimate"
    keep: Literal["first", "longest"] | KeepRule = "first"
    fold_digits: bool = True
    fold_accents: bool = True
    seed: Annotated[int, Field(ge=0)] = 0
    against: Against = ()

    @model_validator(mode="after")
    def _check_size(self) -> "DedupMinhash":
        if self.permutations > _MAX_PERMUTATIONS:
            raise ValueError(f"bands * rows is more than {_MAX_PERMUTATIONS}")
        return self

    @property
    def permutations(self) -> int:
        """The numbers of a signature."""
        return self.bands * self.rows

    @property
    def shingling(self) -> Shingling:
        """How texts are cut."""
        return Shingling(self.ngram, self.unit == "chars", self.fold_digits, self.fold_accents)

    @property
    def keep_column(self) -> str | None:
        """The column of ``documents`` that says which is best, if one does."""
        if not isinstance(self.keep, KeepRule):
            return None
        return self.keep.highest if self.keep.highest is not None else self.keep.lowest

    def identity(self) -> dict[str, Any]:
        """The settings; ``against`` as it is written, if it is."""
        return self.model_dump(mode="json", exclude=set() if self.against else {"against"})

    def signature_identity(self) -> dict[str, Any]:
        """What decides the column ``signature``: not the bands, the likeness or the choice."""
        names = {"ngram", "unit", "fold_digits", "fold_accents", "seed"}
        return {**self.model_dump(include=names), "permutations": self.permutations}

    def signature(self, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The signature of each text: binary, its length and numbers as uint32; null if it has no word.

        >>> stage = DedupMinhash(bands=1, rows=2)
        >>> [value.is_valid for value in stage.signature(pa.array(["A word.", "?!", None]))]
        [True, False, False]
        """
        found = signatures(
            buffers(texts), self.shingling, permutations=self.permutations, seed=self.seed
        )
        some = found[found[:, 0] > 0].astype("<u4", copy=False)
        flat = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(4 * found.shape[1]), len(some), [None, pa.py_buffer(some.tobytes())]
        )
        places = np.where(found[:, 0] > 0, np.cumsum(found[:, 0] > 0) - 1, -1)
        return flat.cast(pa.binary()).take(pa.array(places, mask=places < 0))

    def numbers(self, column: pa.Array) -> NDArray[np.uint32]:
        """Signatures, none of them null, as uint32 (n, 1 + permutations): the length comes first."""
        fixed = column.cast(pa.binary(4 * (1 + self.permutations)))
        data = fixed.buffers()[1]
        every = np.frombuffer(data if data is not None else b"", "<u4")
        every = every.reshape(-1, 1 + self.permutations)
        return every[fixed.offset : fixed.offset + len(fixed)].astype(np.uint32, copy=False)

    def found(self, similarity: float) -> float:
        """The probability that a pair of this likeness is compared.

        >>> round(DedupMinhash().found(0.8), 3)
        0.924
        """
        return float(1 - (1 - similarity**self.rows) ** self.bands)

    def joined(self, similarity: float) -> float:
        """The probability that a pair of this likeness counts, found and verified taken as independent."""
        if self.verify == "exact":
            return self.found(similarity) * (similarity >= self.min_similarity)
        n = self.permutations
        least = next(k for k in range(n + 1) if k / n >= self.min_similarity)
        passed = sum(
            comb(n, k) * similarity**k * (1 - similarity) ** (n - k) for k in range(least, n + 1)
        )
        return self.found(similarity) * passed

    def curve(self) -> list[tuple[float, float, float]]:
        """(likeness, probability to be found, to be joined), for a reader; the least likeness among them."""
        points = sorted({*_SIMILARITIES, self.min_similarity})
        return [(point, self.found(point), self.joined(point)) for point in points]
