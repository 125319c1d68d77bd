"""What a spawned DataLoader worker knows from its parent, since it is in no process group itself."""

from dataclasses import dataclass

from etl.loader.prepared_loaders import Collation, Prepared
from etl.loader.ranks import Rank


@dataclass(frozen=True)
class Parent:
    """The place of the process that spawned a DataLoader worker."""

    rank: Rank  # among the processes that divide the samples
    process_rank: int  # among all processes
    prepared: Prepared | None  # how accelerate's loader takes the samples
    collation: Collation  # how a DataLoader takes single samples
    child: int = 0  # the process that was spawned
