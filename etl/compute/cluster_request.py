"""`ClusterRequest`: what a run asks of a cluster, whatever its type."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from etl.compute.listener import Listener

if TYPE_CHECKING:
    from distributed.security import Security

Workers = int | Literal["auto"] | None
"""How many workers a run wants; auto: for its input; None: as many as the cluster has by default."""


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """What a run asks of a cluster.

    ``planned_bytes`` is the input that it will read, None if unknown. ``listener`` follows the
    start of a cluster. ``dashboard`` is the address of the dashboard of workers on this
    machine.
    """

    workers: Workers = None
    memory_limit: str | None = None
    security: "Security | None" = None
    planned_bytes: int | None = None
    listener: Listener = field(default_factory=Listener)
    dashboard: str | None = None
