"""One overlap of two jobs: when each pauses, and which input files change at each pause."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.drivers import Driver
from tests.chaos.oracle import check_complete, check_releases, check_sound, settle
from tests.chaos.pauses import Kind, Paused, Stop
from tests.chaos.processes import DONE
from tests.chaos.small_site import STAGES, SmallSite
from tests.chaos.texts import EDITS, Edit, random_rows

TABLES = ("documents", "texts", "duplicates", "keys", "tokens", "tokens_shuffled")

_KINDS: tuple[Kind, ...] = (
    *("plain", "replace_changed") * 3,
    *("rebuild", "repair", "optimize", "vacuum", "vacuum", "shuffle", "release"),
)
_MOMENTS = (
    "list_pattern raw",
    "write_bytes leases",
    "remove leases",
    "create documents",
    "create tokens",
    "create tokens_shuffled",
    "create_if_absent releases",
    *(
        f"{operation} {table}"
        for operation in ("create_if_absent", "create_if_absent", "file_sizes", "walk_files")
        for table in TABLES
    ),
)
_WORKER_MOMENTS = (
    "open_input raw",
    "open_output documents",
    "open_output texts",
    "open_input texts",
    "open_output tokens",
    "open_output tokens_shuffled",
)

Edits = Sequence[Edit]


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Two jobs: the first pauses, the second starts and may pause, the first continues, then the second.

    ``edits`` are the changes of the input files before the jobs, at the first pause, at the second pause
    (or when the second job has ended), and when the first job has ended. ``damage`` is a table that loses a
    data file before the jobs. A job that is killed is not continued.
    """

    kinds: tuple[Kind, Kind]
    stops: tuple[Stop, Stop | None]
    edits: tuple[Edits, Edits, Edits, Edits] = ((), (), (), ())
    damage: str | None = None
    is_killed: bool = False


def run_overlap(
    overlap: Overlap, site: SmallSite, both: tuple[Driver, Driver], rng: random.Random
) -> bool:
    """Run the jobs, check the lake at each pause and at the end; return whether the first job paused."""
    first, second = both

    def next_moment(edits: Edits) -> None:
        if overlap.damage is None:
            check_sound(site)
        for edit in edits:
            site.edit(edit, rng)

    is_damaged = overlap.damage is not None and site.damage(overlap.damage, rng)
    next_moment(overlap.edits[0])
    answer = first.start(overlap.kinds[0], site, overlap.stops[0])
    next_moment(overlap.edits[1])
    other = second.start(overlap.kinds[1], site, overlap.stops[1])
    next_moment(overlap.edits[2])
    if isinstance(answer, Paused):
        if overlap.is_killed:
            first.kill()
        else:
            first.resume()
    next_moment(overlap.edits[3])
    if isinstance(other, Paused):
        second.resume()
        next_moment(())
    if overlap.damage is None:
        check_releases(site)
    settle(site, second, is_damaged=is_damaged)
    check_complete(site)
    return isinstance(answer, Paused)


def random_site(site: SmallSite, rng: random.Random, driver: Driver) -> None:
    """Write input files, of which the lake has all, some or none."""
    site.clear()
    site.stages = rng.choice(("near", "near", *STAGES))
    for name in ("a.parquet", "b.jsonl", "c.parquet")[: rng.randrange(2, 4)]:
        site.write(name, random_rows(rng, f"{name[0]}0"))
        if rng.random() < 0.5:
            settle(site, driver)
            if rng.random() < 0.5:
                assert driver.run("shuffle", site).code == DONE
    if rng.random() < 0.5:
        site.age(2)


def random_overlap(rng: random.Random) -> Overlap:
    """Return a random overlap."""
    kinds = (rng.choice(_KINDS), rng.choice(_KINDS))
    # Damaged rows of a deleted file are lost.
    known = [edit for edit in EDITS if edit != "delete" or "repair" not in kinds]
    chances = (0.5, 0.6, 0.4, 0.2)
    edits = [[rng.choice(known)] if rng.random() < chance else [] for chance in chances]
    return Overlap(
        kinds=kinds,
        stops=(random_stop(rng), random_stop(rng) if rng.random() < 0.5 else None),
        edits=(edits[0], edits[1], edits[2], edits[3]),
        damage=rng.choice(TABLES) if "repair" in kinds else None,
        is_killed=rng.random() < 0.1,
    )


def random_stop(rng: random.Random) -> Stop:
    if rng.random() < 0.25:
        return Stop("worker", rng.randrange(2), rng.choice(_WORKER_MOMENTS))
    return Stop("driver", rng.choice((0, 0, 0, 1, 1, 2, 3)), rng.choice(_MOMENTS))
