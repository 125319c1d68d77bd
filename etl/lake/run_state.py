"""What a run writes into its lease: what it planned, how far it is, and how fast."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The planned totals of a run, and the progress of its present step.

    ``done`` and ``total`` are units of work of the step: splits, or the kept rows of splits. Their bytes
    are the bytes of the files that the step reads. ``seconds`` have passed since the step began; the rest
    takes about ``seconds_left``, None if that is unknown.
    """

    run_id: str
    recipe: str
    splits: int  # to be read
    input_bytes: int  # of these splits
    units: int  # to be deduplicated or tokenized, besides documents of the splits
    step: str | None = None  # None: none has begun
    done: int = 0
    total: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the state from JSON data; raises TypeError if the fields are others."""
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON data."""
        return asdict(self)

    @property
    def bytes_per_second(self) -> float | None:
        """The rate of the step; None if nothing is done."""
        return self.done_bytes / self.seconds if self.done_bytes and self.seconds else None
