"""Input files move between runs and during runs: each content is read once, and nothing is lost."""

import random
from collections import Counter

import pytest

from tests.chaos.drivers import Driver
from tests.chaos.moves import MovingFiles
from tests.chaos.oracle import check_complete, settle
from tests.chaos.overlap import random_stop
from tests.chaos.pauses import Kind, Paused
from tests.chaos.seeds import MANY
from tests.chaos.small_site import STAGES, SmallSite

_KINDS: tuple[Kind, ...] = (*("plain", "replace_changed") * 4, "rebuild", "optimize")


@pytest.mark.parametrize("seed", [0, *MANY])
@pytest.mark.slow
def test_moving_files_are_read_once(
    seed: int, small: SmallSite, first: Driver, second: Driver, faults: Counter[str]
) -> None:
    rng = random.Random(f"moves {seed}")
    small.stages = rng.choice(("near", *STAGES))
    files = MovingFiles(small)
    for _ in range(rng.randrange(2, 4)):
        files.add("", rng)
    if rng.random() < 0.7:
        settle(small, second)
    for _ in range(rng.randrange(2, 6)):
        happened = "no run"
        if rng.random() < 0.4:
            moved = files.move(rng)
        else:
            answer = first.start(rng.choice(_KINDS), small, random_stop(rng))
            moved = files.move(rng)
            happened = f"{answer}, continued"
            if isinstance(answer, Paused) and rng.random() < 0.2:
                first.kill()
                happened = f"{answer}, killed"
            elif isinstance(answer, Paused):
                first.resume()
        print(f"{moved}: {happened}")  # noqa: T201
        faults["moves of input files"] += 1
    settle(small, second)
    check_complete(small, files.check())
