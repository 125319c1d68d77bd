"""What goes wrong in a case: a seed -> where the lake stands, and a fault for each file that comes in.

A moment is a number of files written since the run began, not a time, so that a seed meets the job at the
same place however quick the machine is. What the processes do beside each other stays their own affair.
"""

import random
from dataclasses import dataclass
from typing import Literal

from tests.proxy import Fault as Answer

Victim = Literal["worker", "scheduler", "driver", "all"]
Kind = Literal["kill", "disk"] | Answer
Store = Literal["local", "s3"]

VICTIMS: tuple[Victim, ...] = ("worker", "scheduler", "driver", "all")
ANSWERS: tuple[Answer, ...] = ("500", "503", "stall", "slow", "cut", "drop")
FAULTS_PER_CASE = 4  # one for each file of the corpus


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong in a run, once a share of what is left to be written is there.

    ``kill`` is -9 for the victim; on a full ``disk`` a victim can write no file beyond ``room`` bytes;
    the others are the store's answers to the next ``count`` requests, to commits alone if so said.
    """

    kind: Kind
    moment: float  # 0 to 1
    victim: Victim = "worker"
    room: int = 0
    count: int = 0
    commits_only: bool = False

    @property
    def answer(self) -> Answer | None:
        """What the store answers; None if the fault is no answer."""
        return next((answer for answer in ANSWERS if answer == self.kind), None)


@dataclass(frozen=True)
class Case:
    """A seed, the store of its lake, and its faults."""

    seed: int
    store: Store
    faults: tuple[Fault, ...]


def case(seed: int, store: Store) -> Case:
    """The case of a seed.

    >>> case(7, "s3") == case(7, "s3") != case(8, "s3")
    True
    """
    chance = random.Random(f"{store} {seed}")
    return Case(seed, store, tuple(_fault(chance, store) for _ in range(FAULTS_PER_CASE)))


def _fault(chance: random.Random, store: Store) -> Fault:
    moment = chance.random()
    if store == "s3" and chance.random() < 0.7:
        answer = chance.choice(ANSWERS)
        # Up to where clients give up: fsspec's after 5 tries, delta-rs' after 10.
        count = 1 if answer == "drop" else chance.choice((1, 3, 30))
        return Fault(answer, moment, count=count, commits_only=chance.random() < 0.5)
    if store == "local" and chance.random() < 0.25:
        victim: Victim = chance.choice(("worker", "driver", "all"))
        return Fault("disk", moment, victim, room=chance.choice((0, 600, 4000)))
    return Fault("kill", moment, chance.choice(VICTIMS))
