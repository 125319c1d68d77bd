"""`etl replay` and `etl trace` with a transform of the user."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from etl.cli.app import app
from etl.cli.own_transforms import load_transforms
from etl.loader import Shard, TokenDataset, TokenMixture
from etl.loader.replay import open_saved
from tests.helpers.token_tables import MIXED, SMALL, make_lake

MODULE = """
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Backwards:
    rate: float = 0.5
    num_added: int = 0

    def settings(self):
        return asdict(self)

    def check(self, tokenizers):
        pass

    def __call__(self, tokens, seed):
        return tokens[::-1]


HALF, ALL = Backwards(), Backwards(rate=1.0)
"""


@pytest.fixture
def saved(place, tmp_path, monkeypatch):
    """A lake, and the transforms of a module in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_order.py").write_text(MODULE)
    return make_lake(place, SMALL), load_transforms(["own_order:HALF", "own_order:ALL"])


def test_a_state_finds_its_transforms_among_the_given_ones(saved):
    lake, (half, every) = saved
    options = {"seq_len": 9, "shuffle": MIXED}
    sources = {"a": every, "b": None, "c": half}
    datasets = {n: TokenDataset(lake, transform=each, **options) for n, each in sources.items()}
    mixture = TokenMixture(datasets, weights=dict.fromkeys(sources, 1), num_samples=40)
    state = json.loads(json.dumps(mixture.state_dict(consumed=8)))
    lakes = [f"{name}={lake}" for name in sources]
    opened = open_saved(lakes, state, shard=Shard(), transforms=[half, every])
    assert opened.state_dict() == mixture.state_dict(consumed=8)


def test_replay_and_trace_load_a_transform(saved):
    lake, (half, _) = saved
    dataset = TokenDataset(lake, seq_len=9, shuffle=MIXED, transform=half)
    next(iter(dataset.batches(4)))
    Path("state.json").write_text(json.dumps(dataset.state_dict()))
    given = [lake, "--state", "state.json"]

    def run(*arguments):
        return CliRunner().invoke(app, [*arguments])

    replayed = run("replay", *given, "--step", "-1", "--transform", "own_order:HALF")
    assert replayed.stdout.count("(sample ") == 4
    traced = run("trace", *given, "--id", "1-0", "--transform", "own_order:HALF")
    assert "seen " in traced.stdout
    for arguments, message in (
        (given, "has the transform Backwards of your own, with the settings {'rate': 0.5"),
        ([*given, "--transform", "own_order:ALL"], "has the transform Backwards of your own"),
        ([*given, "--transform", "own_order:NONE"], "NONE of the module own_order is not a token"),
        (
            [*given, "--transform", "own_order:Backwards"],
            "Backwards of the module own_order is not",
        ),
        ([*given, "--transform", "own_ordre:HALF"], "no Python module 'own_ordre'"),
        ([lake, "--seq-len", "9", "--transform", "own_order:HALF"], "--transform needs --state"),
    ):
        result = run("replay", *arguments)
        assert message in " ".join(result.stderr.split())
        assert result.exit_code != 0
