"""Losses of documents: from the batches of two ranks to the table, exactly once."""

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.lake_report import report
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import LoaderError
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake.commit_info import read_record
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.releases import create_release
from etl.lake.table_specs import SPECS
from etl.loader import Format, LossLog, Schedule, Shard, Shuffle, TokenDataset, TokenMixture
from etl.loader.loss_log import METADATA
from etl.maintenance.commit_losses import FINGERPRINT, CommittedLosses, commit_losses
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.parquet.data_file import DataFileWriter
from etl.recipe.recipe import Recipe
from etl.schemas import LOSSES
from tests.helpers.cli import etl
from tests.helpers.corpus import write_jsonl
from tests.helpers.lake_rows import rows
from tests.helpers.lakes import with_copied_lake
from tests.helpers.paths import at, copy
from tests.helpers.rank_processes import run_ranks

SEQ_LEN = 64
FORMAT = Format(sample_numbers=True, document_ids=True)


def open_dataset(
    recipe: Recipe, rank: int = 0, world_size: int = 1, **options: Any
) -> TokenDataset:
    options = {"format": FORMAT, "shuffle": Shuffle(lanes=3, block_tokens=512), **options}
    shard = Shard(rank=rank, world_size=world_size)
    return TokenDataset(str(recipe.lake), seq_len=SEQ_LEN, shard=shard, **options)


def train(dataset: Any, log: LossLog, first_step: int = 0, steps: int | None = None) -> int:
    """Log the next steps of an epoch; the loss of a token is its id."""
    step = first_step
    for batch in dataset.batches(4, drop_last=False):
        if step == (None if steps is None else first_step + steps):
            break
        log.write(step, batch, batch["labels"].float())
        step += 1
    return step


def train_ranks(recipe: Recipe, world_size: int = 2, epochs: int = 1, **options: Any) -> int:
    """Log whole epochs of all ranks; return the number of tokens that were labels."""
    tokens = 0
    for rank in range(world_size):
        dataset = open_dataset(recipe, rank, world_size, **options)
        with LossLog(dataset, run="proxy") as log:
            step = 0
            for _ in range(epochs):
                step = train(dataset, log, step)
        tokens += len(dataset) * SEQ_LEN * epochs
    return tokens


def rows_of(recipe: Recipe) -> list[dict[str, Any]]:
    return rows(recipe.lake, "losses")


def commit(recipe: Recipe) -> CommittedLosses:
    (report,) = commit_losses(str(recipe.lake))
    return report


def check_losses(recipe: Recipe, num_tokens: int) -> None:
    """Compare each row with the tokens of its document; no token counts twice in an epoch."""
    tokens: dict[Any, Any] = {
        (row["source"], row["row"]): row["tokens"] for row in rows(recipe.lake, "tokens")
    }
    counted: Counter[Any] = Counter()
    for row in rows_of(recipe):
        part = range(row["start"], row["start"] + row["num_tokens"])
        address = (row["source"], row["row"])
        expected = [tokens[address][i] for i in part]
        assert row["loss"] * row["num_tokens"] == pytest.approx(sum(expected))
        counted.update((address, row["epoch"], i) for i in part)
    assert set(counted.values()) == {1}
    assert len(counted) == num_tokens


def test_losses_of_best_fit_windows_count_for_documents_that_are_cut(recipe: Recipe) -> None:
    packed = Format(sample_numbers=True, document_ids=True, pack="best_fit")
    dataset = open_dataset(recipe, format=packed)
    labels = [batch["labels"] for batch in dataset.batches(4, drop_last=False)]
    dataset.set_epoch(0)
    with LossLog(dataset, run="proxy") as log:
        train(dataset, log)
    assert commit(recipe).left == []
    check_losses(recipe, sum(int((part >= 0).sum()) for part in labels))


def test_losses_of_windows_of_changing_length_count_for_their_documents(recipe: Recipe) -> None:
    seq_len = Schedule([(0, 16), (9, 64), (12, 32)])
    dataset = TokenDataset(str(recipe.lake), seq_len=seq_len, format=FORMAT)
    num_tokens = 0
    with LossLog(dataset, run="proxy") as log:
        for step in range(3):
            num_tokens += dataset.epochs.of(step).num_samples * dataset.epochs.of(step).seq_len
            train(dataset, log, step)
    assert dataset.epochs.of(0).num_samples == 9
    assert commit(recipe).left == []
    check_losses(recipe, num_tokens)


