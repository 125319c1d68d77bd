"""`ClusterRequest`: what a run asks of a cluster, whatever its type."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from distributed.security import Security

Workers = int | Literal["auto"] | None
"""How many workers a run wants; auto: for its input; None: as many as the cluster has by default."""


def ignore(_line: str) -> None:
    """Do nothing with a line."""


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """What a run asks of a cluster.

    ``planned_bytes`` is the input that it will read, None if unknown. ``report`` is called with a line for
    each step of the start of a cluster. ``dashboard`` is the address of the dashboard of workers on this
    machine.
    """

    workers: Workers = None
    memory_limit: str | None = None
    security: "Security | None" = None
    planned_bytes: int | None = None
    report: Callable[[str], None] = ignore
    dashboard: str | None = None
