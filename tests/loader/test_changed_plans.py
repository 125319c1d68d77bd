"""Trainings that change the version, the windows or the documents of a table, counted token by token."""

import gc
import json
import os
from collections import Counter
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.loader import (
    Format,
    PlanChange,
    Schedule,
    Shard,
    Shuffle,
    TokenDataset,
    TokenMixture,
    View,
)
from etl.loader.exposures import find_exposures
from etl.loader.replay import replay
from etl.maintenance.vacuum import vacuum
from tests.helpers.token_tables import documents, grow_lake, make_lake

SHAPE = [[[9, 8, 7], [40, 0], [3]], [[64]], [[5, 0, 17], [1, 1, 30], []]]
ADDED = [[[25, 25], [0], [31]], [[13] * 9]]
SHUFFLE = Shuffle(lanes=3, block_tokens=28, run_tokens=20)
FORMATS = {
    "windows": Format(sample_numbers=True),
    "best_fit": Format(sample_numbers=True, pack="best_fit"),
    "padded": Format(sample_numbers=True, pad_id=-1),
}


@pytest.fixture(scope="module")
def grown(new_place):
    """A lake with a version, and a newer one with more files."""
    lake = make_lake(new_place("grown"), SHAPE)
    first = TokenDataset(lake, seq_len=5).version
    return lake, [first, grow_lake(lake, SHAPE, ADDED)]


@pytest.fixture(scope="module")
def other(new_place):
    return make_lake(new_place("other"), [[[13] * 40, [90]]])


def numbered_rows(batch):
    columns = [batch[name].tolist() for name in ("sample", "input_ids")]
    return [*zip(*columns, strict=True)]


@cache
def whole_epoch(lake, epoch, *, left_out=(), **options):
    """Return the rows of an epoch of a dataset that was opened for it alone."""
    view = View(leave_out=left_out) if left_out else None
    dataset = TokenDataset(lake, shuffle=SHUFFLE, view=view, **options)
    dataset.set_epoch(epoch)
    return [ids for batch in dataset.batches(8, drop_last=False) for _, ids in numbered_rows(batch)]


CHANGES = st.lists(
    st.tuples(
        st.integers(1, 30),  # steps until the change
        st.integers(0, 3),  # of which a kill loses some
        st.integers(1, 3),  # ranks
        st.integers(0, 1),  # the version from then on
        st.sampled_from([4, 5, 9]),  # the length of the windows
        st.integers(0, 12),  # a document to leave out
    ),
    min_size=4,
    max_size=4,
)


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=3)
@given(changes=CHANGES)
def test_each_epoch_is_read_once_by_the_plan_that_it_began_with(grown, kind, changes):
    lake, versions = grown
    every = [*documents([*SHAPE, *ADDED])]
    plan = {"version": versions[0], "seq_len": 5, "left_out": ()}
    dataset = TokenDataset(
        lake, seq_len=5, version=versions[0], shuffle=SHUFFLE, format=FORMATS[kind]
    )
    state, change = dataset.state_dict(), PlanChange()
    rows: list[Any] = []
    plans: dict[int, Any] = {}  # by epoch
    for num_steps, num_lost, world_size, version, seq_len, left_out in changes:
        ranks = [
            TokenDataset.from_state(
                lake, state, change=change, shard=Shard(rank=rank, world_size=world_size)
            )
            for rank in range(world_size)
        ]
        first = state["epoch"] + (state["consumed"] > 0)
        plans = {epoch: each for epoch, each in plans.items() if epoch < first}
        plans |= dict.fromkeys(range(first, first + 99), plan)
        loops = [iter(()) for _ in ranks]
        for step in range(num_steps + num_lost):
            batches = [next(loop, None) for loop in loops]
            if batches[0] is None:
                loops = [iter(rank.batches(1, drop_last=False)) for rank in ranks]
                batches = [next(loop) for loop in loops]
            if step < num_steps:
                rows += [(ranks[0].epoch, row) for b in batches for row in numbered_rows(b)]
                state = json.loads(json.dumps(ranks[0].state_dict()))
                assert all(rank.state_dict() == state for rank in ranks)
        document = every[left_out]
        change = PlanChange(
            version=versions[version],
            seq_len=seq_len,
            leave_out=[(document.source, document.row)],
        )
        plan = {
            "version": versions[version],
            "seq_len": seq_len,
            "left_out": (*plan["left_out"], (document.source, document.row)),
        }
    resumed = TokenDataset.from_state(lake, state)
    before = 0
    for epoch in range(state["epoch"] + 1):
        expected = whole_epoch(lake, epoch, format=FORMATS[kind], **plans[epoch])
        seen = sorted(row for of, row in rows if of == epoch)
        # Other ranks may divide an epoch so that its last samples fill no step.
        end = state["consumed"] if epoch == state["epoch"] else len(expected)
        assert end - 3 < len(seen) <= end
        assert seen == [(before + n, ids) for n, ids in enumerate(expected[: len(seen)])]
        for number in range(len(seen)):
            spans = resumed.locate(number, epoch=epoch)
            assert all((each.source, each.row) not in plans[epoch]["left_out"] for each in spans)
            assert spans
        before += len(expected)
    check_exposures(resumed, rows, sorted({f"{each.file}-{each.row}" for each in every[:3]}))


