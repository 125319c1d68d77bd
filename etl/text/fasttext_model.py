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


class Model(NamedTuple):
    """A loaded model, and the labels that it knows, sorted."""

    predict: Any
    labels: tuple[str, ...]

    def full(self, label: str) -> str:
        """A label as the model has it."""
        return label if label in self.labels else LABEL_PREFIX + label

    def score(self, line: str, label: str) -> float:
        """The probability of a label, 0 to 1."""
        # At a threshold of 0.0 fastText leaves out the least likely.
        labels, scores = self.predict(line, len(self.labels), -1.0)
        found = float(scores[labels.index(self.full(label))])
        return min(found, 1.0)  # fastText adds 1e-5 before its logarithms


@lru_cache(maxsize=2)  # DCLM's takes 2.4 GB
def load_model(file: FileInfo) -> Model:
    import fasttext

    with as_local_file(file) as path:
        if wrong := _wrong(path):
            hint = "train one with `fasttext supervised`, or fetch it again"
            raise RecipeError(wrong, where=file.uri, hint=hint)
        try:
            model = fasttext.load_model(str(path))
        except (ValueError, RuntimeError, MemoryError) as error:
            raise RecipeError(f"is no fastText model ({error})", where=file.uri) from error
    labels, _ = model.predict("", -1, -1.0)
    return Model(model.predict, tuple(sorted(labels)))


def _wrong(path: Path) -> str | None:
    """What is wrong with a model's file: fastText reads on for minutes behind the end of one cut short.

    Layout of fastText 0.9, little-endian: magic and version (int32), dimension and 6 settings (int32),
    kind (int32, 3 is supervised), 4 settings (int32) and one (float64), words and labels, words, labels
    (int32); at the end of a .bin the matrix of the labels: quantized (bool), rows and columns (int64),
    numbers (float32).
    """
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or (found := _HEAD.unpack(head))[0] != _MAGIC:
            return "is no fastText model"
        _, dimension, kind, labels = found
        if kind != 3:
            return "is no supervised fastText model: it has no labels"
        if path.suffix != ".bin":
            return None
        file.seek(max(0, path.stat().st_size - 4 * labels * dimension - _TAIL.size))
        tail = file.read(_TAIL.size)
    whole = len(tail) == _TAIL.size and _TAIL.unpack(tail) == (False, labels, dimension)
    return None if whole else "is a fastText model cut short"
