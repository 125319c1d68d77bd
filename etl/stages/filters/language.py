"""The Language stage: filter documents by their most likely language and its score."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field, field_validator

from etl.stages.base import Filter, Rules, Stage, below
from etl.stages.signals import lang, lang_score
from etl.text import language_id
from etl.text.language_id import Labels

Score = Annotated[float, Field(ge=0, le=1)]
Keep = tuple[str, ...] | dict[str, float | None]


class Language(Filter):
    """Keep documents that are in certain languages with a minimum score; sets ``lang`` and ``lang_score``.

    The model is fastText's lid.176.ftz (Joulin et al. 2016) over the first 1,000 characters, see
    ``etl.text.language_id``; the default of ``min_score`` is FineWeb's (Penedo et al. 2024). An empty
    ``keep`` allows any language. ``keep`` may set a minimum score per language, as in
    ``{de: 0.8, en: null}``; null means ``min_score``. FineWeb2 sets one for each language
    (huggingface/fineweb-2, configs: German 0.821, Japanese 0.886), but for the scores of another model
    (GlotLID), so its values do not carry over.
    """

    kind: Literal["language"] = "language"
    example = "language: {keep: [de, en], min_score: 0.65}"
    shorthand = "keep"
    thresholds = ("keep", "min_score")
    keep: Annotated[tuple[str, ...], Field(strict=False)] | dict[str, Score | None] = ()
    """Language codes to keep: ISO 639-1, or ISO 639-3 where there is none; empty keeps all. A mapping sets a
    minimum score for each code; null means ``min_score``."""
    min_score: Score | None = 0.65
    """The lowest score of the language to keep, from 0 to 1; null allows any. The default is FineWeb's."""
    labels: Labels = "fasttext"
    """How the whole recipe labels text in capitals or without letters: ``fasttext`` as fastText does; with
    ``letters``, a text with more upper-case than lower-case letters gets the language of its lower case, and
    a text without letters has none and is rejected (``language.no_letters``)."""

    @field_validator("keep")
    @classmethod
    def _check_codes(cls, keep: Keep) -> Keep:
        for code in keep:
            language_id.check_language(code)
        return keep

    def rules(self) -> Rules:
        """Return the rules ``language.other`` and ``language.score``, before them ``language.no_letters``."""
        other = ~lang.is_in([*self.keep]) if self.keep else pl.lit(False)
        rules = {"other": other, "score": _has_low_score(self.keep, self.min_score)}
        return {"no_letters": lang.is_null(), **rules} if self.labels == "letters" else rules

    def signals(self) -> list[str]:
        """Return both columns, even if no rule reads them."""
        return ["lang", "lang_score"]

    def identity(self) -> dict[str, Any]:
        """Return the fields, the model's sha256 and the number of characters read."""
        return {**super().identity(), **language_id.model_identity()}


def _has_low_score(keep: Keep, min_score: float | None) -> pl.Expr:
    low = below(lang_score, min_score)
    for code, score in keep.items() if isinstance(keep, dict) else ():
        if score is not None:
            low = pl.when(lang == code).then(below(lang_score, score)).otherwise(low)
    return low


def labels_of(stages: Iterable[Stage]) -> Labels:
    """Return how stages label languages: as their ``language`` stages, which share one column, say.

    Raises ValueError if these differ.
    """
    labels = [stage.labels for stage in stages if isinstance(stage, Language)]
    if len({*labels}) > 1:
        raise ValueError(
            f"language stages have different `labels` ({', '.join(sorted({*labels}))}), but all stages share "
            "the language of a document; give them the same `labels`"
        )
    return labels[0] if labels else "fasttext"