def check_exposures(dataset, rows, ids):
    """The reverse audit finds what ``locate`` finds sample by sample, in all versions."""
    numbers = Counter(epoch for epoch, _ in rows)
    expected = Counter(
        (span.id, epoch, sample, span.start)
        for epoch, size in numbers.items()
        for sample in range(size)
        for span in dataset.locate(sample, epoch=epoch)
        if span.id in ids
    )
    seen = find_exposures(dataset, ids)
    found = [(d.id, e.epoch, e.sample, e.span.start) for d in seen for e in d.exposures]
    assert Counter(found) == expected


def read(dataset, num_steps, batch_size=4):
    rows: list[Any] = []
    while len(rows) < num_steps * batch_size:
        for batch in dataset.batches(batch_size):
            rows += numbered_rows(batch)
            if len(rows) == num_steps * batch_size:
                break
    return rows


def open_mixture(lake, version, other, **options):
    options = {"seq_len": 5, "shuffle": SHUFFLE, "format": FORMATS["windows"], **options}
    datasets = {
        "web": TokenDataset(lake, version=version, **options),
        "code": TokenDataset(other, **options),
    }
    return TokenMixture(datasets, weights={"web": 2, "code": 1}, seed=3, num_samples=400)


@settings(max_examples=3)
@given(
    legs=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(0, 1), st.integers(1, 3)),
        min_size=4,
        max_size=4,
    )
)
def test_a_source_of_a_mixture_changes_its_version_with_its_next_epoch(grown, other, legs):
    """Four legs of some steps on some ranks; each begins with another version, and other weights."""
    lake, versions = grown
    state, change = open_mixture(lake, versions[0], other).state_dict(), PlanChange()
    lakes, rows = {"web": lake, "code": other}, list[Any]()
    for num_steps, world_size, version, weight in legs:
        ranks = [
            TokenMixture.from_state(
                lakes, state, change=change, shard=Shard(rank=rank, world_size=world_size)
            )
            for rank in range(world_size)
        ]
        for loop in [iter(rank.batches(2)) for rank in ranks]:
            for batch in (batch for _, batch in zip(range(num_steps), loop, strict=False)):
                columns = ("sample", "source", "input_ids")
                rows += zip(*(batch[name].tolist() for name in columns), strict=True)
        state = ranks[0].state_dict()
        assert all(rank.state_dict() == state for rank in ranks)
        state = json.loads(json.dumps(state))
        change = PlanChange(version={"web": versions[version]}, weights={"web": weight, "code": 2})
    mixture = TokenMixture.from_state(lakes, state)
    # The epochs of the versions, from the state: each begins where no sample was taken.
    web = state["datasets"]["web"]
    ends = [(plan["end"], plan["version"]) for plan in web.get("earlier", [])]
    plans = {
        epoch: next((version for end, version in ends if epoch < end), web["version"])
        for epoch in range(9)
    }
    options = {"seq_len": 5, "format": FORMATS["windows"]}
    orders = [
        [
            row
            for epoch in range(9)
            for row in whole_epoch(lake, epoch, version=plans[epoch], **options)
        ],
        [row for epoch in range(9) for row in whole_epoch(other, epoch, **options)],
    ]
    counts: Counter[tuple[int, int]] = Counter()
    for sample, source, ids in sorted(rows):
        of_class = sample % mixture.lanes
        number = counts[source, of_class] * mixture.lanes + of_class
        assert ids == orders[source][number]
        counts[source, of_class] += 1
        name, spans = mixture.locate(sample, epoch=0)
        assert name == mixture.names[source]
        assert sum(span.count for span in spans) == 6


def test_a_schedule_with_the_same_past_is_accepted_and_another_is_not(grown, other):
    lake, (version, _) = grown
    options = {"version": version, "shuffle": SHUFFLE, "format": FORMATS["windows"]}
    dataset = TokenDataset(lake, seq_len=5, **options)
    size = dataset.num_samples
    before = read(dataset, 7)
    state = dataset.state_dict()
    planned = TokenDataset(lake, seq_len=Schedule([(0, 5), (2 * size, 9)]), **options)
    planned.load_state_dict(state)
    assert before + read(planned, 4) == read(TokenDataset(lake, seq_len=5, **options), 11)
    for lengths in ([(0, 5), (size - 1, 9)], [(0, 4), (2 * size, 9)]):
        with pytest.raises(LoaderError, match="another order"):
            TokenDataset(lake, seq_len=Schedule(lengths), **options).load_state_dict(state)
    # A mixture whose sources would end their present epochs elsewhere has another order, too.
    mixture = open_mixture(lake, version, other, seq_len=5)
    read(mixture, 5)
    state = mixture.state_dict()
    for start, is_accepted in ((400, True), (30, False)):
        later = open_mixture(lake, version, other, seq_len=Schedule([(0, 5), (start, 9)]))
        if is_accepted:
            later.load_state_dict(state)
            continue
        with pytest.raises(LoaderError, match="another order"):
            later.load_state_dict(state)


