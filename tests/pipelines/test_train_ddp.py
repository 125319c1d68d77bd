"""Training on the sample: the loss falls, and a killed run resumes with identical losses."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import psutil
import pytest

from etl import pipelines
from etl.job.run import run
from etl.pipelines.train_ddp import Settings, train
from etl.recipe.recipe import Recipe
from tests.helpers.cluster import cluster
from tests.helpers.token_tables import make_lake

ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "pipelines" / "sample"
SMALL = {"layers": 2, "width": 32, "heads": 2, "seq-len": 64, "batch-size": 4, "save-every": 5}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake of thirteen books of the Bible as tokens."""
    recipe = Recipe(
        name="kjv",
        source={"path": str(SAMPLE / "kjv.jsonl.gz"), "columns": {"text": "content"}},
        lake=str(tmp_path_factory.mktemp("kjv") / "lake"),
        stages=[{"tokenize": {"tokenizer": str(SAMPLE / "tokenizer.json")}}],
    )
    with cluster() as c:
        assert run(recipe, cluster=c).ok
    return recipe.lake


def start(lake, out, processes, **options):
    """Start training under torchrun."""
    settings = {**SMALL, "learning-rate": 0.01, "steps": 24, **options}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(processes), "-m", "etl.pipelines.train_ddp", lake),
        *("--out", str(out), *words),
    ]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_of(process):
    """Wait for a run to end and return its log lines."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def kill(process):
    """Kill torchrun and its workers, which have separate process sessions."""
    processes = [*psutil.Process(process.pid).children(recursive=True), process]
    for each in processes:
        each.kill()
    process.communicate()


def losses(lines):
    return {line["step"]: line["loss"] for line in lines}


class ClosingOutput(io.StringIO):
    """Standard output that raises BrokenPipeError after some lines."""

    def __init__(self, lines=99):
        super().__init__()
        self.lines = lines

    def write(self, text):
        self.lines -= text.count("\n")
        if self.lines < 0:
            raise BrokenPipeError
        return super().write(text)

    def losses(self):
        return losses(map(json.loads, self.getvalue().splitlines()))


@pytest.mark.slow
def test_an_interrupted_run_resumes_with_identical_losses(tmp_path):
    """In this process, without torchrun: three epochs of a lake with consecutive ids."""
    lake = make_lake(tmp_path, [[[40] * 25, [40] * 25]])

    def settings(out):
        small = {"vocab_size": 2000, "layers": 1, "width": 32, "heads": 2, "seq_len": 32}
        pace = {"steps": 30, "batch_size": 6, "learning_rate": 0.01, "save_every": 4}
        return Settings(lake=lake, out=str(tmp_path / out), **small, **pace)

    with redirect_stdout(ClosingOutput()) as whole:
        train(settings("whole"))
    expected = whole.losses()
    assert list(expected) == list(range(1, 31))
    assert expected[30] < expected[1] - 1
    assert json.loads(whole.getvalue().splitlines()[-1])["epoch"] == 2
    for lines, first in ((3, 1), (18, 17)):  # before and after a checkpoint
        folder = f"ended-{lines}"
        with redirect_stdout(ClosingOutput(lines)), pytest.raises(BrokenPipeError):
            train(settings(folder))
        with redirect_stdout(ClosingOutput()) as rest:
            train(settings(folder))
        assert rest.losses() == {step: loss for step, loss in expected.items() if step >= first}


@pytest.mark.slow
def test_a_killed_distributed_run_resumes_with_identical_losses(lake, tmp_path):
    whole = lines_of(start(lake, tmp_path / "whole", 2))
    expected = losses(whole)
    assert list(expected) == list(range(1, 25))
    assert expected[1] > 9  # a uniform guess among 16,384 has 9.7
    assert expected[24] < expected[1] - 1.5
    assert all(line["tokens_s"] > 0 and 0 <= line["waiting"] <= 1 for line in whole)
    killed = start(lake, tmp_path / "killed", 2)
    seen: dict[int, float] = {}
    for text in killed.stdout:
        seen |= losses([json.loads(text)])
        if len(seen) == 13:
            break
    kill(killed)
    assert seen.items() <= expected.items()
    rest = losses(lines_of(start(lake, tmp_path / "killed", 2)))
    first = min(rest)
    assert first in (11, 16, 21)  # after a checkpoint: step 10's if the kill was quick
    assert rest == {step: loss for step, loss in expected.items() if step >= first}


def test_modules_are_not_listed_as_recipes():
    assert "train_ddp" not in pipelines.list_recipes()
