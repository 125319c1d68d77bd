"""When a training has seen documents, compared with the documents of every batch that it read."""

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from etl.cli.app import app
from etl.loader import Format, Schedule, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.exposures import find_exposures
from etl.loader.replay import open_saved
from tests.helpers.token_tables import MIXED, SMALL, documents, make_lake

OTHER = [[[13] * 40, [7] * 30], [[200]], [[0, 3, 90]]]
KINDS: dict[str, dict[str, Any]] = {
    "windows": {"seq_len": 9},
    "padded": {"seq_len": 9, "format": Format(pad_id=0)},
    "best fit": {"seq_len": 9, "format": Format(pack="best_fit")},
    "two lengths": {"seq_len": Schedule([(0, 5), (41, 9)])},
    "in order": {"seq_len": 9, "shuffle": False},
}
LEGS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(1, 2),
        st.booleans(),
        st.integers(1, 25),
        st.sampled_from([0, 0, 3, 30]),
    ),
    min_size=1,
    max_size=4,
)
"""World size, batch size, ``drop_last``, steps, and steps that are skipped before them; the next leg resumes
from the state."""


@pytest.fixture(scope="module")
def lakes(new_place, lake):
    return {"web": lake, "code": make_lake(new_place("other"), OTHER)}


def train(open_rank, legs, state=None):
    """Read some legs with all ranks; return the state, and what each batch had of each document."""
    seen = defaultdict(list)
    step = 0
    for world_size, batch_size, drop_last, num_steps, num_skipped in legs:
        ranks = [open_rank(Shard(rank=rank, world_size=world_size)) for rank in range(world_size)]
        for rank in ranks if state is not None else ():
            rank.load_state_dict(state)
        for rank in ranks:
            rank.batches(batch_size, drop_last=drop_last).skip(num_skipped)
        loops: list[Any] = [iter(()) for _ in ranks]
        for _ in range(num_steps):
            batches = [next(loop, None) for loop in loops]
            if batches[0] is None:
                loops = [iter(rank.batches(batch_size, drop_last=drop_last)) for rank in ranks]
                batches = [next(loop) for loop in loops]
            for number, (rank, batch) in enumerate(zip(ranks, batches, strict=True)):
                first = rank.epochs.of(rank.epoch).first_sample
                assert batch is not None
                for row, sample in enumerate((batch["sample"] - first).tolist()):
                    located = rank.locate(sample)
                    name, spans = located if isinstance(rank, TokenMixture) else (None, located)
                    for span in spans:
                        place = (rank.epoch, step, number, row, sample, span)
                        seen[name, span.id].append(place)
            step += 1
        state = ranks[0].state_dict()
        assert all(rank.state_dict() == state for rank in ranks)
    return state, seen


def check(dataset, shapes, seen) -> None:
    """Compare the exposures of all documents with what each batch had."""
    for name, shape in shapes.items():
        ids = [f"{doc.file}-{doc.row}" for doc in documents(shape)]
        by_table = {(d.source, d.id): d.exposures for d in find_exposures(dataset, ids)}
        for id_ in ids:
            found = [
                (each.epoch, each.step, each.rank, each.row, each.sample, each.span)
                for each in by_table[name, id_]
            ]
            assert sorted(found, key=lambda f: (f[1], f[4], f[5].start)) == found
            assert sorted(found, key=repr) == sorted(seen[name, id_], key=repr)


def numbered(options):
    return {**options, "format": replace(options.get("format", Format()), sample_numbers=True)}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5)
@given(legs=LEGS)
def test_each_exposure_is_a_row_that_was_read(lake, kind, legs):
    shuffle = Shuffle(lanes=2, block_tokens=40, run_tokens=10) if kind == "best fit" else MIXED
    options = numbered({"shuffle": shuffle, **KINDS[kind]})
    state, seen = train(lambda shard: TokenDataset(lake, shard=shard, **options), legs)
    check(open_saved([lake], json.loads(json.dumps(state)), shard=Shard()), {None: SMALL}, seen)


@pytest.mark.parametrize("kind", ["windows", "padded", "best fit", "two lengths"])
@settings(max_examples=5)
@given(legs=LEGS, weights=st.lists(st.integers(0, 3), min_size=2, max_size=2).filter(any))
def test_exposures_in_a_mixture_follow_changed_weights(lakes, kind, legs, weights):
    options = numbered({"shuffle": MIXED, **KINDS[kind]})
    shares = Schedule([(0, {"web": 2, "code": 1}), (31, dict(zip(lakes, weights, strict=True)))])

    def open_rank(shard):
        datasets = {name: TokenDataset(lakes[name], shard=shard, **options) for name in lakes}
        return TokenMixture(datasets, weights=shares, seed=3, num_samples=60)

    state, seen = train(open_rank, legs)
    named = [f"{name}={url}" for name, url in lakes.items()]
    check(open_saved(named, state, shard=Shard()), {"web": SMALL, "code": OTHER}, seen)


def test_a_document_that_was_never_seen_says_so_and_an_unknown_one_is_an_error(lake, tmp_path):
    dataset = TokenDataset(lake, seq_len=9, shuffle=False)
    loop = iter(dataset.batches(2))
    next(loop)
    next(loop)
    file = tmp_path / "state.json"
    file.write_text(json.dumps(dataset.state_dict()))

    def run(*words):
        return CliRunner().invoke(app, ["trace", lake, *words])

    shown = run("--id", "0-2", "--id", "3-2", "--state", str(file))
    assert shown.exit_code == 0, shown.output
    first, second = shown.stdout.split("\n\n")
    assert "seen        3 times" in first
    assert "epoch 0, step 1, rank 0, row 0 (sample 2): tokens 13 to 17" in first
    assert second.splitlines()[-1].split() == ["seen", "never"]
    by_json = json.loads(run("--id", "0-2", "--state", str(file), "--json").stdout)
    assert [each["step"] for each in by_json[0]["exposures"]] == [0, 0, 1]
    unknown = run("--id", "0-2", "--id", "nowhere", "--state", str(file))
    assert "no document with the id 'nowhere' has tokens" in unknown.stderr
    assert "hint:" in unknown.stderr
    for words in ((), ("--source", "a", "--row", "1", "--state", str(file)), (lake, "--id", "0-2")):
        assert run(*words).exit_code == 2


def test_samples_before_the_record_are_seen_in_unknown_steps(lake):
    dataset = TokenDataset(lake, seq_len=9, shuffle=False)
    resumed = TokenDataset.from_state(lake, dataset.state_dict(consumed=2))
    next(iter(resumed.batches(3)))
    (seen,) = find_exposures(resumed, ["0-2"])
    places = [(each.step, each.rank, each.row, each.sample) for each in seen.exposures]
    assert places == [(None, None, None, 0), (None, None, None, 1), (None, 0, 0, 2)]