def test_a_replay_names_the_version_of_its_step(grown):
    lake, versions = grown
    dataset = TokenDataset(lake, seq_len=5, version=versions[0], format=FORMATS["windows"])
    list(dataset.batches(4))
    change = PlanChange(version=versions[1], seq_len=9)
    resumed = TokenDataset.from_state(lake, dataset.state_dict(), change=change)
    assert (resumed.version, resumed.seq_len) == (versions[0], 5)
    read(resumed, 2)
    assert (resumed.version, resumed.seq_len) == (versions[1], 9)
    replayed = replay(resumed, step=-1)
    assert [source.version for source in replayed.sources] == [versions[1]]
    assert sum(passage.span.count for passage in replayed.rows[0].passages) == 10
    assert "5, then 9 tokens" in repr(resumed)


def test_changes_that_are_not_possible_say_so(grown, other):
    lake, versions = grown
    dataset = TokenDataset(lake, seq_len=5, version=versions[0], format=FORMATS["windows"])
    read(dataset, 3)
    state = dataset.state_dict()
    for change, message in (
        (PlanChange(weights={"web": 1}), "single table, but the change names sources in weights"),
        (PlanChange(version={"web": 1}), "single table, but the change names sources in version"),
        (PlanChange(version=99), "version 99"),
        (PlanChange(seq_len=5000), "a window needs 5001 tokens"),
        (
            PlanChange(leave_out=[("a", "b")]),  # type: ignore[list-item]
            "not a list of addresses",
        ),
        (PlanChange(leave_out=[("a", n) for n in range(10_001)]), "10,001 documents, but 10,000"),
    ):
        with pytest.raises(LoaderError, match=message):
            TokenDataset.from_state(lake, state, change=change)
    dataset.batches(4).skip(30)
    dataset.batches(4).skip(3, after=500)
    with pytest.raises(LoaderError, match="steps are to be left out .* plans the epochs from"):
        TokenDataset.from_state(lake, dataset.state_dict(), change=PlanChange(seq_len=9))
    scheduled = TokenDataset(lake, seq_len=Schedule([(0, 5), (300, 9)]))
    with pytest.raises(LoaderError, match="is a Schedule, .* version cannot change"):
        TokenDataset.from_state(lake, scheduled.state_dict(), change=PlanChange(version=1))
    mixture = open_mixture(lake, versions[0], other)
    for change, message in (
        (PlanChange(seq_len=9), "begin their next epochs at different samples"),
        (PlanChange(version=2), "must name the sources"),
        (
            PlanChange(version={"books": 2}),
            "names books, but the sources of the state are web, code",
        ),
    ):
        with pytest.raises(LoaderError, match=message):
            TokenMixture.from_state(
                {"web": lake, "code": other}, mixture.state_dict(), change=change
            )


@pytest.mark.local_only  # the files are made old by hand
def test_a_version_that_a_vacuum_has_taken_is_refused_unless_its_epochs_are_done(
    place, monkeypatch
):
    monkeypatch.setattr(
        "etl.maintenance.unneeded_files.is_data_file", lambda path: path == "000.parquet"
    )
    lake = make_lake(place, SHAPE)
    dataset = TokenDataset(lake, seq_len=5, version=1, format=FORMATS["windows"])
    read(dataset, 2)
    table = Table.open(f"{lake}/tokens")
    table.commit([], remove=["000.parquet"], transactions={})
    within = TokenDataset.from_state(lake, dataset.state_dict(), change=PlanChange(version=2))
    state = within.state_dict()
    assert [version for _, version in within.tables()] == [1, 2]
    list(within.batches(1))
    read(within, 2)
    assert [version for _, version in within.tables()] == [2]
    later = within.state_dict()
    expected = read(within, 3)
    del dataset, within  # and their leases
    gc.collect()
    for path in Path(lake).rglob("*"):
        os.utime(path, (0, 0))
    deleted = vacuum(lake, retain=timedelta(hours=1), delete=True)
    assert [file.file for file in deleted.files] == ["000.parquet"]
    with pytest.raises(LoaderError, match="version 1"):
        TokenDataset.from_state(lake, state)
    resumed = TokenDataset.from_state(lake, later)
    assert read(resumed, 3) == expected
    with pytest.raises(LoaderError, match="version 1"):
        resumed.locate(0, epoch=0)
