"""Override thresholds of a recipe: the settings that affect verdicts, but not text or signals."""

from collections.abc import Sequence
from shlex import quote

from etl import schemas
from etl.audit.tune.rejudge import StoredFilter, stored_filters, with_stages
from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from etl.stages import Stage, Transform


class Thresholds:
    """The filters behind a table of documents, with the recorded settings and with others."""

    def __init__(self, record: schemas.Lineage, where: str) -> None:
        self._canonical, self._where = record.canonical, where
        self.recipe = self._with([])
        # Older tables lack this setting.
        rejected = record.canonical.get("rejected", {"signals": False})
        self.made_by = stored_filters(self.recipe.stages, has_all_signals=rejected["signals"])

    def changed(self, settings: Sequence[str]) -> list[StoredFilter]:
        """Return the filters with settings overridden, such as ``gopher_quality.min_words=80``.

        Raises RecipeError if a setting is unknown, has an invalid value, or is not a threshold.
        """
        changed = self._with(settings)
        # One at a time, a lower and an upper limit could contradict the other's recorded value.
        self._check(changed, settings)
        return with_stages(self.made_by, changed.stages)

    def _with(self, settings: Sequence[str]) -> Recipe:
        return Recipe.recorded(self._canonical, where=self._where, settings=settings)

    def _check(self, other: Recipe, settings: Sequence[str]) -> None:
        if _without_filters(other) != _without_filters(self.recipe):
            raise _not_a_threshold("it is not a setting of a filter", settings)
        for old, new in zip(self.made_by, with_stages(self.made_by, other.stages), strict=True):
            if old.stage == new.stage:
                continue
            if old.is_opaque or new.is_opaque:
                what = f"`{new.stage.kind}` does not decide by stored columns alone"
                raise _not_a_threshold(what, settings)
            if not _is_threshold(old.stage, new.stage):
                raise _not_a_threshold("it changes the text or a signal of the documents", settings)
            if missing := new.missing():
                what = f"no column holds {', '.join(missing)} for this stage"
                raise _not_a_threshold(what, settings)


def _not_a_threshold(why: str, settings: Sequence[str]) -> RecipeError:
    options = " ".join(f"--set {quote(setting)}" for setting in settings)
    hint = f"run the recipe into another lake: `etl run RECIPE --lake LAKE {options}`"
    if any(setting.startswith("dedup_minhash.min_similarity") for setting in settings):
        hint = f"`etl tune LAKE --similarity A,B,C` estimates it, or {hint}"
    return RecipeError(
        f"the effect cannot be computed from stored columns: {why}",
        where=" ".join(f"--set {setting}" for setting in settings),
        hint=hint,
    )


def _without_filters(recipe: Recipe) -> Recipe:
    rest = tuple(stage for stage in recipe.stages if stage.phase != "documents")
    return recipe.model_copy(update={"stages": rest})


def _is_threshold(old: Stage, new: Stage) -> bool:
    """Return whether the fields that differ affect nothing but verdicts."""
    if not (old.columns() or old.thresholds or isinstance(old, Transform)):
        return True  # the stage determines no column and no text
    names = [n for n in type(old).model_fields if getattr(old, n) != getattr(new, n)]
    return {*names} <= {*old.thresholds}
