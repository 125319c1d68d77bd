"""The FastText stage: filter documents by the probabilities that a fastText model gives labels."""

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import polars as pl
import pyarrow as pa
from pydantic import Field, model_validator

from etl.errors import RecipeError, nearest_names
from etl.kernels.fasttext import LABEL_PREFIX
from etl.stages.base import Filter, Rules, above, below
from etl.storage.list_files import FileInfo
from etl.storage.referenced_files import find_referenced_files_cached, hash_referenced_files

if TYPE_CHECKING:
    from etl.text.fasttext_model import FastTextModel

Label = Annotated[str, Field(min_length=1)]


class FastText(Filter):
    """Keep documents for which a supervised fastText model (.bin or .ftz) scores a label within limits.

    ``label`` may omit ``__label__``. The probability is stored in the column ``fasttext_<name>``; ``name``
    defaults to the label. With a list of labels, one pass over the text gives a column for each, the limits
    hold for each, and ``name`` is put before each: ``fasttext_<name>_<label>``. Texts are prepared as in DCLM
    (Li et al. 2024, arXiv 2406.11794, mlfoundations/dclm): stripped, with lines joined by spaces. If
    ``max_chars`` is set, they are cut to that many characters first. Train the model on text prepared in the
    same way.

    Only documents that no earlier stage has rejected are classified. The probability is null, and the
    document kept, if the model knows no word and no n-gram of it. Models of 64 MB or more are mapped into
    memory, which the workers of a machine share: replace such a file by renaming another one, never by
    writing to it.
    """

    kind: Literal["fasttext"] = "fasttext"
    example: ClassVar[str] = "fasttext: {model: quality.bin, label: hq, min_score: 0.5}"
    paths = ("model",)
    thresholds = ("min_score", "max_score")
    costly: ClassVar[bool] = True
    model: str
    """The path or URL of a supervised fastText model (.bin or .ftz)."""
    label: Label | Annotated[tuple[Label, ...], Field(strict=False, min_length=1)]
    """The label whose probability is judged, or several of them."""
    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]*$")
    """The part after ``fasttext_`` of the column's name; by default the label."""
    min_score: float | None = Field(default=None, ge=0, le=1)
    """The lowest probability to keep, from 0 to 1; null means no limit."""
    max_score: float | None = Field(default=None, ge=0, le=1)
    """The highest probability to keep, from 0 to 1; null means no limit."""
    max_chars: int | None = Field(default=None, ge=1)
    """Classify only the first characters of a text; null means all."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = self._names
        for name, label in names.items():
            if not re.fullmatch(r"[a-z0-9_]+", name):
                hint = "set `name`" if isinstance(self.label, str) else "use a stage for it alone"
                raise ValueError(f"the label {label!r} cannot be a column name: {hint}")
        if not isinstance(self.label, str) and len(names) < len(self.label):
            raise ValueError(f"two of the labels give the same column name: {', '.join(names)}")
        return self

    def identity(self) -> dict[str, Any]:
        """Return the settings, with the model's sha256 in place of its path.

        Raises RecipeError if the model does not exist.
        """
        return {**super().identity(), "model": hash_referenced_files(self.model)}

    def columns(self) -> dict[str, str]:
        """Return the column ``fasttext_<name>`` of each label."""
        return {f"fasttext_{name}": "probability" for name in self._names}

    def rules(self) -> Rules:
        """Return the rules ``fasttext.<name>_low`` and ``fasttext.<name>_high`` of each label."""
        rules = {}
        for name in self._names:
            score = pl.col(f"fasttext_{name}")
            rules[f"{name}_low"] = below(score, self.min_score)
            rules[f"{name}_high"] = above(score, self.max_score)
        return rules

    def signals(self) -> list[str]:
        """Return ``text`` and the columns of the probabilities."""
        return ["text", *self.columns()]

    def measure(self, table: pa.Table) -> pa.Table:
        """Compute the probabilities of the labels (float64), null where ``text`` is null.

        Raises RecipeError if the model cannot be loaded or does not have a label.
        """
        labels = [*self._names.values()]
        scores = self.load().scores(table["text"], labels, max_chars=self.max_chars)
        return pa.table(dict(zip(self.columns(), scores, strict=True)))

    def load(self) -> "FastTextModel":
        """Return the model, which is loaded once per process and again only if its file changes.

        Raises RecipeError if the file is missing or not a supervised model, or if a label is unknown.
        """
        from etl.text.fasttext_model import load_model

        return self._with_labels(load_model(self._file()))

    def check(self) -> None:
        """Load the model and discard it, because the driver does not classify documents."""
        from etl.text.fasttext_model import load_model

        self._with_labels(load_model.__wrapped__(self._file()))

    def _file(self) -> FileInfo:
        matches = find_referenced_files_cached(self.model)
        if len(matches) > 1:
            raise RecipeError(
                f"the path matches {len(matches)} files, but a model is one file", where=self.model
            )
        return matches[0]

    def _with_labels(self, model: "FastTextModel") -> "FastTextModel":
        """Return the model; raise RecipeError if it does not have a label."""
        for label in self._names.values():
            if model.full_label(label) not in model.rows:
                known = sorted(each.removeprefix(LABEL_PREFIX) for each in model.labels)
                hint = nearest_names(label.removeprefix(LABEL_PREFIX), known)
                what = f"the model has no label {label!r}"
                raise RecipeError(what, where=self._file().uri, hint=hint)
        return model

    @property
    def _names(self) -> dict[str, str]:
        """Return the labels by the name of each."""
        if isinstance(self.label, str):
            return {self.name or _column_name(self.label): self.label}
        prefix = f"{self.name}_" if self.name else ""
        return {prefix + _column_name(label): label for label in self.label}


def _column_name(label: str) -> str:
    return re.sub(r"\W", "_", label.removeprefix(LABEL_PREFIX)).lower()
