"""The DedupMinhash stage: find near-duplicates by MinHash signatures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from etl.schemas import SIGNATURE
from etl.settings_files.settings import Settings
from etl.stages.against import Against, Reference
from etl.stages.dedup_base import DedupStage

if TYPE_CHECKING:
    from etl.kernels.hashing.minhash_signatures import Shingling

_MAX_PERMUTATIONS: Final = 4096
_MAX_ERROR: Final = 0.001  # chosen here: about that of three standard errors
_SIMILARITIES: Final = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # points of the curve in a plan

Count = Annotated[int, Field(ge=1)]


class KeepRule(Settings):
    """How to choose the best of several near-duplicates; exactly one of the fields is set.

    ``highest`` and ``lowest`` name a numeric column of ``documents`` (null is worst); ``sources`` are
    patterns of input files in the order of preference, such as ``["*/wiki/*", "*/web/*"]`` (others last).
    """

    highest: str | None = None
    """A numeric column of ``documents`` whose highest value is kept."""
    lowest: str | None = None
    """A numeric column of ``documents`` whose lowest value is kept."""
    sources: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Patterns of input files in the order of preference."""

    @model_validator(mode="after")
    def _check_one(self) -> "KeepRule":
        if sum(value is not None for value in (self.highest, self.lowest, self.sources)) != 1:
            raise ValueError("set exactly one of highest, lowest, sources")
        return self


