"""The FastText stage: filter documents by the probability that a fastText model gives a label."""

import re
from typing import Any, ClassVar, Final, Literal, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from etl.errors import RecipeError, nearest_names
from etl.stages.base import Filter, Rules, above, below
from etl.storage.listing import FileInfo
from etl.storage.referenced_files import find_referenced_files_cached, hash_referenced_files
from etl.text.fasttext_model import LABEL_PREFIX, FastTextModel, load_model

_BREAKS: Final = "[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029]"  # str.splitlines


class FastText(Filter):
    """Keep documents for which a supervised fastText model (.bin or .ftz) scores a label within limits.

    ``label`` may omit ``__label__``. The probability is stored in the column ``fasttext_<name>``; ``name``
    defaults to the label. Texts are prepared as in DCLM (Li et al. 2024, arXiv 2406.11794,
    mlfoundations/dclm): stripped, with lines joined by spaces, and cut to the first ``max_chars``
    characters if that is set. Train the model on text prepared in the same way.

    Only documents that no earlier stage has rejected are classified. A model of words and word pairs with
    100 dimensions processes 73 MB of English text per second; one of characters, such as lid.176, 5 MB.
    """

    kind: Literal["fasttext"] = "fasttext"
    paths = ("model",)
    thresholds = ("min_score", "max_score")
    costly: ClassVar[bool] = True
    model: str
    label: str = Field(min_length=1)
    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]*$")  # default: the label
    min_score: float | None = Field(default=None, ge=0, le=1)
    max_score: float | None = Field(default=None, ge=0, le=1)
    max_chars: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if not re.fullmatch(r"[a-z0-9_]+", self._name):
            raise ValueError(f"the label {self.label!r} cannot be a column name: set `name`")
        return self

    def identity(self) -> dict[str, Any]:
        """Return the settings, with the model's sha256 in place of its path.

        Raises RecipeError if the model does not exist.
        """
        return {**super().identity(), "model": hash_referenced_files(self.model)}

    def columns(self) -> dict[str, str]:
        """Return the column ``fasttext_<name>``."""
        return {f"fasttext_{self._name}": "probability"}

    def rules(self) -> Rules:
        """Return the rules ``fasttext.<name>_low`` and ``fasttext.<name>_high``."""
        score = pl.col(f"fasttext_{self._name}")
        return {
            f"{self._name}_low": below(score, self.min_score),
            f"{self._name}_high": above(score, self.max_score),
        }

    def signals(self) -> list[str]:
        """Return ``text`` and the column of the probability."""
        return ["text", *self.columns()]

    def measure(self, table: pa.Table) -> pa.Table:
        """Compute the probability of the label (float64), null where ``text`` is null.

        Raises RecipeError if the model cannot be loaded or does not have the label.
        """
        score = self.load().score
        scores = [None if line is None else score(line, self.label) for line in self._lines(table)]
        return pa.table({f"fasttext_{self._name}": pa.array(scores, pa.float64())})

    def load(self) -> FastTextModel:
        """Return the model, which is loaded once per process and again only if its file changes.

        Raises RecipeError if the file is missing or not a supervised model, or if the label is unknown.
        """
        return self._with_label(load_model(self._file()))

    def check(self) -> None:
        """Load the model and discard it, because the driver does not classify documents."""
        self._with_label(load_model.__wrapped__(self._file()))

    def _file(self) -> FileInfo:
        matches = find_referenced_files_cached(self.model)
        if len(matches) > 1:
            raise RecipeError(
                f"the path matches {len(matches)} files, but a model is one file", where=self.model
            )
        return matches[0]

    def _with_label(self, model: FastTextModel) -> FastTextModel:
        """Return the model; raise RecipeError if it does not have the label."""
        if model.full_label(self.label) not in model.labels:
            known = [label.removeprefix(LABEL_PREFIX) for label in model.labels]
            hint = nearest_names(self.label.removeprefix(LABEL_PREFIX), known)
            what = f"the model has no label {self.label!r}"
            raise RecipeError(what, where=self._file().uri, hint=hint)
        return model

    @property
    def _name(self) -> str:
        if self.name is not None:
            return self.name
        return re.sub(r"\W", "_", self.label.removeprefix(LABEL_PREFIX)).lower()

    def _lines(self, table: pa.Table) -> list[str | None]:
        """Return each text as a single line, the input of fastText."""
        texts = table["text"]
        if self.max_chars is not None:
            texts = pc.utf8_slice_codeunits(texts, 0, self.max_chars)
        lines = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), _BREAKS, " ")
        return list(lines.to_pylist())