@pytest.mark.parametrize(
    "batch_format",
    [
        FORMAT,
        Format(sample_numbers=True, cu_seqlens=True),
        Format(sample_numbers=True, position_ids=True, shifted_labels=False),
    ],
)
def test_each_token_counts_for_its_document(recipe: Recipe, batch_format: Format) -> None:
    num_tokens = train_ranks(recipe, epochs=2, format=batch_format)
    report = commit(recipe)
    assert (report.files, report.repeated, report.runs, report.left) == (2, 0, {"proxy"}, [])
    assert report.rows == len(rows_of(recipe))
    check_losses(recipe, num_tokens)
    table = Table.open(storage.join(str(recipe.lake), "losses"))
    assert [(t.name, t.version) for t in read_record(table).input_tables] == [
        ("tokens", open_dataset(recipe).version)
    ]
    assert verify(str(recipe.lake)) == []
    assert not storage.find_files(storage.join(str(recipe.lake), "loss_logs"))
    assert commit(recipe).rows == 0


def test_a_sample_that_is_trained_on_again_counts_once(recipe: Recipe) -> None:
    """A run of two ranks is killed behind its checkpoint, and continues on one with other batches."""
    for rank in (0, 1):
        dataset = open_dataset(recipe, rank, 2)
        with LossLog(dataset, run="proxy") as log:
            train(dataset, log, steps=3)
            state = dataset.state_dict(consumed=16)
    first = [row["loss"] for row in rows_after_commit(recipe)]
    resumed = TokenDataset.from_state(str(recipe.lake), state, format=FORMAT)
    with LossLog(resumed, run="proxy", rows_per_file=20) as log:
        train(resumed, log, first_step=4)
    assert len(storage.find_files(f"{recipe.lake}/loss_logs/proxy")) > 1
    report = commit(recipe)
    assert report.repeated > 0
    assert len(rows_of(recipe)) == len(first) + report.rows
    check_losses(recipe, open_dataset(recipe).num_samples * SEQ_LEN)


def rows_after_commit(recipe: Recipe) -> list[dict[str, Any]]:
    commit(recipe)
    return rows_of(recipe)


def test_the_last_rows_of_a_sample_are_committed(recipe: Recipe) -> None:
    dataset = open_dataset(recipe)
    (batch, *_) = dataset.batches(4)
    with LossLog(dataset, run="proxy") as log:
        log.write(0, batch, torch.full((4, SEQ_LEN), 1.0))
        log.write(0, batch, torch.full((4, SEQ_LEN), 2.0))
        log.flush()
        log.write(0, batch, torch.full((4, SEQ_LEN), 3.0))
    report = commit(recipe)
    assert {row["loss"] for row in rows_of(recipe)} == {3.0}
    assert report.repeated == 2 * report.rows


def test_logs_that_are_committed_already_add_nothing(recipe: Recipe, place: UPath) -> None:
    """A command that is killed after its commit leaves the files; two may run at the same time."""
    num_tokens = train_ranks(recipe, world_size=3)
    logs, kept = place / "lake" / "loss_logs", place / "kept"
    copy(str(logs), kept)
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(commit, [recipe] * 3))
    assert sum(report.rows for report in reports) == len(rows_of(recipe))
    copy(str(kept), logs)
    again = commit(recipe)
    assert (again.files, again.rows) == (0, 0)
    assert not storage.find_files(str(logs))
    check_losses(recipe, num_tokens)


def log_on_a_rank(lake: str) -> int:
    dataset = TokenDataset(lake, seq_len=SEQ_LEN, format=FORMAT)
    with LossLog(dataset, run="proxy") as log:
        train(dataset, log)
    return len(dataset)


@pytest.mark.local_only
def test_ranks_of_torch_distributed_write_their_own_files(recipe: Recipe, tmp_path: Path) -> None:
    samples = run_ranks(log_on_a_rank, str(recipe.lake), folder=tmp_path)
    names = sorted(path.name for path in (at(recipe.lake) / "loss_logs" / "proxy").iterdir())
    assert [name.split("-")[0] for name in names] == ["000000", "000001"]
    commit(recipe)
    check_losses(recipe, sum(samples) * SEQ_LEN)


