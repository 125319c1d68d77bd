"""Real trainers on two ranks: every window comes once in an epoch, and resuming continues exactly."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Shard, TokenDataset
from etl.loader.replay import read_state, replay
from tests.helpers.rank_processes import run_ranks
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, make_lake
from tests.helpers.trainer_recipes import forget_accelerate

accelerate = pytest.importorskip("accelerate", reason="make test-trainers installs accelerate")
transformers = pytest.importorskip("transformers", reason="make test-trainers installs it")
lightning = pytest.importorskip("pytorch_lightning", reason="make test-trainers installs it")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the libraries
    pytest.mark.slow,  # by their imports
]


def open_dataset(lake, **options):
    return TokenDataset(lake, seq_len=7, shuffle=MIXED, **options)


def windows(lake, epoch=0):
    return [tuple(row[:-1]) for row in expected_rows(open_dataset(lake), SMALL, epoch)]


def steps_of(ranks):
    """Return the rows of each step of all ranks."""
    return [
        [tuple(row) for rank in ranks for row in rank[step]] for step in range(max(map(len, ranks)))
    ]


@pytest.fixture(scope="module")
def lake(new_place):
    return make_lake(new_place("trainers"), SMALL)


def accelerate_epochs(lake, options, workers, batch_size):
    from accelerate import Accelerator, DataLoaderConfiguration

    dataset = open_dataset(lake)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
    loader = accelerator.prepare(DataLoader(dataset, batch_size=batch_size, num_workers=workers))
    epochs = [[batch["input_ids"].tolist() for batch in loader] for _ in range(2)]
    named = [replayed_epoch(lake, epoch, len(epochs[epoch])) for epoch in range(2)]
    try:
        dataset.state_dict()
    except LoaderError as error:
        return epochs, named, str(error)
    return epochs, named, ""


def replayed_epoch(lake, epoch, steps, batch_size=3):
    """Return the batches of this rank in an epoch that replay names."""
    dataset = open_dataset(lake)
    dataset.set_epoch(epoch)
    whole = [list(window) for window in windows(lake, epoch)]
    batches = [replay(dataset, batch_size=batch_size, step=step) for step in range(steps)]
    return [[whole[row.sample] for row in batch.rows] for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},  # rank 0 reads and dispatches
        {"dispatch_batches": False},
        {"split_batches": True},
        {"dispatch_batches": False, "split_batches": True},
    ],
)
def test_accelerate_delivers_each_window_once(lake, tmp_path, options, workers):
    batch_size = 6 if "split_batches" in options else 3
    results = run_ranks(accelerate_epochs, lake, options, workers, batch_size, folder=tmp_path)
    for epoch in (0, 1):
        steps = steps_of([epochs[epoch] for epochs, _, _ in results])
        whole = windows(lake, epoch)
        # Split batches have half as many rows on each rank, and an epoch has an even number of them.
        expected = [sorted(whole[i : i + 6]) for i in range(0, 36, 6)]
        assert [sorted(step) for step in steps] == expected
    assert all(named == epochs for epochs, named, _ in results)
    assert all("reads ahead" in message for *_, message in results)


def stateful_message(lake, options, workers):
    from accelerate import Accelerator, DataLoaderConfiguration

    config = DataLoaderConfiguration(use_stateful_dataloader=True, **options)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    try:
        dataset = open_dataset(lake)
        next(iter(accelerator.prepare(DataLoader(dataset, batch_size=4, num_workers=workers))))
    except LoaderError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("options", [{}, {"dispatch_batches": False}, {"split_batches": True}])
def test_a_stateful_loader_of_accelerate_is_refused(lake, tmp_path, options, world_size, workers):
    """Its checkpoint lacks the state of the dataset, and its epochs begin at 0 after a resume."""
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    messages = run_ranks(
        stateful_message, lake, options, workers, folder=tmp_path, world_size=world_size
    )
    for message in messages:
        assert "use_stateful_dataloader leaves out the state" in message
        assert "accelerator.register_for_checkpointing(dataset)" in message


def registered_epochs(lake, folder, steps):
    """Save after some steps, and resume with other objects; return the batches before and after."""
    from accelerate import Accelerator

    seen = []
    for resume in (False, True):
        accelerator = Accelerator(cpu=True)
        dataset = open_dataset(lake)
        accelerator.register_for_checkpointing(dataset)
        if resume:
            accelerator.wait_for_everyone()  # the first rank has saved the state
            accelerator.load_state(folder)
        for _ in range(2):
            for batch in dataset.batches(3):
                seen.append(batch["input_ids"].tolist())
                if len(seen) == steps:
                    accelerator.save_state(folder)
                    break
            if len(seen) == steps:
                break
    return seen


@pytest.mark.parametrize("steps", [2, 8])
def test_a_registered_dataset_resumes_in_its_epoch(lake, tmp_path, steps):
    """Of six steps on two ranks; the next passes are the rest of this epoch, and the next epoch."""
    folder = str(tmp_path / "checkpoint")
    results = run_ranks(registered_epochs, lake, folder, steps, folder=tmp_path)
    epochs = range(steps // 6 + 2)
    whole = [sorted(windows(lake, epoch)[i : i + 6]) for epoch in epochs for i in range(0, 36, 6)]
    assert [sorted(step) for step in steps_of(results)] == whole


def unprepared_messages(lake):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    dataset, sharded = open_dataset(lake), open_dataset(lake, shard=Shard(rank=0, world_size=1))
    lengths = open_dataset(lake, format=Format(cu_seqlens=True))
    messages = []
    for loader in (
        DataLoader(dataset, batch_size=3),
        accelerator.prepare(DataLoader(dataset.batches(3), batch_size=None)),
        accelerator.prepare(DataLoader(dataset.evaluation(3), batch_size=None)),
        accelerator.prepare(DataLoader(sharded, batch_size=3)),
        accelerator.prepare(DataLoader(lengths, batch_size=3)),
    ):
        try:
            # In a dispatcher only rank 0 reads; the other would wait for it.
            getattr(loader, "base_dataloader", loader)
            if hasattr(loader, "begin"):
                loader.begin()
            next(iter(getattr(loader, "base_dataloader", loader)))
        except LoaderError as error:
            messages.append(str(error))
    rows = [batch["input_ids"].tolist() for batch in accelerator.prepare(dataset.batches(3))]
    return messages, rows


def test_what_would_be_divided_twice_is_refused(lake, tmp_path):
    (messages, first), (_, second) = run_ranks(unprepared_messages, lake, folder=tmp_path)
    assert len(messages) == 5
    for message, part in zip(
        messages,
        ("has not prepared the loader", "again", "again", "has a Shard", "cannot be stacked"),
        strict=True,
    ):
        assert part in message
    assert sorted(row for step in steps_of([first, second]) for row in step) == sorted(
        windows(lake)[:36]
    )


class Model(torch.nn.Module):
    """A model that records the windows that it is given, also for the Trainer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.seen = []

    def forward(self, input_ids, labels, **_):
        self.seen.append(input_ids.tolist())
        return {"loss": (self.weight * input_ids.sum() * 1e-9).sum()}


