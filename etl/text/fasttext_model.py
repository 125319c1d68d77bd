"""Load a supervised fastText model and score lines of text with it."""

import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from etl.errors import RecipeError
from etl.storage.listing import FileInfo
from etl.storage.referenced_files import as_local_file

LABEL_PREFIX: Final = "__label__"

_MAGIC: Final = 793712314

_HEAD: Final = struct.Struct("<i4xi24xi24x8xi")

_TAIL: Final = struct.Struct("<?qq")


class FastTextModel(NamedTuple):
    """A loaded model and its labels, sorted."""

    predict: Any
    labels: tuple[str, ...]

    def full_label(self, label: str) -> str:
        """Return a label as the model spells it, with its prefix."""
        return label if label in self.labels else LABEL_PREFIX + label

    def score(self, line: str, label: str) -> float:
        """Return the probability of a label, 0 to 1."""
        # At a threshold of 0.0 fastText omits the least likely labels.
        labels, scores = self.predict(line, len(self.labels), -1.0)
        score = float(scores[labels.index(self.full_label(label))])
        return min(score, 1.0)  # fastText adds 1e-5 before its logarithms


@lru_cache(maxsize=2)  # DCLM's model takes 2.4 GB
def load_model(file: FileInfo) -> FastTextModel:
    """Load a model from storage; raise RecipeError if it is not a supervised fastText model."""
    import fasttext

    with as_local_file(file) as path:
        if problem := _problem(path):
            hint = "train a model with `fasttext supervised`, or download the file again"
            raise RecipeError(problem, where=file.uri, hint=hint)
        try:
            model = fasttext.load_model(str(path))
        except (ValueError, RuntimeError, MemoryError) as error:
            raise RecipeError(f"not a fastText model ({error})", where=file.uri) from error
    labels, _ = model.predict("", -1, -1.0)
    return FastTextModel(model.predict, tuple(sorted(labels)))


def _problem(path: Path) -> str | None:
    """Return why a file is not a usable model, or None if it is.

    The check comes first because fastText reads past the end of a truncated file for minutes.

    Layout of fastText 0.9, little-endian: magic and version (int32), dimension and 6 settings (int32),
    kind (int32, 3 is supervised), 4 settings (int32) and one (float64), words and labels, words, labels
    (int32); at the end of a .bin the matrix of the labels: quantized (bool), rows and columns (int64),
    numbers (float32).
    """
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or (fields := _HEAD.unpack(head))[0] != _MAGIC:
            return "not a fastText model"
        _, dimension, kind, labels = fields
        if kind != 3:
            return "not a supervised fastText model: it has no labels"
        if path.suffix != ".bin":
            return None
        file.seek(max(0, path.stat().st_size - 4 * labels * dimension - _TAIL.size))
        tail = file.read(_TAIL.size)
    complete = len(tail) == _TAIL.size and _TAIL.unpack(tail) == (False, labels, dimension)
    return None if complete else "the fastText model is truncated"