SMALL_COMMITS = """
import sys
from etl.maintenance import commit_losses as module
module._GROUP_ROWS = 20
module.commit_losses(sys.argv[1])
"""


@pytest.mark.local_only
@pytest.mark.slow
def test_a_killed_command_commits_nothing_twice(recipe: Recipe) -> None:
    """It is killed twice between many small commits."""
    dataset = open_dataset(recipe)
    with LossLog(dataset, run="proxy", rows_per_file=10) as log:
        train(dataset, log)
    entries = at(recipe.lake) / "losses" / "_delta_log"
    for version in (2, 5):
        command = [sys.executable, "-c", SMALL_COMMITS, str(recipe.lake)]
        with subprocess.Popen(command) as process:
            while process.poll() is None and not (entries / f"{version:020}.json").exists():
                time.sleep(0.002)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    commit(recipe)
    check_losses(recipe, dataset.num_samples * SEQ_LEN)
    assert verify(str(recipe.lake)) == []


def test_a_row_that_is_there_twice_is_found(recipe: Recipe) -> None:
    train_ranks(recipe)
    commit(recipe)
    table = Table.open(f"{recipe.lake}/losses")
    writer = DataFileWriter(table.url, LOSSES, SPECS["losses"].layout, name="b" * 32)
    writer.append(table.dataset().to_table().slice(0, 3))
    ledger = Ledger(table.url, fingerprint=FINGERPRINT)
    record = read_record(table)
    ledger.commit([LedgerEntry("b" * 32, writer.close())], lambda *_: record)
    (problem,) = verify(str(recipe.lake))
    assert problem.what.startswith("3 rows repeat a part of a document")


def train_until_killed(recipe: Recipe) -> None:
    dataset = open_dataset(recipe)
    log = LossLog(dataset, run="proxy", rows_per_file=10)
    train(dataset, log, steps=8)
    log._raise_errors(wait=True)  # files that are being written now would be lost
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.local_only
def test_a_killed_rank_loses_only_what_it_had_not_written(recipe: Recipe) -> None:
    process = multiprocessing.get_context("fork").Process(target=train_until_killed, args=[recipe])
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    commit(recipe)
    assert {row["step"] for row in rows_of(recipe)} >= {*range(6)}
    dataset = open_dataset(recipe)
    with LossLog(dataset, run="proxy") as log:
        train(dataset, log)
    commit(recipe)
    check_losses(recipe, dataset.num_samples * SEQ_LEN)


def test_files_that_cannot_be_committed_are_left(recipe: Recipe, place: UPath) -> None:
    train_ranks(recipe, world_size=1)
    logs = place / "lake" / "loss_logs" / "proxy"
    (file,) = logs.iterdir()
    (logs / "bad.parquet").write_bytes(b"PAR1 not a file PAR1")
    other = pq.read_table(io.BytesIO(file.read_bytes()))
    fields = json.loads(other.schema.metadata[METADATA])
    fields["state"]["plan"] = "0" * 16
    sink = io.BytesIO()
    pq.write_table(other.replace_schema_metadata({METADATA: json.dumps(fields)}), sink)
    (logs / "other.parquet").write_bytes(sink.getvalue())
    report = commit(recipe)
    assert report.files == 1
    whys = {left.file.rpartition("/")[2]: left.why for left in report.left}
    assert whys.keys() == {"bad.parquet", "other.parquet"}
    assert "not a file of a log" in whys["bad.parquet"]
    assert "another order of samples" in whys["other.parquet"]
    assert sorted(path.name for path in logs.iterdir()) == ["bad.parquet", "other.parquet"]


