"""TODO."""

import re
from typing import Any, ClassVar, Final, Literal, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from etl.errors import RecipeError
from etl.sources.settings import suggest_name
from etl.stages.base import Filter, Rules, above, below
from etl.storage.listing import FileInfo
from etl.storage.referenced_files import find_referenced_files_cached, hash_referenced_files
from etl.text.fasttext_model import LABEL_PREFIX, Model, load_model

_BREAKS: Final = "[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029]"  # str.splitlines


class FastText(Filter):
    """Keep documents by the probability of a label under a supervised fastText model (.bin or .ftz).

    ``label`` may leave out ``__label__``. The probability is the column ``fasttext_<name>``, the name
    being the label's if none is given. A text is read as DCLM reads it (Li et al. 2024, arXiv
    2406.11794, mlfoundations/dclm): stripped, its lines joined with blanks; of ``max_chars`` characters
    only the first, where that is set. Train with text prepared in the same way.

    Only documents that no stage before has rejected are classified. A model of words and word pairs with
    100 dimensions takes 73 MB of English text a second; one of characters, such as lid.176, 5 MB.
    """

    kind: Literal["fasttext"] = "fasttext"
    paths = ("model",)
    thresholds = ("min_score", "max_score")
    costly: ClassVar[bool] = True
    model: str
    label: str = Field(min_length=1)
    name: str | None = Field(
        default=None, pattern=r"^[a-z][a-z0-9_]*$"
    )  # the label's, unless given
    min_score: float | None = Field(default=None, ge=0, le=1)
    max_score: float | None = Field(default=None, ge=0, le=1)
    max_chars: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _has_name(self) -> Self:
        if not re.fullmatch(r"[a-z0-9_]+", self._name):
            raise ValueError(f"the label {self.label!r} makes no name of a column: give a `name`")
        return self

    def identity(self) -> dict[str, Any]:
        """The settings, with the model's sha256 in place of its path.

        Raises RecipeError if the model is not there.
        """
        return {**super().identity(), "model": hash_referenced_files(self.model)}

    def columns(self) -> dict[str, str]:
        """``fasttext_<name>``."""
        return {f"fasttext_{self._name}": "probability"}

    def rules(self) -> Rules:
        """``fasttext.<name>_low`` and ``fasttext.<name>_high``."""
        score = pl.col(f"fasttext_{self._name}")
        return {
            f"{self._name}_low": below(score, self.min_score),
            f"{self._name}_high": above(score, self.max_score),
        }

    def signals(self) -> list[str]:
        """``text`` and the probability, whatever the limits are."""
        return ["text", *self.columns()]

    def measure(self, table: pa.Table) -> pa.Table:
        """The probability of the label, float64; null where ``text`` is.

        Raises RecipeError if the model cannot be loaded, or does not have the label.
        """
        score = self.load().score
        scores = [None if line is None else score(line, self.label) for line in self._lines(table)]
        return pa.table({f"fasttext_{self._name}": pa.array(scores, pa.float64())})

    def load(self) -> "Model":
        """The model, loaded once per process, and again only if its file changes.

        Raises RecipeError if it is not there, is no supervised model, or does not have the label.
        """
        return self._known(load_model(self._file()))

    def check(self) -> None:
        """Load the model once, and forget it: the driver classifies nothing."""
        self._known(load_model.__wrapped__(self._file()))

    def _file(self) -> FileInfo:
        found = find_referenced_files_cached(self.model)
        if len(found) > 1:
            raise RecipeError(f"{len(found)} files, not one model", where=self.model)
        return found[0]

    def _known(self, model: "Model") -> "Model":
        if model.full(self.label) not in model.labels:
            known = [label.removeprefix(LABEL_PREFIX) for label in model.labels]
            hint = suggest_name(self.label.removeprefix(LABEL_PREFIX), known)
            what = f"the model has no label {self.label!r}"
            raise RecipeError(what, where=self._file().uri, hint=hint)
        return model

    @property
    def _name(self) -> str:
        if self.name is not None:
            return self.name
        return re.sub(r"\W", "_", self.label.removeprefix(LABEL_PREFIX)).lower()

    def _lines(self, table: pa.Table) -> list[str | None]:
        """Each text as the one line that fastText reads."""
        texts = table["text"]
        if self.max_chars is not None:
            texts = pc.utf8_slice_codeunits(texts, 0, self.max_chars)
        lines = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), _BREAKS, " ")
        return list(lines.to_pylist())
