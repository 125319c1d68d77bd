"""Which settings of a recipe are thresholds: those that decide verdicts, and neither text nor signals."""

from collections.abc import Sequence

import schemas
from etl.audit.replay import Judge, judges, with_stages
from etl.errors import RecipeError
from etl.recipe import Recipe
from etl.stages import Filter, Stage, Transform


class Thresholds:
    """The filters behind a table of documents, as its lineage record has them, and with other settings."""

    def __init__(self, record: schemas.Lineage, where: str) -> None:
        self._canonical, self._where = record.canonical, where
        self.recipe = self._with([])
        rejected = record.canonical.get("rejected", {"signals": False})  # older tables have few
        self.made_by = judges(self.recipe.stages, has_all_signals=rejected["signals"])

    def changed(self, settings: Sequence[str]) -> list[Judge]:
        """The filters with settings overridden (``gopher_quality.min_words=80``).

        Raises RecipeError if one is unknown, cannot have this value, or is no threshold.
        """
        for setting in settings:
            self._check(self._with([setting]), setting)
        return with_stages(self.made_by, self._with(settings).stages)

    def _with(self, settings: Sequence[str]) -> Recipe:
        return Recipe.recorded(self._canonical, where=self._where, settings=settings)

    def _check(self, other: Recipe, setting: str) -> None:
        if _without_filters(other) != _without_filters(self.recipe):
            raise _no_threshold("it is no setting of a filter", setting)
        for old, new in zip(self.made_by, with_stages(self.made_by, other.stages), strict=True):
            if old.stage == new.stage:
                continue
            if old.is_opaque or new.is_opaque:
                raise _no_threshold(f"`{new.stage.kind}` does not judge by columns", setting)
            if not _is_threshold(old.stage, new.stage):
                raise _no_threshold("it changes the text or a signal of the documents", setting)
            if missing := new.missing():
                raise _no_threshold(f"no column holds {', '.join(missing)} for this stage", setting)


def _no_threshold(why: str, setting: str) -> RecipeError:
    return RecipeError(
        f"this cannot be told without reading text: {why}",
        where=f"--set {setting}",
        hint="`etl run` with this setting into another lake tells it",
    )


def _without_filters(recipe: Recipe) -> Recipe:
    rest = tuple(s for s in recipe.stages if not isinstance(s, Filter | Transform))
    return recipe.model_copy(update={"stages": rest})


def _is_threshold(old: Stage, new: Stage) -> bool:
    """Whether the fields that differ decide verdicts alone."""
    if not old.columns() and not isinstance(old, Transform):
        return True  # there is nothing else that they could decide
    names = [n for n in type(old).model_fields if getattr(old, n) != getattr(new, n)]
    return {*names} <= {*old.thresholds}
