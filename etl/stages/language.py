"""Keep documents of some languages."""

import difflib
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field, field_validator

from etl.stages import lid
from etl.stages.base import Filter, Rules, below
from etl.stages.signals import lang, lang_score


class Language(Filter):
    """Keep documents that are surely in one of some languages; ``lang``, ``lang_score`` are columns.

    The model is fastText's lid.176.ftz (Joulin et al. 2016) over the first 1,000 characters, see
    ``etl.stages.lid``; the least score is FineWeb's (Penedo et al. 2024). An empty ``keep`` is any
    language.
    """

    kind: Literal["language"] = "language"
    shorthand = "keep"
    keep: Annotated[tuple[str, ...], Field(strict=False)] = ()  # codes: ISO 639-1, else -3
    min_score: float | None = Field(default=0.65, ge=0, le=1)  # None: any

    @field_validator("keep")
    @classmethod
    def _known(cls, keep: tuple[str, ...]) -> tuple[str, ...]:
        for code in keep:
            if code not in lid.languages():
                near = difflib.get_close_matches(code, lid.languages(), n=3, cutoff=0.5)
                raise ValueError(f"unknown language {code!r}; codes near it: {', '.join(near)}")
        return keep

    def rules(self) -> Rules:
        """``language.other`` and ``language.score``."""
        other = ~lang.is_in(self.keep) if self.keep else pl.lit(False)
        return {"other": other, "score": below(lang_score, self.min_score)}

    def signals(self) -> list[str]:
        """Both columns, whatever the rules ask for."""
        return ["lang", "lang_score"]

    def identity(self) -> dict[str, Any]:
        """The fields, the model's sha256 and the characters looked at."""
        return {**super().identity(), **lid.identity()}
