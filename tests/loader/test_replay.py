"""Replay of a batch, also by `etl replay`: its documents, and their text."""

import json

import pytest
import torch
from tokenizers import Tokenizer
from typer.testing import CliRunner

from etl.cli.app import app
from etl.delta.table import Table
from etl.errors import LoaderError
from etl.loader import Format, Shard, TokenDataset, TokenMixture
from etl.loader.replay import open_saved, read_state, replay
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.token_tables import MIXED, SMALL, documents, make_lake


def test_each_passage_belongs_to_the_document_of_its_tokens(lake):
    dataset = TokenDataset(lake, seq_len=9, shuffle=MIXED, shard=Shard(rank=1, world_size=2))
    owner = {token: doc for doc in documents(SMALL) for token in doc.tokens}
    for step, batch in enumerate(dataset.batches(3)):
        fresh = TokenDataset(lake, seq_len=9, shuffle=MIXED, shard=Shard(rank=1, world_size=2))
        replayed = replay(fresh, batch_size=3, step=step)
        assert replay(dataset, step=-1).rows == replayed.rows  # the dataset is one step further
        assert (replayed.rank, replayed.world_size) == (1, 2)
        assert [(s.name, s.table, s.tokenizer) for s in replayed.sources] == [
            (None, dataset.where, None)
        ]
        assert [row.sample for row in replayed.rows] == dataset.step_samples(step, 3)
        for row, ids in zip(replayed.rows, batch["input_ids"].tolist(), strict=True):
            starts = [passage.span.start for passage in row.passages]
            docs = [owner[ids[start]] for start in starts if start < 9]
            rows = [(p.span.source, p.span.row) for p in row.passages if p.span.start < 9]
            assert rows == [(doc.source, doc.row) for doc in docs]
    for step in (-99, 99):
        with pytest.raises(LoaderError, match="no batch" if step > 0 else "began only"):
            replay(dataset, batch_size=3, step=step)


def test_a_state_is_read_from_json_and_from_checkpoints(tmp_path, lake):
    dataset = TokenDataset(lake, seq_len=9, shuffle=MIXED)
    next(iter(dataset.batches(4)))
    state = dataset.state_dict()
    (tmp_path / "state.json").write_text(json.dumps({"step": 1, "loader": state}))
    torch.save({"model": {"w": torch.ones(2)}, "loader": state}, tmp_path / "all.pt")
    loops = {"fit_loop": {"state_dict": {"combined_loader": [state]}}}  # as Lightning saves it
    torch.save({"loops": loops}, tmp_path / "lightning.ckpt")
    for name in ("state.json", "all.pt", "lightning.ckpt"):
        assert read_state(str(tmp_path / name)) == state
    (tmp_path / "broken.pt").write_bytes(b"PK not a checkpoint")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    for name, message in (
        ("broken.pt", "not valid JSON or a checkpoint"),
        ("broken.json", "not valid JSON"),
        ("other.json", "no state of a TokenDataset"),
    ):
        with pytest.raises(LoaderError, match=f"{name}: .*{message}"):
            read_state(str(tmp_path / name))


def test_a_mixture_is_replayed_from_its_state(place, tmp_path, lake):
    lakes = {"web": lake, "code": make_lake(place, [[[40, 7]], [[90, 31]]])}
    where = {"shard": Shard(rank=1, world_size=2)}
    datasets = {
        name: TokenDataset(url, seq_len=4, shuffle=MIXED, seed=seed, **where)
        for seed, (name, url) in enumerate(lakes.items())
    }
    mixture = TokenMixture(datasets, weights={"web": 1, "code": 2}, num_samples=200, seed=3)
    steps = mixture.batches(3)
    batch = [next(each) for each in [iter(steps)] for _ in range(4)][-1]
    replayed = replay(mixture, batch_size=3, step=-1)
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"loader": mixture.state_dict()}))
    resumed = TokenMixture.from_state(lakes, mixture.state_dict(), **where)
    assert replay(resumed, batch_size=3, step=-1) == replayed
    assert [row.source for row in replayed.rows] == [mixture.names[n] for n in batch["source"]]
    assert [source.name for source in replayed.sources] == ["web", "code"]
    shapes = {"web": SMALL, "code": [[[40, 7]], [[90, 31]]]}
    for row, ids in zip(replayed.rows, batch["input_ids"].tolist(), strict=True):
        owner = {token: doc for doc in documents(shapes[str(row.source)]) for token in doc.tokens}
        inside = [p.span for p in row.passages if p.span.start < 4]
        docs = [owner[ids[part.start]] for part in inside]
        assert [(p.source, p.row) for p in inside] == [(doc.source, doc.row) for doc in docs]

    def run(*lakes):
        where = ["--rank", "1", "--world-size", "2", "--batch-size", "3", "--step", "-1"]
        return CliRunner().invoke(app, ["replay", *lakes, "--state", str(state), *where])

    shown = run(*(f"{name}={url}" for name, url in lakes.items()))
    assert f"(sample {replayed.rows[0].sample}) of {replayed.rows[0].source}" in shown.stdout
    for mistake, message in (
        ([lake], "mixture of web, code"),
        ([f"web={lake}"], "lakes are given for web, but the sources of the state are web, code"),
    ):
        assert message in run(*mistake).stderr
    with pytest.raises(LoaderError, match="give one lake"):
        open_saved([lake, lake], datasets["web"].state_dict(), **where)
    with pytest.raises(LoaderError, match="the state is not of a mixture"):
        TokenMixture.from_state(lakes, datasets["web"].state_dict())


