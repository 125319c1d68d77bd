"""ByLanguage: the base class of filters whose limits may differ between languages."""

from collections.abc import Mapping
from typing import Any, Self, get_args

import polars as pl
from pydantic import ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails

from etl.settings_files.settings import check_limits
from etl.stages import signals
from etl.stages.base import Filter, Limit
from etl.stages.fineweb2_limits import Limits, LimitsTable, limits_of_table
from etl.stages.signals import Words, lang
from etl.text import language_id, segmenters


class ByLanguage(Filter):
    """A filter with limits (fields ``min_...`` and ``max_...``) that ``languages`` can override.

    ``languages`` is a mapping from a language (as in ``lang``) to limits of this filter, or the name of a
    table of such limits (``etl.stages.fineweb2_limits``). Limits it does not give are the filter's own.
    ``words`` selects what its signals count (``etl.stages.signals.Words``).
    """

    words: Words = "segments"
    """What counts as a word: ``segments`` as spaCy splits the document's language, ``dictionary`` likewise
    with dictionaries for Chinese, Japanese and Korean (extra ``segmenters``), or ``spaces`` between white
    space."""
    languages: LimitsTable | dict[str, dict[str, int | float | None]] | None = None
    """Limits per language that replace those below, as in ``{de: {min_words: 30}}``; or ``fineweb2``,
    FineWeb-2's limits for 32 languages."""

    @field_validator("languages", mode="before")
    @classmethod
    def _check_languages(cls, languages: Any) -> Any:
        """Reject values that the filter itself would reject, with their path: ``languages.de.min_words``."""
        if languages is None or languages in get_args(LimitsTable):
            return languages
        _reject_if(
            not isinstance(languages, Mapping),
            f"{languages!r} is neither a mapping from languages to limits nor the name of a table of limits; "
            f"available tables: {', '.join(get_args(LimitsTable))}",
        )
        for code, limits in languages.items():
            _reject_if(
                not isinstance(code, str),
                f'{code!r} is not a language code; write "no" in quotes, as YAML reads no as false',
            )
            language_id.check_language(code)
            _reject_if(
                not isinstance(limits, Mapping),
                f"the limits of {code} must be a mapping, not {limits!r}",
            )
            cls._check_limits(code, limits)
        return languages

    @classmethod
    def _check_limits(cls, code: str, limits: Mapping[str, Any]) -> None:
        mistakes: list[InitErrorDetails] = []
        try:
            # The filter's own limits are not known yet: `_languages_agree` compares them.
            cls.model_validate({**dict.fromkeys(cls.limit_fields()), **limits})
        except ValidationError as error:
            mistakes = [
                InitErrorDetails(
                    type=mistake["type"],
                    loc=(code, *mistake["loc"]),
                    input=mistake["input"],
                    ctx=mistake.get("ctx", {}),
                )
                for mistake in error.errors()
            ]
        known = cls.limit_fields()
        mistakes += [
            InitErrorDetails(type="extra_forbidden", loc=(code, name), input=value)
            for name, value in limits.items()
            if name not in known and name in cls.model_fields
        ]
        if mistakes:
            raise ValidationError.from_exception_data(cls.__name__, mistakes)

    @model_validator(mode="after")
    def _languages_agree(self) -> Self:
        """Reject limits of a language that contradict the limits of the filter."""
        for code, limits in self.by_language().items():
            try:
                check_limits({**dict(self), **limits})
            except ValueError as error:
                raise ValueError(f"in {code}, {error}") from None
        return self

    @classmethod
    def limit_fields(cls) -> list[str]:
        """Return the names of the fields that can differ between languages."""
        return [name for name in cls.model_fields if name.startswith(("min_", "max_"))]

    def by_language(self) -> dict[str, Limits]:
        """Return the limits of each language that has its own, also if they are from a named table."""
        if isinstance(self.languages, str):
            segmented = segmenters.PACKAGES if self.words == "dictionary" else ()
            return limits_of_table(self.languages, self.kind, segmented)
        return {**self.languages} if self.languages is not None else {}

    def limits(self) -> dict[str, Limit]:
        """Return the limit of each field: a number, or an expression over ``lang`` if languages differ."""
        result: dict[str, Limit] = {}
        by_language = self.by_language()
        for name in self.limit_fields():
            default = getattr(self, name)
            own = {code: limits[name] for code, limits in by_language.items() if name in limits}
            if own:
                result[name] = lang.replace_strict(
                    [*own], [*own.values()], default=default, return_dtype=pl.Float64
                )
            else:
                result[name] = default
        return result

    def identity(self) -> dict[str, Any]:
        """Return the fields and what determines the signals; with languages also their limits."""
        fields = super().identity()
        if self.languages is not None:
            fields |= {"languages": self.by_language()}
        return fields | signals.signals_identity(self.signals())


def _reject_if(is_wrong: bool, message: str) -> None:  # noqa: FBT001 - the message explains it
    if is_wrong:
        raise ValueError(message)
