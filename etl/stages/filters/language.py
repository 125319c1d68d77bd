"""Keep documents of some languages."""

from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field, field_validator

from etl.stages.base import Filter, Rules, below
from etl.stages.signals import lang, lang_score
from etl.text import language_id

Score = Annotated[float, Field(ge=0, le=1)]
Keep = tuple[str, ...] | dict[str, float | None]


class Language(Filter):
    """Keep documents that are surely in one of some languages; ``lang``, ``lang_score`` are columns.

    The model is fastText's lid.176.ftz (Joulin et al. 2016) over the first 1,000 characters, see
    ``etl.text.language_id``; the least score is FineWeb's (Penedo et al. 2024). An empty ``keep`` is any
    language. ``keep`` may give languages a least score of their own, as ``{de: 0.8, en: null}``; null is
    ``min_score``. FineWeb2 has one for each language (huggingface/fineweb-2, configs: German 0.821,
    Japanese 0.886), for the scores of another model (GlotLID): they fit lid.176 in kind, not in number.
    """

    kind: Literal["language"] = "language"
    shorthand = "keep"
    keep: Annotated[tuple[str, ...], Field(strict=False)] | dict[str, Score | None] = ()
    """Codes: ISO 639-1, else -3."""
    min_score: Score | None = 0.65  # None: any

    @field_validator("keep")
    @classmethod
    def _known(cls, keep: Keep) -> Keep:
        for code in keep:
            language_id.check(code)
        return keep

    def rules(self) -> Rules:
        """``language.other`` and ``language.score``."""
        other = ~lang.is_in([*self.keep]) if self.keep else pl.lit(False)
        return {"other": other, "score": self._low()}

    def _low(self) -> pl.Expr:
        own = self.keep if isinstance(self.keep, dict) else {}
        low = below(lang_score, self.min_score)
        for code, score in own.items():
            if score is not None:
                low = pl.when(lang == code).then(below(lang_score, score)).otherwise(low)
        return low

    def signals(self) -> list[str]:
        """Both columns, whatever the rules ask for."""
        return ["lang", "lang_score"]

    def identity(self) -> dict[str, Any]:
        """The fields, the model's sha256 and the characters looked at."""
        return {**super().identity(), **language_id.identity()}
