"""Trainings that change the version, the windows or the documents of a table, counted token by token."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.loader import (
    Format,
    PlanChange,
    Shard,
    Shuffle,
    TokenDataset,
    View,
)
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


def whole_epoch(lake, epoch, **options):
    """Return the rows of an epoch of a dataset that was opened for it alone."""
    dataset = TokenDataset(lake, shuffle=SHUFFLE, **options)
    dataset.set_epoch(epoch)
    return [ids for batch in dataset.batches(1) for _, ids in numbered_rows(batch)]


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
@settings(max_examples=4)
@given(changes=CHANGES)
def test_each_epoch_is_read_once_by_the_plan_that_it_began_with(grown, kind, changes):
    lake, versions = grown
    every = [*documents([*SHAPE, *ADDED])]
    plan = {"version": versions[0], "seq_len": 5, "left_out": ()}
    dataset = TokenDataset(
        lake, seq_len=5, version=versions[0], shuffle=SHUFFLE, format=FORMATS[kind]
    )
    state, change = dataset.state_dict(), PlanChange()
    rows, plans = [], {}  # by epoch
    for num_steps, num_lost, world_size, version, seq_len, left_out in changes:
        ranks = [
            TokenDataset.from_state(
                lake, state, change=change, shard=Shard(rank=rank, world_size=world_size)
            )
            for rank in range(world_size)
        ]
        first = state["epoch"] + (state["consumed"] > 0)
        plans = {epoch: each for epoch, each in plans.items() if epoch < first}
        plans |= dict.fromkeys(range(first, first + 40), plan)
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
        view = View(leave_out=plans[epoch]["left_out"])
        options = {name: plans[epoch][name] for name in ("version", "seq_len")}
        expected = whole_epoch(lake, epoch, view=view, format=FORMATS[kind], **options)
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
