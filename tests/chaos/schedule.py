"""The faults of a chaos case, derived from a seed: one for each input file.

A moment is a number of files written since the run began, not a time, so a seed interrupts the job at the
same point on machines of any speed. The interleaving of the processes is not controlled.
"""

import random
from dataclasses import dataclass
from typing import Literal

from tests.helpers.s3_proxy import Fault as Answer

Victim = Literal["worker", "scheduler", "driver", "all"]
Kind = Literal["kill", "disk"] | Answer
Store = Literal["local", "s3"]

VICTIMS: tuple[Victim, ...] = ("worker", "scheduler", "driver", "all")
ANSWERS: tuple[Answer, ...] = ("500", "503", "stall", "slow", "cut", "drop")
FAULTS_PER_CASE = 4  # one per file of the corpus


@dataclass(frozen=True)
class Fault:
    """A fault injected into a run after a share of its files has been written.

    ``kill`` sends SIGKILL to the victim. On a full ``disk`` the victim cannot write files larger than
    ``room`` bytes. The others are the answers of the store to the next ``count`` requests, or only to commits
    (``commits_only``).
    """

    kind: Kind
    moment: float  # 0 to 1
    victim: Victim = "worker"
    room: int = 0
    count: int = 0
    commits_only: bool = False

    @property
    def answer(self) -> Answer | None:
        """The answer of the store; None for faults of processes."""
        return next((answer for answer in ANSWERS if answer == self.kind), None)


@dataclass(frozen=True)
class Case:
    """A seed, the store of the lake, and the faults."""

    seed: int
    store: Store
    faults: tuple[Fault, ...]


def case(seed: int, store: Store) -> Case:
    """Return the case of a seed.

    >>> case(7, "s3") == case(7, "s3") != case(8, "s3")
    True
    """
    rng = random.Random(f"{store} {seed}")
    return Case(seed, store, tuple(_fault(rng, store) for _ in range(FAULTS_PER_CASE)))


def _fault(rng: random.Random, store: Store) -> Fault:
    moment = rng.random()
    if store == "s3" and rng.random() < 0.7:
        answer = rng.choice(ANSWERS)
        # Clients give up within these counts: fsspec after 5 tries, delta-rs after 10.
        count = 1 if answer == "drop" else rng.choice((1, 3, 30))
        return Fault(answer, moment, count=count, commits_only=rng.random() < 0.5)
    if store == "local" and rng.random() < 0.25:
        victim: Victim = rng.choice(("worker", "driver", "all"))
        return Fault("disk", moment, victim, room=rng.choice((0, 600, 4000)))
    return Fault("kill", moment, rng.choice(VICTIMS))
