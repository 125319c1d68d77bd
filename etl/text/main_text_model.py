"""Load the model that decides which blocks of a page are main text: a file of oblivious trees.

The file (``.npz``) has arrays of numbers, the names of its features (``etl.kernels.html.features``), and a
JSON document with a version, the bars of `FAVORS`, and a report: which data it was trained on, and how good
it is. The file of this package, ``main_text.npz``, was trained with ``benchmarks/``.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from etl.errors import StageError

if TYPE_CHECKING:
    from etl.kernels.html.page_batches import BlockModel

VERSION: Final = 1
"""The version of the format, and of what the features mean."""

BUILT_IN: Final = Path(__file__).with_name("main_text.npz")
"""The model of this package."""

Favor = Literal["balanced", "precision", "recall"]
"""Whether to leave out what may not be main text (``precision``), or to keep it (``recall``)."""

FAVORS: Final[tuple[Favor, ...]] = get_args(Favor)
"""The values of `Favor`."""


# Whose bar counts for a page that has little main text. So what a setting keeps, the next one keeps, too.
_NEXT: Final[Mapping[Favor, Favor]] = {
    "precision": "balanced",
    "balanced": "recall",
    "recall": "recall",
}


@dataclass(frozen=True)
class MainTextModel:
    """A model; arrays as in ``etl.kernels.html.trees``, where ``feature`` indexes ``names``."""

    names: tuple[str, ...]
    feature: NDArray[np.int32]  # (T, D)
    threshold: NDArray[np.float32]  # (T, D)
    leaves: NDArray[np.float32]  # (T, 2^D)
    start: float
    bars: Mapping[Favor, float]  # log odds above which a block is main text
    report: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Write the model to a file, the same bytes for the same model."""
        description = {
            "version": VERSION,
            "names": self.names,
            "start": self.start,
            "bars": dict(self.bars),
            "report": dict(self.report),
        }
        np.savez_compressed(
            path,
            description=np.frombuffer(json.dumps(description, sort_keys=True).encode(), np.uint8),
            feature=self.feature,
            threshold=self.threshold,
            leaves=self.leaves,
        )

    def for_kernel(self, favor: Favor) -> "BlockModel":
        """Return the model as the kernels read it."""
        from etl.kernels.bytes.utf8 import frozen
        from etl.kernels.html import features
        from etl.kernels.html.page_batches import BlockModel
        from etl.kernels.html.trees import Trees

        # Only the bits that the model has are computed; their rows follow the rows of all numbers.
        bits = sorted({features.BITS.index(n) for n in self.names if n in features.BITS})
        rows = [
            features.NUMBERS.index(name)
            if name in features.NUMBERS
            else len(features.NUMBERS) + bits.index(features.BITS.index(name))
            for name in self.names
        ]
        trees = Trees(
            np.array(rows, np.int32)[self.feature],
            np.ascontiguousarray(self.threshold, np.float32),
            np.ascontiguousarray(self.leaves, np.float32),
        )
        return BlockModel(
            bits=frozen(np.array(bits, np.int64)),
            trees=Trees(*map(frozen, trees)),
            bar=np.float32(self.bars[favor]),
            lower_bar=np.float32(self.bars[_NEXT[favor]]),
            start=np.float32(self.start),
        )


@cache
def load_model(path: Path = BUILT_IN) -> MainTextModel:
    """Read a model from a file; raise StageError if it is not one, or has other features than this version.

    >>> sorted(load_model().bars)
    ['balanced', 'precision', 'recall']
    """
    from etl.kernels.html.features import NAMES

    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            description = json.loads(file["description"].tobytes())
            feature, threshold, leaves = file["feature"], file["threshold"], file["leaves"]
    except (OSError, ValueError, KeyError) as error:
        raise StageError(f"{path} is not a model of main text: {error}") from error
    if description["version"] != VERSION or (unknown := {*description["names"]} - {*NAMES}):
        what = f"version {description['version']}" if description["version"] != VERSION else unknown
        raise StageError(
            f"{path} has features that this version does not know: {what}",
            hint="train the model again",
        )
    return MainTextModel(
        names=tuple(description["names"]),
        feature=feature,
        threshold=threshold,
        leaves=leaves,
        start=description["start"],
        bars=description["bars"],
        report=description["report"],
    )


@cache
def model_digest(path: Path = BUILT_IN) -> str:
    """Return the sha256 of a model file, which is a part of the identity of a stage."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
