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
    from etl.kernels.html.extract import Model

VERSION: Final = 1
"""The version of the format, and of what the features mean."""

BUILT_IN: Final = Path(__file__).with_name("main_text.npz")
"""The model of this package."""

Favor = Literal["balanced", "precision", "recall"]
"""Whether to leave out what may not be main text (``precision``), or to keep it (``recall``)."""

FAVORS: Final[tuple[Favor, ...]] = get_args(Favor)
"""The values of `Favor`."""


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
        arrays = {"feature": self.feature, "threshold": self.threshold, "leaves": self.leaves}
        content = np.frombuffer(json.dumps(description, sort_keys=True).encode(), np.uint8)
        np.savez_compressed(path, description=content, **arrays)

    def for_kernel(self, favor: Favor) -> "Model":
        """Return the model as the kernels read it."""
        from etl.kernels.bytes.utf8 import frozen
        from etl.kernels.html import features
        from etl.kernels.html.extract import Model
        from etl.kernels.html.trees import Trees

        # A model computes only its own bits: each has a row after those of all numbers.
        bits = sorted({features.BITS.index(n) for n in self.names if n in features.BITS})
        rows = [
            features.NUMBERS.index(name)
            if name in features.NUMBERS
            else len(features.NUMBERS) + bits.index(features.BITS.index(name))
            for name in self.names
        ]
        trees = Trees(np.array(rows, np.int32)[self.feature], self.threshold, self.leaves)
        return Model(
            bits=frozen(np.array(bits, np.int64)),
            trees=Trees(*map(frozen, trees)),
            bar=np.float32(self.bars[favor]),
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
            arrays = [file["feature"], file["threshold"], file["leaves"]]
    except (OSError, ValueError, KeyError) as error:
        raise StageError(f"{path} is not a model of main text: {error}") from error
    if description["version"] != VERSION or (unknown := {*description["names"]} - {*NAMES}):
        what = f"version {description['version']}" if description["version"] != VERSION else unknown
        raise StageError(
            f"{path} has features that this version does not know: {what}",
            hint="train the model again",
        )
    return MainTextModel(
        tuple(description["names"]),
        *arrays,
        description["start"],
        description["bars"],
        description["report"],
    )


@cache
def model_digest(path: Path = BUILT_IN) -> str:
    """Return the sha256 of a model file, which is a part of the identity of a stage."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
