"""The recipes for evaluations in docs/guides/trainers.md: each window once with weight 1 on 1 to 3 ranks."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from etl.loader import Format, TokenDataset
from tests.helpers.rank_processes import run_ranks
from tests.helpers.token_tables import SMALL, documents, expected_rows, make_lake
from tests.helpers.trainer_recipes import forget_accelerate, recipe

SEQ_LEN = 7
SETS = {"web": SMALL, "code": [[[10, 8, 6]]]}
"""Sets of 37 and of 3 windows: fewer than two ranks have rows."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the libraries
    pytest.mark.slow,  # by their imports
    pytest.mark.parametrize("world_size", [1, 2, 3]),
]


@pytest.fixture(autouse=True)
def _forgotten_state():
    yield
    forget_accelerate()


@pytest.fixture(scope="module")
def lakes(new_place):
    return {name: make_lake(new_place(name), shape) for name, shape in SETS.items()}


def windows(lakes, name):
    return expected_rows(TokenDataset(lakes[name], seq_len=SEQ_LEN), SETS[name])


class Model(torch.nn.Module):
    """A language model of two layers, which records the windows that it is given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(266, 8)
        self.head = torch.nn.Linear(8, 266)
        self.seen = []

    def forward(self, input_ids):
        self.seen += map(tuple, input_ids.tolist())
        return self.head(self.embed(input_ids))


def naive_loss(rows, ignored=frozenset()):
    """Return the mean loss of the tokens after the first in each row, but for some, row by row."""
    model, losses = Model(), []
    for row in rows:
        labels = [-100 if token in ignored else token for token in row[1:]]
        with torch.no_grad():
            logits = model(torch.tensor([row[:-1]]))[0]
        each = cross_entropy(logits, torch.tensor(labels), reduction="none").tolist()
        losses += [loss for loss, label in zip(each, labels, strict=True) if label != -100]
    return math.fsum(losses) / len(losses)


def check(lakes, ranks, *, is_shifted=True):
    """Compare the losses of each rank, and the windows that all have seen, with those of the plan."""
    rows = {name: windows(lakes, name) for name in SETS}
    expected = {name: naive_loss(rows[name]) for name in SETS}
    if not is_shifted:
        starts = {name: {d.tokens.start for d in documents(SETS[name])} for name in SETS}
        expected = {name: naive_loss([r[:-1] for r in rows[name]], starts[name]) for name in SETS}
    for losses, _ in ranks:
        assert losses == pytest.approx(expected, rel=1e-6)
    counts = Counter(tuple(row) for _, seen in ranks for row in seen)
    for name in SETS:
        *others, last = [tuple(row[:-1]) for row in rows[name]]
        assert all(counts.pop(row) == 1 for row in others)
        assert counts.pop(last) >= 1  # padding copies it
    assert not counts


def evaluate_in_a_loop(lakes):
    names, model = recipe("Evaluation in a loop"), Model()
    sets = names["open_sets"](lakes, seq_len=SEQ_LEN, device="cpu")
    return {name: names["evaluate"](model, each) for name, each in sets.items()}, model.seen


def test_a_loop(lakes, tmp_path, world_size):
    ranks = run_ranks(evaluate_in_a_loop, lakes, folder=tmp_path, world_size=world_size)
    check(lakes, ranks)


class HuggingFaceModel(Model):
    """The same model, called as those of the library transformers, which shift the labels."""

    def forward(self, input_ids, labels=None, position_ids=None, **lengths):
        from transformers.modeling_outputs import CausalLMOutput

        assert {*lengths} <= {
            "cu_seq_lens_q",
            "cu_seq_lens_k",
            "max_length_q",
            "max_length_k",
            "num_items_in_batch",
        }
        logits = super().forward(input_ids)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits[:, :-1].mT, labels[:, 1:])
        return CausalLMOutput(loss=loss, logits=logits)


def open_sets(lakes):
    marks = Format.huggingface()
    return {
        name: TokenDataset(lake, seq_len=SEQ_LEN, format=marks).evaluation(4)
        for name, lake in lakes.items()
    }


def evaluate_with_accelerate(lakes, evaluate):
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), HuggingFaceModel()
    prepared = accelerator.prepare(model)
    losses = {
        name: evaluate(accelerator, prepared, evaluation)
        for name, evaluation in open_sets(lakes).items()
    }
    return losses, model.seen


def test_accelerate(lakes, tmp_path, world_size):
    pytest.importorskip("transformers", reason="make test-trainers installs it")
    pytest.importorskip("accelerate", reason="make test-trainers installs it")
    evaluate = recipe("Evaluation with Accelerate")["evaluate"]
    ranks = run_ranks(
        evaluate_with_accelerate, lakes, evaluate, folder=tmp_path, world_size=world_size
    )
    check(lakes, ranks, is_shifted=False)


def evaluate_with_hugging_face(lakes, names, folder):
    """Evaluate after each step of a training that changes nothing, the last step among them."""
    from transformers import TrainingArguments

    model = HuggingFaceModel()
    rows = [{"input_ids": torch.arange(7), "labels": torch.arange(7)}] * 5  # not divisible
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=2,
        num_train_epochs=1,
        learning_rate=0.0,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = names["ExactTrainer"](
        model=model,
        args=arguments,
        train_dataset=rows,
        eval_dataset=open_sets(lakes),
        compute_metrics=names["mean_loss"],
    )
    trainer.train()
    found = [
        {name: log[f"eval_{name}_loss"] for name in SETS if f"eval_{name}_loss" in log}
        for log in trainer.state.log_history
    ]
    model.seen.clear()
    metrics = trainer.evaluate()
    losses = {name: metrics[f"eval_{name}_loss"] for name in SETS}
    logged = {name: {round(e[name], 9) for e in found if name in e} for name in SETS}
    assert logged == {name: {round(loss, 9)} for name, loss in losses.items()}
    return losses, model.seen


def test_the_hugging_face_trainer(lakes, tmp_path, world_size):
    pytest.importorskip("transformers", reason="make test-trainers installs it")
    pytest.importorskip("accelerate", reason="make test-trainers installs it")
    names = recipe("Evaluation by the Hugging Face Trainer")  # imported once, before the ranks fork
    arguments = (lakes, names, str(tmp_path / "out"))
    ranks = run_ranks(
        evaluate_with_hugging_face, *arguments, folder=tmp_path, world_size=world_size
    )
    check(lakes, ranks, is_shifted=False)


def test_lightning(lakes, tmp_path, world_size):
    lightning = pytest.importorskip("pytorch_lightning", reason="make test-trainers installs it")
    base = recipe("Evaluation in Lightning")["EvaluatedModule"]

    class Module(base):  # type: ignore[misc, valid-type]
        def __init__(self):
            super().__init__()
            self.model = Model()
            self.results = []

        def forward(self, input_ids):
            return self.model(input_ids)

        def training_step(self, batch, _):
            return cross_entropy(self(batch["input_ids"]).mT, batch["labels"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def on_validation_epoch_start(self):
            super().on_validation_epoch_start()
            self.model.seen.clear()

        def on_validation_end(self):
            values = {name: self.trainer.callback_metrics[f"val_loss_{name}"] for name in SETS}
            self.results.append({name: value.item() for name, value in values.items()})
            path = Path(tmp_path, f"{self.global_rank}.json")
            path.write_text(json.dumps([self.results, self.model.seen]))

    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=world_size,
        strategy="ddp_fork" if world_size > 1 else "auto",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train = TokenDataset(lakes["web"], seq_len=SEQ_LEN)
    sets = {name: TokenDataset(lake, seq_len=SEQ_LEN).evaluation(4) for name, lake in lakes.items()}
    trainer.fit(Module(), train.batches(4), val_dataloaders=sets)
    ranks = [json.loads(Path(tmp_path, f"{rank}.json").read_text()) for rank in range(world_size)]
    assert {len(results) for results, _ in ranks} == {3}  # of the sanity check, and two epochs
    for number in (1, 2):
        check(lakes, [(results[number], seen) for results, seen in ranks])