@pytest.fixture(scope="module")
def tokenized(new_place, tiny_tokenizer):
    """A lake written by a recipe, the input texts by row, and the tokenizer."""
    from etl.job.run import run

    folder = new_place("tokenized")
    docs = records(0, 30)
    write_jsonl(folder / "a.jsonl", docs)
    recipe = Recipe(
        name="few",
        source={"path": str(folder / "a.jsonl"), "columns": {"text": "body", "id": "doc_id"}},
        lake=str(folder / "lake"),
        stages=[{"tokenize": {"tokenizer": str(tiny_tokenizer)}}],
    )
    from tests.helpers.cluster import cluster

    with cluster() as c:
        assert run(recipe, cluster=c).ok
    return str(folder / "lake"), [doc["body"] for doc in docs], tiny_tokenizer


def test_the_decoded_text_equals_the_input(tokenized, tmp_path):
    lake, texts, tokenizer = tokenized
    dataset = TokenDataset(lake, seq_len=64, format=Format(pad_id=0))
    replayed = replay(dataset, batch_size=4, tokenizer=str(tokenizer))
    for row in replayed.rows:
        (passage,) = row.passages
        ids = Tokenizer.from_file(str(tokenizer)).encode(texts[passage.span.row]).ids
        assert passage.span.id == f"doc-{passage.span.row:05d}"
        assert passage.span.count == min(len(ids) + 1, 65)  # with the end of the text
        text = (passage.text or "").removesuffix("<|endoftext|>")
        assert text
        assert texts[passage.span.row].startswith(text.rstrip("\N{REPLACEMENT CHARACTER}"))
    other = tmp_path / "tokenizer.json"
    other.write_text(tokenizer.read_text() + "\n")
    with pytest.raises(LoaderError, match="not the tokenizer of the table"):
        replay(dataset, batch_size=4, tokenizer=str(other))


def test_the_command_takes_a_state_or_explicit_settings(tokenized, tmp_path):
    lake, _, tokenizer = tokenized
    dataset = TokenDataset(lake, seq_len=32, seed=5, shard=Shard(rank=1, world_size=2))
    dataset.set_epoch(1)
    steps = dataset.batches(2)
    next(iter(steps))
    state = tmp_path / "state.json"
    state.write_text(json.dumps(dataset.state_dict()))
    where = ["--rank", "1", "--world-size", "2", "--batch-size", "2"]
    settings = ["--seq-len", "32", "--seed", "5", "--epoch", "1", "--step", "1", "--version", "1"]

    def run(*words):
        return CliRunner().invoke(app, ["replay", lake, *where, *words])

    by_state = run("--state", str(state), "--json")
    assert by_state.exit_code == 0, by_state.output
    by_settings = run(*settings, "--json")
    assert "from sample 0 (recorded in the state)" in by_state.stdout
    assert by_state.stdout.replace("recorded in the state", "assumed") == by_settings.stdout
    rows = json.loads(by_state.stdout)["rows"]
    assert [row["sample"] for row in rows] == dataset.step_samples(1, 2)
    shown = run(*settings, "--tokenizer", str(tokenizer))
    assert f"row 0 (sample {rows[0]['sample']})" in shown.stdout
    assert (
        "order       of the plan, in batches of 2 on 2 ranks from sample 0 (assumed)"
        in shown.stdout
    )
    first = rows[0]["passages"][0]["span"]
    assert f"{first['source']} row {first['row']} (id {first['id']})" in shown.stdout
    assert run().exit_code == 2
    assert Table.open(f"{lake}/tokens").version == 1
