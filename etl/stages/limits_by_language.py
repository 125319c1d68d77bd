"""A filter whose limits may differ from language to language."""

from collections.abc import Mapping
from typing import Any, get_args

import polars as pl
from pydantic import ValidationError, field_validator
from pydantic_core import InitErrorDetails

from etl.stages import signals
from etl.stages.base import Filter, Limit
from etl.stages.fineweb2_limits import Limits, Table, table
from etl.stages.signals import lang
from etl.text import language_id


class ByLanguage(Filter):
    """A filter with limits (fields ``min_...`` and ``max_...``) that ``languages`` replaces for some.

    ``languages`` is a mapping from a language (as in ``lang``) to limits of this filter, or the name of a
    table of them (``etl.stages.fineweb2_limits``). What it does not say is as the filter itself has it.
    """

    languages: Table | dict[str, dict[str, int | float | None]] | None = None

    @field_validator("languages", mode="before")
    @classmethod
    def _known(cls, languages: Any) -> Any:
        """Refuse what would not be a limit of the filter itself, by its place: ``languages.de.min_words``."""
        if languages is None or languages in get_args(Table):
            return languages
        _refuse(
            not isinstance(languages, Mapping),
            f"{languages!r} is neither a mapping from languages to limits nor the name of a table of them; "
            f"there is {', '.join(get_args(Table))}",
        )
        for code, limits in languages.items():
            _refuse(
                not isinstance(code, str),
                f"{code!r} is no language; write no and on in quotes: to YAML they are truth values",
            )
            language_id.check(code)
            _refuse(
                not isinstance(limits, Mapping), f"the limits of {code} are no mapping: {limits!r}"
            )
            cls._check(code, limits)
        return languages

    @classmethod
    def _check(cls, code: str, limits: Mapping[str, Any]) -> None:
        found: list[InitErrorDetails] = []
        try:
            cls.model_validate(dict(limits))
        except ValidationError as error:
            found = [
                InitErrorDetails(
                    type=one["type"],
                    loc=(code, *one["loc"]),
                    input=one["input"],
                    ctx=one.get("ctx", {}),
                )
                for one in error.errors()
            ]
        known = cls.limit_fields()
        found += [
            InitErrorDetails(type="extra_forbidden", loc=(code, name), input=value)
            for name, value in limits.items()
            if name not in known and name in cls.model_fields
        ]
        if found:
            raise ValidationError.from_exception_data(cls.__name__, found)

    @classmethod
    def limit_fields(cls) -> list[str]:
        """The fields that a language may have of its own."""
        return [name for name in cls.model_fields if name.startswith(("min_", "max_"))]

    def by_language(self) -> dict[str, Limits]:
        """Language -> its own limits, those of a named table included."""
        if isinstance(self.languages, str):
            return table(self.languages, self.kind)
        return {**self.languages} if self.languages is not None else {}

    def limits(self) -> dict[str, Limit]:
        """Field -> its limit: a number, or an expression over ``lang`` where languages have their own."""
        found: dict[str, Limit] = {}
        by_language = self.by_language()
        for name in self.limit_fields():
            found[name] = getattr(self, name)
            own = {code: limits[name] for code, limits in by_language.items() if name in limits}
            if own:
                found[name] = lang.replace_strict(
                    [*own], [*own.values()], default=found[name], return_dtype=pl.Float64
                )
        return found

    def identity(self) -> dict[str, Any]:
        """The fields; with languages their limits, and what decides ``lang`` and its stop words."""
        found = super().identity()
        if self.languages is None:
            return found
        return found | {"languages": self.by_language()} | signals.identity(self.signals())


def _refuse(is_wrong: bool, why: str) -> None:  # noqa: FBT001 - the sentence that follows says it
    if is_wrong:
        raise ValueError(why)