def train_with_hugging_face(lake, folder, epochs, resume, options):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=3,
        num_train_epochs=epochs,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="steps",
        save_steps=4,
        dataloader_pin_memory=False,
        **options,
    )
    model = Model()
    trainer = Trainer(model=model, args=arguments, train_dataset=open_dataset(lake))
    trainer.train(resume_from_checkpoint=resume)
    return model.seen, trainer.state.global_step


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dataloader_num_workers": 2},
        {"accelerator_config": {"dispatch_batches": False}, "dataloader_num_workers": 1},
    ],
)
def test_the_hugging_face_trainer_delivers_each_window_once(lake, tmp_path, options):
    folder = str(tmp_path / "out")
    arguments = (lake, folder, 2, None, options)
    results = run_ranks(train_with_hugging_face, *arguments, folder=tmp_path)
    whole = [sorted(windows(lake, epoch)[i : i + 6]) for epoch in (0, 1) for i in range(0, 36, 6)]
    assert [sorted(step) for step in steps_of([seen for seen, _ in results])] == whole
    assert {steps for _, steps in results} == {12}
    for rank, (seen, _) in enumerate(results):
        dataset = open_dataset(lake, shard=Shard(rank=rank, world_size=2))
        for step, rows in enumerate(seen):
            dataset.set_epoch(step // 6)
            order = windows(lake, step // 6)
            named = replay(dataset, batch_size=3, step=step % 6).rows
            assert [order[row.sample] for row in named] == [tuple(row) for row in rows]
    (tmp_path / "rendezvous").unlink(missing_ok=True)
    resumed = run_ranks(
        train_with_hugging_face,
        lake,
        folder,
        2,
        f"{folder}/checkpoint-8",
        options,
        folder=tmp_path,
    )
    assert [sorted(step) for step in steps_of([seen for seen, _ in resumed])] == whole[8:]


@pytest.fixture
def _forgotten_state():
    yield
    forget_accelerate()


@pytest.mark.usefixtures("_forgotten_state")
def test_the_hugging_face_trainer_does_not_batch_an_evaluation_again(lake, tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], dataloader_pin_memory=False
    )
    evaluation = open_dataset(lake).evaluation(3)
    trainer = Trainer(model=Model(), args=arguments, eval_dataset=evaluation)
    with pytest.raises(LoaderError, match=r"again(.|\n)*get_eval_dataloader"):
        trainer.evaluate()


class LightningModel(lightning.LightningModule):  # type: ignore[name-defined, misc]
    """A Lightning module that records the windows that it is given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.seen = []

    def training_step(self, batch, _):
        self.seen.append(batch["input_ids"].tolist())
        return (self.weight * batch["input_ids"].sum() * 1e-9).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train_with_lightning(dataset, folder, *, epochs, workers, checkpoint=None, save_steps=None):
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(
        dataset.batches(3), batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    saver = lightning.callbacks.ModelCheckpoint(
        folder, filename="{step}", every_n_train_steps=save_steps, save_top_k=-1
    )
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saver],
    )
    model = LightningModel()
    trainer.fit(model, loader, ckpt_path=checkpoint, weights_only=False)
    return [tuple(row) for batch in model.seen for row in batch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", [5, 12, 17])
def test_lightning_resumes_and_reads_every_later_epoch_in_full(lake, tmp_path, step, workers):
    """From the middle of an epoch of 12 steps, and from its end."""
    whole = [window for epoch in range(4) for window in windows(lake, epoch)[:36]]
    before = train_with_lightning(
        open_dataset(lake), tmp_path, epochs=2, workers=workers, save_steps=step
    )
    assert before == whole[:72]
    checkpoint = str(tmp_path / f"step={step}.ckpt")
    resumed = train_with_lightning(
        open_dataset(lake), tmp_path, epochs=4, workers=workers, checkpoint=checkpoint
    )
    assert resumed == whole[step * 3 :]
    assert read_state(checkpoint)["consumed"] == step % 12 * 3 or 36


class SavingModel(LightningModel):
    """A model that writes the windows of its rank to a file."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_train_end(self):
        path = Path(self.folder, f"{self.global_rank}.json")
        path.write_text(json.dumps(self.seen))


@pytest.mark.parametrize("is_batched", [False, True])
def test_lightning_starts_ranks_after_the_dataset_was_built(lake, tmp_path, is_batched):
    dataset = open_dataset(lake)
    loader = DataLoader(dataset, batch_size=3)
    if is_batched:
        loader = DataLoader(dataset.batches(3), batch_size=None, num_workers=2)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=2,
        strategy="ddp_fork",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SavingModel(str(tmp_path)), loader)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    whole = [sorted(windows(lake, e)[i : i + 6]) for e in (0, 1) for i in range(0, 36, 6)]
    assert [sorted(step) for step in steps_of(ranks)] == whole


