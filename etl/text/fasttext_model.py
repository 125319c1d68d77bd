"""Load supervised fastText models from storage, and classify texts with them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.errors import RecipeError, StageError
from etl.kernels.bytes.utf8 import texts
from etl.kernels.fasttext import LABEL_PREFIX, label_scores, text_vectors
from etl.kernels.fasttext.text_vectors import NO_LIMIT
from etl.storage.list_files import FileInfo
from etl.storage.referenced_files import as_local_file
from etl.text.fasttext_file import DamagedModelError, ModelFile, read_model

_HINT: Final = "train a model with `fasttext supervised`, or download the file again"


@dataclass(frozen=True)
class FastTextModel:
    """A loaded model, with its labels in the order of the file."""

    file: ModelFile = field(repr=False)
    where: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels as the model spells them, with their prefix."""
        return self.file.labels

    @cached_property
    def rows(self) -> dict[str, int]:
        """The number of each label in the file."""
        return {label: row for row, label in enumerate(self.labels)}

    def full_label(self, label: str) -> str:
        """Return a label as the model spells it, with its prefix."""
        return label if label in self.rows else LABEL_PREFIX + label

    def best(
        self, column: pa.Array | pa.ChunkedArray, *, max_chars: int | None = None
    ) -> tuple[pa.Array, pa.Array]:
        """Return the most likely label of each text, without its prefix, and its probability, 0 to 1.

        Both are null for a null text, and for one in which the model knows nothing.
        """
        sums, counts = self._sum(column, max_chars, lines=False)
        labels, scores = label_scores.best_labels(sums, counts, self.file.output)
        null = self._is_null(column, counts)
        self._check_scores(scores, null)
        names = pa.array([label.removeprefix(LABEL_PREFIX) for label in self.labels], pa.string())
        return names.take(pa.array(labels, mask=null)), pa.array(scores, mask=null)

    def scores(
        self,
        column: pa.Array | pa.ChunkedArray,
        labels: Sequence[str],
        *,
        max_chars: int | None = None,
    ) -> list[pa.Array]:
        """Return the probabilities of each label, 0 to 1, of texts whose lines are joined by spaces.

        Scores are null for a null text, and for a text in which the model knows nothing.
        """
        sums, counts = self._sum(column, max_chars, lines=True)
        rows = [self.rows[self.full_label(label)] for label in labels]
        scores = label_scores.label_scores(sums, counts, self.file.output, rows)
        null = self._is_null(column, counts)
        self._check_scores(scores, null)
        return [pa.array(scores[:, k], mask=null) for k in range(len(labels))]

    def _sum(
        self, column: pa.Array | pa.ChunkedArray, max_chars: int | None, *, lines: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        limit = NO_LIMIT if max_chars is None else max_chars
        return text_vectors.sum_vectors(
            texts(column), self.file.model, max_chars=limit, lines=lines
        )

    @staticmethod
    def _is_null(
        column: pa.Array | pa.ChunkedArray, counts: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        valid = texts(column).valid
        is_null: NDArray[np.bool_] = counts == 0
        return is_null if valid is None else is_null | ~valid

    def _check_scores(self, scores: NDArray[np.float64], null: NDArray[np.bool_]) -> None:
        if np.isnan(scores[~null]).any():
            what = "the fastText model is damaged: it has weights that are not numbers"
            raise StageError(what, where=self.where, hint=_HINT)


@lru_cache(maxsize=2)
def load_model(file: FileInfo) -> FastTextModel:
    """Load a model from storage; raise RecipeError if it is not a supervised fastText model."""
    with as_local_file(file) as path:
        return load_local_model(path, file.uri)


def load_local_model(path: Path, where: str) -> FastTextModel:
    """Load a model from a path; raise RecipeError if it is not a supervised fastText model."""
    try:
        return FastTextModel(read_model(path), where)
    except DamagedModelError as error:
        raise RecipeError(str(error), where=where, hint=_HINT) from error
    except OSError as error:
        raise RecipeError(f"cannot be read ({error})", where=where) from error
