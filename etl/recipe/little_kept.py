"""Find what to do if a recipe keeps hardly any documents: the rule, its setting and the next command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from etl import schemas
from etl.recipe.overrides import stage_name
from etl.stages import Stage
from etl.stages.looser_limits import limit_of_rule

LITTLE: Final = 0.05
"""The share of documents below which hardly any are kept. Chosen here: published recipes keep a tenth or more
of a raw crawl, so that a smaller share more likely is a mistake."""

_STEPS: Final = (0.75, 0.5, 0.25)  # of a limit, to be tried


@dataclass(frozen=True, kw_only=True)
class LittleKept:
    """The rule that rejects most documents where hardly any are kept.

    ``setting`` is its limit or list, as a key for ``--set``, and ``value`` the value of it; both are None for
    other rules.
    """

    rule: str
    rejected: int
    rows: int
    kept: int
    setting: str | None
    value: int | float | tuple[str, ...] | None

    def __str__(self) -> str:
        """Return how few documents are kept, and why."""
        value = f"[{', '.join(self.value)}]" if isinstance(self.value, tuple) else self.value
        setting = f" ({self.setting} is {value})" if self.setting else ""
        what = f"{self.kept:,} of {self.rows:,} documents are kept"
        return f"{what}: `{self.rule}`{setting} rejects {self.rejected:,}"

    def command(self, lake: str | None) -> str:
        """Return the command that counts what other values of the setting keep, or explains the rule."""
        if self.setting is None or self.value is None:
            kind = self.rule.partition(".")[0]
            return "etl init --source URL" if kind == "source" else f"etl stages {kind}"
        options = f"--set '{self.setting}=[]'"
        if not isinstance(self.value, tuple):
            is_upper = ".max_" in self.setting
            others = [self.value / step if is_upper else self.value * step for step in _STEPS]
            values = [round(v) if isinstance(self.value, int) else round(v, 3) for v in others]
            tried = ",".join(map(str, [*dict.fromkeys(values), "null"]))
            options = f"--sweep {self.setting}={tried}"
        return f"etl tune {quote(lake or 'LAKE')} {options}"


def _field_of(stage: Stage, rule: str) -> str | None:
    """Return the field with the limit of a rule, or the list that the stage is about."""
    field, limit = stage.shorthand, limit_of_rule(stage, rule)
    if limit is None and field is not None and isinstance(getattr(stage, field), tuple):
        return field
    return limit


def little_kept(
    stages: Sequence[Stage], rejected: Mapping[str, int], *, rows: int, kept: int
) -> LittleKept | None:
    """Return the rule that rejects most documents, from counts by reason; None if enough are kept.

    Documents that the stage ``sample`` leaves out do not count.
    """
    counts: dict[str, int] = {}
    for reason, count in rejected.items():
        counts[schemas.rule_of(reason)] = counts.get(schemas.rule_of(reason), 0) + count
    left_out = [rule for rule in counts if rule.startswith("sample.")]
    rows -= sum(counts.pop(rule) for rule in left_out)
    if not counts or kept >= LITTLE * rows:
        return None
    rule = max(counts, key=lambda name: counts[name])
    kind, _, name = rule.partition(".")
    setting, value = None, None
    for stage in stages:
        if stage.kind == kind and name in stage.rules() and (field := _field_of(stage, name)):
            own = stage_name(stage.model_dump())
            setting = ".".join([kind, own, field] if own else [kind, field])
            value = getattr(stage, field)
    return LittleKept(
        rule=rule, rejected=counts[rule], rows=rows, kept=kept, setting=setting, value=value
    )