@pytest.mark.parametrize("batch_format", [FORMAT, Format(sample_numbers=True, pad_id=0)])
def test_a_mixture_commits_to_each_of_its_lakes(
    recipe: Recipe, place: UPath, batch_format: Format
) -> None:
    twin = with_copied_lake(recipe, place / "twin")
    recipes = {"a": recipe, "b": twin}
    datasets = {name: open_dataset(each, format=batch_format) for name, each in recipes.items()}
    mixture = TokenMixture(datasets, weights={"a": 1, "b": 3})
    with LossLog(mixture, run="proxy", folder=str(place / "logs")) as log:
        train(mixture, log)
    lakes = [f"{name}={each.lake}" for name, each in recipes.items()]
    reports = commit_losses(*lakes, folder=str(place / "logs"))
    assert [report.left for report in reports] == [[], []]
    if batch_format.pad_id is None:
        counts = [sum(row["num_tokens"] for row in rows_of(each)) for each in recipes.values()]
        assert sum(counts) == mixture.num_samples * SEQ_LEN
        assert counts[1] == pytest.approx(3 * counts[0], rel=0.05)
        for each, count in zip(recipes.values(), counts, strict=True):
            check_losses(each, count)


def test_models_that_shift_labels_have_one_loss_less(recipe: Recipe) -> None:
    dataset = open_dataset(recipe, format=Format.huggingface(sample_numbers=True))
    num_tokens = 0
    with LossLog(dataset, run="proxy") as log:
        for step, batch in enumerate(dataset.batches(4)):
            log.write(step, batch, batch["labels"][:, 1:].float())
            num_tokens += int((batch["labels"][:, 1:] != -100).sum())
    commit(recipe)
    assert sum(row["num_tokens"] for row in rows_of(recipe)) == num_tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": Format(document_ids=True)}, "do not say which samples"),
        ({"format": Format(sample_numbers=True)}, "do not say which samples"),
        ({"run": "a/b"}, "not a valid name"),
        ({"rows_per_file": 0}, "at least 1"),
        ({"losses": torch.zeros(4)}, r"shape \(4,\)"),
        ({"batch": {"labels": torch.zeros(4, SEQ_LEN)}}, "no tensor 'sample'"),
    ],
)
def test_what_does_not_fit_is_refused(recipe: Recipe, options: Any, message: str) -> None:
    dataset = open_dataset(recipe, format=options.pop("format", FORMAT))
    batch, losses = options.pop("batch", None), options.pop("losses", torch.zeros(4, SEQ_LEN))
    with pytest.raises(LoaderError, match=message):
        LossLog(dataset, **{"run": "proxy", **options}).write(
            0, batch or next(iter(dataset.batches(4))), losses
        )


def test_a_rebuilt_lake_keeps_its_losses(recipe: Recipe, client: Client) -> None:
    train_ranks(recipe)
    before = rows_after_commit(recipe)
    assert run(recipe, cluster=client, rebuild=True).ok
    assert rows_of(recipe) == before
    assert verify(str(recipe.lake)) == []
    assert create_release(str(recipe.lake), "first").versions["losses"] >= 1
    assert vacuum(str(recipe.lake), retain=timedelta(0), delete=True).deleted
    assert rows_of(recipe) == before
    dataset = open_dataset(recipe)
    with LossLog(dataset, run="second") as log:
        train(dataset, log)
    assert commit(recipe).rows == len(rows_of(recipe)) - len(before) > 0


def test_losses_on_the_shuffled_table_are_of_the_same_documents(
    recipe: Recipe, client: Client
) -> None:
    shuffle(str(recipe.lake), cluster=client)
    url = f"{recipe.lake}/tokens_shuffled"
    dataset = TokenDataset(url, seq_len=SEQ_LEN, shuffle=False, format=FORMAT)
    with LossLog(dataset, run="proxy") as log:
        train(dataset, log)
    assert commit(recipe).left == []
    check_losses(recipe, dataset.num_samples * SEQ_LEN)
    (table,) = read_record(Table.open(f"{recipe.lake}/losses")).input_tables
    assert (table.name, table.version) == ("tokens_shuffled", dataset.version)