class DedupMinhash(DedupStage):
    """Keep one of several near-duplicates: compare MinHash signatures in bands, then verify the pairs.

    Similarity is the Jaccard index of the documents' sets of shingles: runs of ``ngram`` words (or
    characters, with ``unit: chars``), in lower case, by default with all digits as 0 and without accents.
    Two documents are a candidate pair if all ``rows`` numbers of one of their ``bands`` agree. The defaults
    are FineWeb's (Penedo et al. 2024: 14 bands of 8, 5 words), which find 92 % of the pairs with a
    similarity of 0.8. A candidate pair counts as duplicate if its similarity is at least
    ``min_similarity``. `etl plan` shows the probability of both, by similarity.

    ``verify`` says how the similarity of a candidate pair is found. The share of equal numbers in two
    signatures estimates it, with a standard error of sqrt(s * (1 - s) / (bands * rows)): 0.04 at 0.8.

    - ``exact`` (the default) computes it from the texts of the pair, which are read again. No document is
      removed for a document that is less similar than ``min_similarity``. A pair is rejected without
      reading its texts if its estimate is so low that at most 1 in 1,000 pairs just at ``min_similarity``
      have it.
    - ``near_limit`` also accepts pairs whose estimate is so high that at most 1 in 1,000 pairs just at
      ``min_similarity`` have it (0.92 at 0.8), and still fewer of those below. It reads fewer texts, which
      saves time on large lakes and remote storage.
    - ``estimate`` reads no texts. It misses half of the pairs just at ``min_similarity``, and accepts half of
      those just below.
    - ``containment`` reads the texts of all candidate pairs. The similarity is the share of the removed
      document's shingles that the kept one has, too (Broder 1997): it finds excerpts of longer documents. No
      text is removed of which a larger share than 1 - ``min_similarity`` is missing in the kept one. Use
      ``keep: longest``: only the shorter one can be an excerpt. A candidate pair still needs an equal band,
      and the shorter the excerpt, the lower the Jaccard index: that of an excerpt of two thirds is 0.67.

    With ``near_limit`` and ``estimate``, the column ``is_estimate`` of ``duplicates`` marks the similarities
    that are estimates.

    ``keep`` chooses among duplicates: the first by address, the longest, or the best by a column or a list
    of sources (see ``KeepRule``). Each duplicate is similar to the document that is kept for it; chains are
    not merged. A document that already has tokens is always kept.

    Documents similar to a document that a lake in ``against`` keeps are rejected too. ``against`` is a URL,
    or ``{lake: URL, version: N}`` with a version of the lake's ``texts`` (default: the newest), or a
    list of these. The lake's signatures must have the same settings. Documents that it has not deduplicated
    yet do not count.
    """

    paths: ClassVar[tuple[str, ...]] = ("against",)
    kinds = ("near",)
    identity_key = "signature"

    kind: Literal["dedup_minhash"] = "dedup_minhash"
    example: ClassVar[str] = "dedup_minhash: {min_similarity: 0.7, bands: 20, rows: 6}"
    ngram: Count = 5
    """How many words (or characters) a shingle has."""
    unit: Literal["words", "chars"] = "words"
    """What shingles consist of: words or characters."""
    bands: Count = 14
    """Number of bands; more find more pairs."""
    rows: Count = 8
    """Numbers in each band; more find fewer dissimilar pairs."""
    min_similarity: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The lowest similarity of duplicates, up to 1; 0.8 as in Gopher (Rae et al. 2021, A.1.1)."""
    verify: Literal["exact", "near_limit", "estimate", "containment"] = "exact"
    """How the similarity of a pair is found: ``exact``, ``near_limit``, ``estimate`` or ``containment``."""
    keep: Literal["first", "longest"] | KeepRule = "first"
    """Which of several duplicates is kept: the ``first`` by address, the ``longest``, or by a rule."""
    fold_digits: bool = True
    """Whether all digits are equal."""
    fold_accents: bool = True
    """Whether accents are ignored."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Another seed gives other hash functions."""
    against: Against = ()
    """Other lakes: documents similar to a document that they keep are rejected."""

    @model_validator(mode="after")
    def _check_size(self) -> "DedupMinhash":
        if self.permutations > _MAX_PERMUTATIONS:
            raise ValueError(
                f"bands * rows is {self.permutations}, more than the maximum of {_MAX_PERMUTATIONS}"
            )
        return self

    @property
    def permutations(self) -> int:
        """The number of values in a signature, without its length."""
        return self.bands * self.rows

    @property
    def shingling(self) -> "Shingling":
        """How texts are split into shingles."""
        from etl.kernels.hashing.minhash_signatures import Shingling

        return Shingling(self.ngram, self.unit == "chars", self.fold_digits, self.fold_accents)

    @property
    def keep_column(self) -> str | None:
        """The column of ``documents`` by which the best is chosen, if any."""
        if not isinstance(self.keep, KeepRule):
            return None
        return self.keep.highest if self.keep.highest is not None else self.keep.lowest

    def identity(self) -> dict[str, Any]:
        """Return the settings, with ``against`` as written in the recipe if it is set."""
        return self.model_dump(mode="json", exclude=set() if self.against else {"against"})

    def document_columns(self) -> pa.Schema:
        """Return ``signature``."""
        return pa.schema([SIGNATURE])

    def describe(self, texts: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
        """Return the signature of each text."""
        return [self.signature(texts)]

    def references(self) -> tuple[Reference, ...]:
        """Return the lakes in ``against``."""
        return self.against

    @property
    def has_estimates(self) -> bool:
        """Whether the similarities of some pairs in ``duplicates`` are estimates."""
        return self.verify in ("near_limit", "estimate")

    @property
    def is_containment(self) -> bool:
        """Whether the similarity is the share of the removed document that the kept one has."""
        return self.verify == "containment"

    def column_identity(self) -> dict[str, Any]:
        """Return the settings that determine ``signature``: without bands, threshold and choice."""
        names = {"ngram", "unit", "fold_digits", "fold_accents", "seed"}
        return {**self.model_dump(include=names), "permutations": self.permutations}

    def signature(self, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Compute the signature of each text: binary, length and numbers as uint32; null without words.

        >>> stage = DedupMinhash(bands=1, rows=2)
        >>> [value.is_valid for value in stage.signature(pa.array(["A word.", "?!", None]))]
        [True, False, False]
        """
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.kernels.hashing.minhash_signatures import signatures

        values = signatures(
            buffers(texts), self.shingling, permutations=self.permutations, seed=self.seed
        )
        has_words = values[:, 0] > 0
        valid = values[has_words].astype("<u4", copy=False)
        flat = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(4 * values.shape[1]), len(valid), [None, pa.py_buffer(valid.tobytes())]
        )
        indexes = np.where(has_words, np.cumsum(has_words) - 1, -1)
        return flat.cast(pa.binary()).take(pa.array(indexes, mask=indexes < 0))

    def numbers(self, column: pa.Array) -> NDArray[np.uint32]:
        """Return signatures without nulls as uint32 (n, 1 + permutations); the length comes first."""
        fixed = column.cast(pa.binary(4 * (1 + self.permutations)))
        data = fixed.buffers()[1]
        values = np.frombuffer(data if data is not None else b"", "<u4")
        values = values.reshape(-1, 1 + self.permutations)
        return values[fixed.offset : fixed.offset + len(fixed)].astype(np.uint32, copy=False)

    def candidate_probability(self, similarity: float) -> float:
        """Return the probability that a pair of this similarity is a candidate.

        >>> round(DedupMinhash().candidate_probability(0.8), 3)
        0.924
        """
        return float(1 - (1 - similarity**self.rows) ** self.bands)

    def agreement_probabilities(self, similarity: float) -> NDArray[np.float64]:
        """Return the probability that the signatures of a pair agree in 0, 1, ... ``permutations`` numbers.

        Each number agrees with a probability equal to the similarity (Broder 1997), so their count has a
        binomial distribution.

        >>> DedupMinhash(bands=1, rows=2).agreement_probabilities(0.5)
        array([0.25, 0.5 , 0.25])
        """
        n = self.permutations
        if similarity >= 1:
            return np.append(np.zeros(n), 1.0)
        counts = np.arange(n + 1)
        logs = np.append(0, np.cumsum(np.log(np.arange(1, n + 1))))  # of factorials
        chances = counts * np.log(similarity) + (n - counts) * np.log1p(-similarity)
        probabilities: NDArray[np.float64] = np.exp(logs[n] - logs - logs[::-1] + chances)
        return probabilities

    def agreement_limits(self) -> tuple[int, int]:
        """Return how many numbers of two signatures must agree for a pair to be compared, and to be accepted.

        >>> stage = DedupMinhash()
        >>> stage.agreement_limits(), stage.model_copy(update={"verify": "near_limit"}).agreement_limits()
        ((76, 113), (76, 103))
        """
        n = self.permutations
        if self.is_containment:  # signatures say little of it
            return 0, n + 1
        if self.verify == "estimate":
            passing = next(k for k in range(n + 1) if k / n >= self.min_similarity)
            return passing, passing
        at_limit = self.agreement_probabilities(self.min_similarity)
        fewer = np.cumsum(at_limit) - at_limit  # the probability of fewer than k, ascending
        least = int(np.searchsorted(fewer, _MAX_ERROR, "right")) - 1
        if self.verify == "exact":
            return least, n + 1
        or_more = np.append(np.cumsum(at_limit[::-1])[::-1], 0)
        return least, int(np.argmax(or_more <= _MAX_ERROR))

    def match_probability(self, similarity: float) -> float:
        """Return the probability that a pair of this similarity counts as duplicate.

        Being a candidate and passing the estimate are taken to be independent.
        """
        least, enough = self.agreement_limits()
        needed = least if similarity >= self.min_similarity else enough
        passed = float(self.agreement_probabilities(similarity)[needed:].sum())
        return self.candidate_probability(similarity) * passed

    def curve(self) -> list[tuple[float, float, float]]:
        """Return points of the S-curve: similarity, probability of a candidate, probability of a match."""
        points = sorted({*_SIMILARITIES, self.min_similarity})
        return [
            (point, self.candidate_probability(point), self.match_probability(point))
            for point in points
        ]

    def plan_lines(self) -> list[str]:
        r"""Return the probability that a pair of documents is found and joined, by similarity.

        >>> print(*DedupMinhash().plan_lines(), sep="\n")
        near        14 bands of 8 rows: 452 bytes per document; joins 92.3% of pairs at similarity 0.80
          similarity  0.50  0.60  0.70  0.75  0.80  0.85  0.90  0.95
          found         5%   21%   56%   77%   92%   99%  100%  100%
          joined        0%    0%    0%    0%   92%   99%  100%  100%
        >>> print(DedupMinhash(verify="containment", min_similarity=0.9).plan_lines()[0])
        near        14 bands of 8 rows: 452 bytes per document; joins pairs of containment 0.90 or more
        """
        size = 4 * (1 + self.permutations)
        bands = f"near        {self.bands} bands of {self.rows} rows: {size} bytes per document"
        similarities, candidates, matches = zip(*self.curve(), strict=True)
        found = [
            "  similarity" + "".join(f"{similarity:>6.2f}" for similarity in similarities),
            "  found     " + "".join(f"{probability:>6.0%}" for probability in candidates),
        ]
        threshold = f"{self.min_similarity:.2f}"
        if self.is_containment:
            return [
                f"{bands}; joins pairs of containment {threshold} or more",
                *found,
            ]
        share = f"{self.match_probability(self.min_similarity):.1%}"
        return [
            f"{bands}; joins {share} of pairs at similarity {threshold}",
            *found,
            "  joined    " + "".join(f"{probability:>6.0%}" for probability in matches),
        ]