def tiny_models():
    """Return a Llama and a GPT-2 with random weights, for the 266 tokens of the table."""
    torch.manual_seed(1)
    small = {"vocab_size": 266, "attn_implementation": "eager", "use_cache": False}
    llama = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        **small,
    )
    gpt2 = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **small)
    models = transformers.LlamaForCausalLM(llama), transformers.GPT2LMHeadModel(gpt2)
    return [model.eval() for model in models]


def loss_by_hand(model, rows):
    """Return the mean loss of the next tokens inside the given sequences, each alone in a batch."""
    losses = []
    for row in rows:
        tokens = torch.tensor([row])
        logits = model(input_ids=tokens).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none"))
    return torch.cat(losses).mean().item()


@pytest.mark.parametrize("boundaries", [False, True])
def test_models_of_transformers_learn_the_next_token(lake, boundaries):
    dataset = TokenDataset(
        lake, seq_len=40, shuffle=MIXED, format=Format.huggingface(boundaries=boundaries)
    )
    batch = next(iter(dataset.batches(3)))
    names = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_ids"}
    assert batch.keys() - {"input_ids", "labels"} == (names if boundaries else set())
    rows = batch["input_ids"].tolist()
    if boundaries:
        ends = batch["cu_seq_lens_q"]
        assert ends.dtype == torch.int32
        assert type(batch["max_length_k"]) is int
        assert batch["max_length_k"] == max(ends.diff())
        flat = batch["input_ids"].flatten()
        rows = [part.tolist() for part in flat.tensor_split(ends[1:-1].long())]
        assert len(rows) > 3
    for model in tiny_models():
        with torch.no_grad():
            loss = model(**batch).loss.item()
            assert loss == pytest.approx(loss_by_hand(model, rows), abs=1e-5)
            wrong = next(iter(TokenDataset(lake, seq_len=40, shuffle=MIXED).batches(3)))
            assert abs(model(**wrong).loss.item() - loss) > 1e-4


def test_best_fit_windows_fit_models_of_transformers(lake):
    wanted = Format.huggingface(pack="best_fit")
    batch = next(iter(TokenDataset(lake, seq_len=30, shuffle=MIXED, format=wanted).batches(8)))
    ends = batch["cu_seq_lens_q"][1:-1].long()
    parts = zip(
        *(batch[n].flatten().tensor_split(ends) for n in ("input_ids", "labels")), strict=True
    )
    rows = [tokens.tolist() for tokens, labels in parts if (labels >= 0).any()]
    assert sum(map(len, rows)) < batch["input_ids"].numel()  # without the padding
    for model in tiny_models():
        with torch.no_grad():
            loss = model(**batch).loss.item()
            assert loss == pytest.approx(loss_by_hand(model, rows), abs=1e-5)


def test_padded_documents_fit_models_of_transformers(lake):
    dataset = TokenDataset(lake, seq_len=30, format=Format.huggingface(pad_id=0))
    batch = next(iter(dataset.batches(4)))
    sizes = batch["attention_mask"].sum(1).tolist()
    rows = [row[:n] for row, n in zip(batch["input_ids"].tolist(), sizes, strict=True)]
    del batch["num_tokens"]
    for model in tiny_models():
        with torch.no_grad():
            expected = loss_by_hand(model, [row for row in rows if len(row) > 1])
            assert model(**batch).loss.item() == pytest.approx(expected, abs=1e-5)