@pytest.fixture
def multilingual(place: UPath, client: Client, tiny_tokenizer: Path) -> Recipe:
    """A lake of English and German documents in two files."""
    texts = {
        "en": "The weather was fine on the day when we went to the old town by the river. " * 4,
        "de": "Das Wetter war schön an dem Tag, an dem wir in die alte Stadt am Fluss gingen. " * 4,
    }
    for name in ("a", "b"):
        lines = [
            json.dumps({"text": f"{texts[lang]}{name}{i}"}) for i in range(6) for lang in texts
        ]
        write_jsonl(place / "crawl" / f"{name}.jsonl", [json.loads(line) for line in lines])
    stages = [{"language": ["en", "de"]}, {"tokenize": str(tiny_tokenizer)}]
    source = {"path": str(place / "crawl")}
    recipe = Recipe(name="web", source=source, lake=str(place / "lake"), stages=stages)
    assert run(recipe, cluster=client).ok
    return recipe


def test_a_report_has_the_mean_loss_by_source_and_language(multilingual: Recipe) -> None:
    recipe = multilingual
    train_ranks(recipe)
    dataset = open_dataset(recipe)
    with LossLog(dataset, run="diverged") as log:
        batch = next(iter(dataset.batches(1)))
        log.write(0, batch, torch.full((1, SEQ_LEN), torch.nan))
    commit(recipe)
    languages = {(r["source"], r["row"]): r["lang"] for r in rows(recipe.lake, "documents")}
    expected: dict[str, list[float]] = {}
    for row in rows_of(recipe):
        for group in (row["source"], languages[row["source"], row["row"]]):
            if row["run"] == "proxy":
                sums = expected.setdefault(group, [0, 0])
                sums[0] += row["num_tokens"]
                sums[1] += row["num_tokens"] * row["loss"]
    losses = report(str(recipe.lake)).losses
    assert losses is not None
    found = {m.group: [m.tokens, m.loss] for m in (*losses.by_source, *losses.by_language)}
    for group, (tokens, total) in expected.items():
        assert found[group] == pytest.approx([tokens, total / tokens])
    assert len(found) == 4
    assert losses.infinite == sum(row["run"] == "diverged" for row in rows_of(recipe)) > 0
    (table,) = (each for each in report(str(recipe.lake)).tables if each.name == "losses")
    assert table.rows == len(rows_of(recipe))


def test_the_commands_commit_and_report_losses(recipe: Recipe) -> None:
    train_ranks(recipe)
    done = etl("losses", recipe.lake)
    assert (done.exit_code, "runs        proxy" in done.stdout) == (0, True)
    assert "mean loss" in etl("report", recipe.lake).stdout
    assert "append" in etl("history", f"{recipe.lake}/losses").stdout
    (at(recipe.lake) / "loss_logs" / "proxy" / "bad.parquet").write_bytes(b"PAR1")
    failed = etl("losses", recipe.lake)
    assert failed.exit_code == 1
    assert "bad.parquet: not a file of a log" in failed.stdout


def test_a_repair_drops_damaged_losses_and_no_others(recipe: Recipe) -> None:
    train_ranks(recipe)
    before = rows_after_commit(recipe)
    dataset = open_dataset(recipe)
    with LossLog(dataset, run="second") as log:
        train(dataset, log)
    commit(recipe)
    paths = [file["path"] for file in Table.open(f"{recipe.lake}/losses").files("path")]
    (damaged,) = (path for path in paths if runs_in(recipe, path) == {"second"})
    (at(recipe.lake) / "losses" / damaged).write_bytes(b"PAR1")
    assert {str(problem.file) for problem in verify(str(recipe.lake))} == {damaged}
    assert repair(str(recipe.lake), drop=True).dropped["losses"] == [damaged]
    assert verify(str(recipe.lake)) == []
    assert rows_of(recipe) == before


def runs_in(recipe: Recipe, path: str) -> set[str]:
    content = io.BytesIO((at(recipe.lake) / "losses" / path).read_bytes())
    return {*pq.read_table(content, columns=["run"])["run"].to_pylist()}


def test_a_lost_log_of_documents_leaves_the_losses(recipe: Recipe) -> None:
    train_ranks(recipe)
    logs = at(recipe.lake) / "loss_logs"
    kept = copy(str(logs), at(recipe.lake) / "kept")
    before = rows_after_commit(recipe)
    entry = at(recipe.lake) / "documents" / "_delta_log" / f"{1:020}.json"
    entry.write_text("{")
    repair(str(recipe.lake), drop=True)
    copy(str(kept), logs)
    assert commit(recipe).rows == 0
    assert rows_of(recipe) == before
