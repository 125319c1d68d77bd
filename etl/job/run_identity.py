"""The identity of a run: its id, its start, and its recipe as it was then."""

from dataclasses import dataclass
from typing import Any, Self

from etl.errors import RecipeError
from etl.lake.jobs import JobIdentity
from etl.lake.lineage_record import Origin
from etl.recipe.recipe import Recipe
from etl.schemas import TableName, TokenizerRecord
from etl.stages.tokenize import Encoder, Tokenize


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """One run of a recipe, however often it plans: its id, its start, and the canonical recipe."""

    job: JobIdentity
    recipe: Recipe
    canonical: dict[str, Any]
    fingerprints: dict[TableName, str]  # of the tables that the recipe fills

    @classmethod
    def of(cls, recipe: Recipe) -> Self:
        """Return the identity of a run that starts now; reads the files that the recipe names."""
        return cls(
            job=JobIdentity(lake=str(recipe.lake), kind="run"),
            recipe=recipe,
            canonical=recipe.canonical(),
            fingerprints={step: recipe.fingerprint(step) for step in recipe.steps},
        )

    def origin(
        self,
        step: TableName,
        fingerprint: str | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
    ) -> Origin:
        """Return the origin of the rows of a table; its fingerprint is by default the recipe's.

        ``tokenizer`` is the record of its tokenizer, if known: otherwise the tokenizer is loaded.
        """
        encoder = self.recipe.tokenizers.get(step)
        if encoder is not None and tokenizer is None:
            tokenizer = load_reference_tokenizer(encoder).record()
        return Origin(
            step=step,
            recipe=self.recipe.name,
            canonical=self.canonical,
            fingerprint=self.fingerprints[step] if fingerprint is None else fingerprint,
            fingerprints=self.fingerprints,
            tokenizer=tokenizer,
            seed=self.recipe.seed,
        )

    def check_recipe(self) -> None:
        """Raise RecipeError if a file that the recipe names has changed since the run started."""
        if self.canonical != self.recipe.canonical():
            raise RecipeError(
                "a file that the recipe names has changed since the run started",
                where=self.recipe.name,
                hint="run again",
            )


def load_reference_tokenizer(stage: Tokenize) -> Encoder:
    """Return the tokenizer for the driver, which does not encode: without the fast path, in 0.4 s."""
    return Encoder.of(stage.model_copy(update={"fast": False}))
