"""Find the setting behind a rule that rejects documents, and a limit that rejects few of them."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl
import pyarrow as pa

from etl.stages.base import Stage
from etl.stages.document_columns import PlacedStage, split_at_transforms
from etl.stages.limits_by_language import ByLanguage

_ADMITTED: Final = 0.9  # of the rejected documents; chosen here: the others may well be bad


def limit_of_rule(stage: Stage, rule: str) -> str | None:
    """Return the field with the limit of a rule; None if no number decides.

    >>> from etl.stages import Language, Length
    >>> limit_of_rule(Length(min_chars=5, max_words=9), "many_words")
    'max_words'
    >>> limit_of_rule(Language(keep=("de",)), "other") is None
    True
    """
    own = stage.rules().get(rule)
    for name in _limits(stage):
        # The rule reads a limit if its expression changes with it.
        other = stage.model_copy(update={name: getattr(stage, name) + 1}).rules().get(rule)
        if own is not None and other is not None and not own.meta.eq(other):
            return name
    return None


def loosen(stages: Sequence[Stage], reason: str, documents: pa.Table) -> tuple[int, Stage] | None:
    """Return the index of the stage that rejects with a reason, and that stage with a looser limit.

    ``documents`` is what ``apply`` has made of these stages, with all signals. None if no stage has a number
    as the limit of that rule, or if another number would not help.
    """
    kind, _, rule = reason.partition(".")
    for step in (step for run in split_at_transforms(stages) for step in run):
        if step.stage.kind == kind and rule in step.stage.rules():
            looser = with_looser_limit(step, rule, documents)
            if looser is not None:
                return [each is step.stage for each in stages].index(True), looser
    return None


def with_looser_limit(step: PlacedStage, rule: str, documents: pa.Table) -> Stage | None:
    """Return the stage with a limit that lets most documents pass that the rule rejects; None if it has none.

    ``documents`` have the columns of the step. The new limit has two digits. Limits of languages change, too.
    """
    stage = step.stage
    name = limit_of_rule(stage, rule)
    frame = pl.DataFrame(
        {signal: pl.Series(documents[column]) for signal, column in step.columns.items()}
        | {n: pl.Series(documents[n]) for n in ("lang", "lang_score")}
    )
    expression = stage.rules()[rule]
    signals = [n for n in expression.meta.root_names() if n != "lang"]
    if name is None or len({*signals}) != 1 or not {*signals} <= {*frame.columns}:
        return None  # for example a rule over the text
    rejected = frame.filter(expression)
    values = rejected[signals[0]].drop_nulls().drop_nans()
    share = _ADMITTED if name.startswith("max_") else 1 - _ADMITTED
    value = values.quantile(share, "higher" if name.startswith("max_") else "lower")
    if value is None:
        return None
    limit = _rounded(value, up=name.startswith("max_"))
    looser = _with_limit(stage, name, type(getattr(stage, name))(limit), frame["lang"])
    return looser if len(rejected.filter(looser.rules()[rule])) < len(rejected) else None


def _limits(stage: Stage) -> Iterable[str]:
    for name in type(stage).model_fields:
        value = getattr(stage, name)
        if name.startswith(("min_", "max_")) and isinstance(value, int | float):
            yield name


def _with_limit(stage: Stage, name: str, limit: float, languages: pl.Series) -> Stage:
    """Return a stage with another limit; limits by language remain for the given languages."""
    changed: dict[str, object] = {name: limit}
    if isinstance(stage, ByLanguage) and any(name in own for own in stage.by_language().values()):
        own = stage.by_language()
        changed["languages"] = {
            code: {**own[code], name: limit} for code in languages.unique().sort() if code in own
        }
    return stage.model_copy(update=changed)


def _rounded(value: float, *, up: bool) -> float:
    """Return a number with two digits that is not beyond a value, on the side of more documents.

    >>> _rounded(0.6789, up=False), _rounded(1234.0, up=True), _rounded(0.0, up=True)
    (0.67, 1300.0, 0.0)
    """
    if not value:
        return 0.0
    digits = 1 - math.floor(math.log10(abs(value)))
    scaled = value * 10.0**digits
    return round((math.ceil(scaled) if up else math.floor(scaled)) / 10.0**digits, max(digits, 0))
