"""`Listener`: what follows a run, a shuffle or the start of a cluster; `Progress` and `RunTotals` for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from distributed import Client

    from etl.schemas import TableName

_SHORTEST: Final = 0.001  # seconds that give a rate; chosen here
_ENOUGH: Final = 0.05  # of the bytes, on which an estimate of the rest is based; chosen here


@dataclass(frozen=True)
class Progress:
    """The progress of a step: units of work done, and documents and bytes of text.

    ``done_bytes`` and ``total_bytes`` count the files that the step reads. Bytes and documents include an
    estimate for the units that workers are processing. ``failed`` units are quarantined. Of the
    ``seconds``, kernels were compiled for ``compile_seconds``, on average of the workers, which worked for
    ``busy_seconds`` together on the ``done_bytes``.
    """

    step: "TableName"
    done: int
    total: int
    done_bytes: int = 0
    total_bytes: int = 0
    rows: int = 0
    kept: int = 0
    text_bytes: int = 0
    seconds: float = 0.0
    failed: int = 0
    compile_seconds: float = 0.0
    busy_seconds: float | None = None  # None: as long as the step has taken
    workers: int = 1

    @property
    def working_seconds(self) -> float:
        """The seconds without those in which kernels were compiled."""
        return max(self.seconds - self.compile_seconds, 0.0)

    def per_second(self, count: int) -> float | None:
        """Return a rate of all workers since the step began, without the time for kernels; None: unknown."""
        seconds = self.working_seconds
        return count / seconds if count and seconds >= _SHORTEST else None

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest of the step takes; None at its end, and while too little is done to tell.

        The rest needs as much of the workers' time per byte as the bytes until now. The time in which they
        start does not count. Enough is done if it is half of an average unit, or a twentieth of all bytes.

        >>> Progress("documents", 1, 4, seconds=62.0, compile_seconds=60.0).seconds_left
        6.0
        >>> Progress("documents", 0, 1, done_bytes=2, total_bytes=8, seconds=2.0).seconds_left
        6.0
        >>> Progress("documents", 1, 9, 8, 80, seconds=62.0, busy_seconds=2.0, workers=6).seconds_left
        3.0
        """
        done, total = self.done, self.total
        if self.done_bytes and self.total_bytes >= self.done_bytes:
            done, total = self.done_bytes, self.total_bytes
        is_enough = done >= total * min(0.5 / max(self.total, 1), _ENOUGH)
        if self.done == self.total or not done or not is_enough:
            return None
        at_once = min(self.workers, self.total - self.done)
        busy = self.busy_seconds
        return (self.working_seconds if busy is None else busy / at_once) / done * (total - done)


@dataclass(frozen=True, kw_only=True)
class RunTotals:
    """What a run has committed so far.

    ``rejected`` documents are counted by rule, bytes that were read and data files that were written by
    table. ``duplicates`` are kept documents that a deduplication stage drops. ``seconds`` are the time of all
    workers, by the parts of the work that ``etl report`` lists. ``quarantined`` units could not be read.
    """

    kept: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0
    tokens: int = 0
    text_bytes: int = 0
    read_bytes: Mapping["TableName", int] = field(default_factory=dict)
    stored_bytes: Mapping["TableName", int] = field(default_factory=dict)
    commits: Mapping["TableName", int] = field(default_factory=dict)
    quarantined: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


class Listener:
    """Follows a run, a shuffle, the start of a cluster or the compilation of kernels.

    All methods do nothing, or call a simpler one: a subclass overrides what it needs. Methods may be called
    in another thread. An error that a method raises in the thread of the run ends the run.

    >>> class Lines(Listener):
    ...     def status(self, text: str) -> None:
    ...         print(text)
    >>> Lines().warning("the disk is nearly full")
    warning: the disk is nearly full
    """

    def status(self, text: str) -> None:
        """Follow what is being done now, until the next call: the input is listed, kernels are compiled."""

    def note(self, text: str) -> None:
        """Follow an event: a cluster is created, has had no workers for 10 seconds. By default a status."""
        self.status(text)

    def warning(self, text: str) -> None:
        """Follow a warning; by default a note."""
        self.note(f"warning: {text}")

    def waiting(self, endpoint: str, seconds: float) -> None:
        """Follow an operation that waits for a store; by default a note."""
        self.note(f"waiting for {endpoint}: no answer for {seconds:.0f}s")

    def progress(self, progress: Progress) -> None:
        """Follow a step: called after each unit of work, and twice a second while workers run long ones."""

    def committed(self, totals: RunTotals) -> None:
        """Follow the commits of a run: called after each, with the totals of the run, and at its end."""

    def compiling(self, name: str, number: int, total: int) -> None:
        """Follow the compilation of all kernels, of which this is the next one; by default a status."""
        self.status(f"kernel {number} of {total}: {name}")

    def connected(self, client: "Client") -> None:
        """Use the Dask client that computes, before the first task is submitted."""
