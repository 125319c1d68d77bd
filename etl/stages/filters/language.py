"""The Language stage: filter documents by their most likely language and its score."""

from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field, field_validator

from etl.stages.base import Filter, Rules, below
from etl.stages.signals import lang, lang_score
from etl.text import language_id

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
    shorthand = "keep"
    keep: Annotated[tuple[str, ...], Field(strict=False)] | dict[str, Score | None] = ()
    """Language codes to keep: ISO 639-1, or ISO 639-3 where there is none; empty keeps all. A mapping sets a
    minimum score for each code; null means ``min_score``."""
    min_score: Score | None = 0.65
    """The lowest score of the language to keep, from 0 to 1; null allows any. The default is FineWeb's."""

    @field_validator("keep")
    @classmethod
    def _check_codes(cls, keep: Keep) -> Keep:
        for code in keep:
            language_id.check_language(code)
        return keep

    def rules(self) -> Rules:
        """Return the rules ``language.other`` and ``language.score``."""
        other = ~lang.is_in([*self.keep]) if self.keep else pl.lit(False)
        return {"other": other, "score": self._has_low_score()}

    def _has_low_score(self) -> pl.Expr:
        scores = self.keep if isinstance(self.keep, dict) else {}
        low = below(lang_score, self.min_score)
        for code, score in scores.items():
            if score is not None:
                low = pl.when(lang == code).then(below(lang_score, score)).otherwise(low)
        return low

    def signals(self) -> list[str]:
        """Return both columns, even if no rule reads them."""
        return ["lang", "lang_score"]

    def identity(self) -> dict[str, Any]:
        """Return the fields, the model's sha256 and the number of characters read."""
        return {**super().identity(), **language_id.model_identity()}
