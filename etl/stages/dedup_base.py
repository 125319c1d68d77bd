"""`DedupStage`: the settings of a deduplication stage, and its work on one batch of documents."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.stages.against import Reference
from etl.stages.base import Phase, Stage
from etl.storage.file_sets import FileSet

AnyDedupStage = TypeVar("AnyDedupStage", bound="DedupStage")


class DedupStage(Stage):
    """A stage that compares all documents of a lake.

    The first pass stores the columns that documents are compared by. Once all documents are stored, the pass
    of the stage (``etl.dedup.run_passes.PASSES``) writes rows of ``duplicates``.
    """

    phase: ClassVar[Phase] = "dedup"
    kinds: ClassVar[tuple[str, ...]]
    """The kinds of the rows that the stage writes to ``duplicates``."""
    identity_key: ClassVar[str]
    """The name of its columns in the fingerprint of ``documents`` and in the costs."""
    describes_rejected: ClassVar[bool] = False
    """Whether rejected documents have values in its columns too."""

    def document_columns(self) -> pa.Schema:
        """Return the columns of ``texts`` that documents are compared by, by default none."""
        return pa.schema([])

    def describe(self, texts: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
        """Return the values of the document columns for each text, null for null."""
        raise NotImplementedError

    def column_identity(self) -> Any:
        """Return the settings that determine the document columns, for the fingerprint."""
        return None

    @property
    def keep_column(self) -> str | None:
        """The column of ``documents`` by which the document to keep is chosen, if any."""
        return None

    @property
    def has_estimates(self) -> bool:
        """Whether the similarities of some rows that it writes to ``duplicates`` are estimates."""
        return False

    def files(self) -> dict[str, FileSet]:
        """Return none: the paths of its settings are lakes."""
        return {}

    def references(self) -> tuple[Reference, ...]:
        """Return the other lakes whose documents are compared too."""
        return ()

    def cut(self, texts: pa.Array | pa.ChunkedArray, cuts: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the texts without the units at these positions; for stages that write the kind CUT."""
        raise NotImplementedError

    @property
    def cut_unit(self) -> str:
        """What it cuts, in the singular."""
        raise NotImplementedError

    def removed(self, text: str, cut: Sequence[int]) -> list[str]:
        """Return the text of each unit that ``cut`` of ``duplicates`` removes from a document."""
        raise NotImplementedError

    def num_cut(self, cuts: pa.Array | pa.ChunkedArray) -> int:
        """Return how many units these values of ``cut`` remove."""
        return pc.sum(pc.list_value_length(cuts)).as_py() or 0

    def plan_lines(self) -> list[str]:
        """Return what a plan shows of the stage besides its kind."""
        return []


def dedup_stages(stages: Iterable[Stage]) -> tuple[DedupStage, ...]:
    """Return the deduplication stages among all stages of a recipe."""
    return tuple(stage for stage in stages if isinstance(stage, DedupStage))


def find_dedup_stage(
    stages: Iterable[DedupStage], model: type[AnyDedupStage]
) -> AnyDedupStage | None:
    """Return the stage of a type, or None."""
    return next((stage for stage in stages if isinstance(stage, model)), None)


def find_cutting_stage(stages: Iterable[DedupStage]) -> DedupStage | None:
    """Return the stage that cuts units out of documents, or None."""
    return next((stage for stage in stages if schemas.CUT in stage.kinds), None)


def duplicates_schema(stages: Iterable[DedupStage]) -> pa.Schema:
    """Return the schema of the ``duplicates`` table that these stages write."""
    stages = tuple(stages)
    return schemas.duplicates(
        has_references=any(stage.references() for stage in stages),
        has_cuts=find_cutting_stage(stages) is not None,
        has_estimates=any(stage.has_estimates for stage in stages),
    )
