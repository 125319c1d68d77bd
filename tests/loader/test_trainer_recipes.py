"""The recipes of docs/guides/trainers.md, run as they are: each trains on planned windows, and resumes.

Their programs are launched as the page says, in an empty folder.
"""

import shlex
from itertools import islice
from pathlib import Path

import pytest
import torch

from etl.loader import TokenDataset
from etl.loader.state import find_state
from tests.helpers.code_blocks import ROOT, Block, blocks, run_commands, write_file
from tests.helpers.rank_processes import run_ranks
from tests.helpers.token_tables import SMALL, expected_rows, make_lake
from tests.helpers.trainer_recipes import PAGE, forget_accelerate, recipe

SEQ_LEN = 7
BLOCKS = blocks(PAGE)
LAUNCHES = [
    line.removeprefix("$ ")
    for block in BLOCKS
    for line in block.text.splitlines()
    if block.language == "console" and line.startswith("$ ")
]

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the libraries
    pytest.mark.slow,  # by their imports
]


@pytest.fixture(autouse=True)
def _forgotten_state():
    yield
    forget_accelerate()


def windows(lake, epochs=2, step=8):
    """Return the windows of some epochs in order, each epoch without an incomplete step."""
    dataset = TokenDataset(lake, seq_len=SEQ_LEN)
    kept = dataset.num_samples - dataset.num_samples % step
    return [
        tuple(row[:-1]) for e in range(epochs) for row in expected_rows(dataset, SMALL, e)[:kept]
    ]


class Model(torch.nn.Module):
    """A language model of two layers, which records the windows that it is given."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(266, 8)
        self.head = torch.nn.Linear(8, 266)
        self.seen = []

    def forward(self, input_ids):
        self.seen += map(tuple, input_ids.tolist())
        return self.head(self.embed(input_ids))


def seeded_model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture(scope="module")
def lake(new_place):
    return make_lake(new_place("recipes"), SMALL)


def run_training(heading, lake, target, steps):
    """Train on this rank, and return the windows that it was given and the final weights."""
    model = seeded_model()
    recipe(heading)["train"](lake, model, target, seq_len=SEQ_LEN, steps=steps, device="cpu")
    weights = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in model.state_dict().items()
    }
    return model.seen, {name: value.tolist() for name, value in weights.items()}


def steps_of(ranks):
    """Return the windows of each step, over all ranks, sorted."""
    seen = [seen for seen, _ in ranks]
    size = 4
    return [
        sorted(row for rank in seen for row in rank[i : i + size])
        for i in range(0, len(seen[0]), size)
    ]


@pytest.mark.parametrize("heading", ["DistributedDataParallel", "FSDP2"])
def test_two_ranks_resume_from_their_own_checkpoint(lake, tmp_path, heading):
    whole = windows(lake)
    expected = [sorted(whole[i : i + 8]) for i in range(0, len(whole), 8)]
    target = tmp_path / ("checkpoint.pt" if heading != "FSDP2" else "checkpoint")

    def train(steps, folder, path=target):
        (tmp_path / folder).mkdir()
        return run_ranks(run_training, heading, lake, path, steps, folder=tmp_path / folder)

    first = train(3, "a")
    assert steps_of(first) == expected[:3]
    # Beyond the end of the first epoch. DDP counts all steps, FSDP2's recipe those since the checkpoint.
    more = 7 if heading == "DistributedDataParallel" else 4
    second = train(more, "b")
    assert steps_of(second) == expected[3:7]
    uninterrupted = train(7, "c", tmp_path / "other")
    assert uninterrupted[0][1] == second[0][1] == second[1][1]


def test_a_checkpoint_of_two_ranks_continues_on_one(lake, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    arguments = ("FSDP2", lake, tmp_path / "checkpoint")
    run_ranks(run_training, *arguments, 3, folder=tmp_path / "a")
    ((seen, _),) = run_ranks(run_training, *arguments, 2, folder=tmp_path / "b", world_size=1)
    assert seen == windows(lake)[24:32]


def tiny_llama(transformers):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=266,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        use_cache=False,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config)
    model.seen = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: module.seen.extend(map(tuple, kwargs["input_ids"].tolist())),
        with_kwargs=True,
    )
    return model


def run_trl(lake, folder, steps):
    import transformers
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
    )
    model = tiny_llama(transformers)
    options = {"use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}
    options |= {"save_strategy": "no", "dataloader_pin_memory": False, "seq_len": SEQ_LEN}
    train = recipe("SFTTrainer of trl")["train"]
    train(lake, model, tokenizer, str(folder), steps=steps, **options)
    return model.seen


@pytest.mark.parametrize("ranks", [1, 2])
def test_trl_trains_on_each_window_once(lake, tmp_path, ranks):
    """In 9 steps on one rank, and in 4 on two, which divide the four files after token 118."""
    # Before the tests that train in this process, which forked ranks would inherit.
    trl = pytest.importorskip("trl", reason="make test-trainers installs it")
    assert trl.SFTTrainer  # imported once for all ranks
    steps = 36 // 4 // ranks
    results = run_ranks(run_trl, lake, tmp_path, steps, folder=tmp_path, world_size=ranks)
    for seen, first in zip(results, (0, 118)[:ranks], strict=True):
        starts = range(first, first + 4 * steps * SEQ_LEN, SEQ_LEN)
        assert seen == [tuple(range(start, start + SEQ_LEN)) for start in starts]


def test_hugging_face_trainer(lake, tmp_path):
    transformers = pytest.importorskip("transformers", reason="make test-trainers installs it")
    pytest.importorskip("accelerate", reason="make test-trainers installs it")
    model = tiny_llama(transformers)
    options = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "seq_len": SEQ_LEN}
    options |= {"save_strategy": "no", "dataloader_pin_memory": False, "epochs": 1}
    recipe("Hugging Face Trainer")["train"](lake, model, str(tmp_path), **options)
    dataset = TokenDataset(lake, seq_len=SEQ_LEN)
    assert model.seen == [tuple(row[:-1]) for row in expected_rows(dataset, SMALL)]


def test_accelerate(lake, tmp_path):
    transformers = pytest.importorskip("transformers", reason="make test-trainers installs it")
    pytest.importorskip("accelerate", reason="make test-trainers installs it")
    train = recipe("Accelerate")["train"]
    first, second = tiny_llama(transformers), tiny_llama(transformers)
    train(lake, first, str(tmp_path), seq_len=SEQ_LEN, steps=3, cpu=True)
    train(lake, second, str(tmp_path), seq_len=SEQ_LEN, steps=2, resume=True, cpu=True)
    assert [*first.seen, *second.seen] == windows(lake, step=4)[:20]


@pytest.fixture
def fit_with_lightning(lake, tmp_path):
    """Return a function that trains a new model by the recipe, and returns the windows it was given."""
    lightning = pytest.importorskip("pytorch_lightning", reason="make test-trainers installs it")

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self):
            super().__init__()
            self.model = seeded_model()

        def training_step(self, batch, _):
            logits = self.model(batch["input_ids"])
            return torch.nn.functional.cross_entropy(logits.mT, batch["labels"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(save_steps=None, **options):
        callbacks = []
        if save_steps:
            checkpoints = lightning.callbacks.ModelCheckpoint(
                tmp_path, filename="{step}", every_n_train_steps=save_steps, save_top_k=-1
            )
            callbacks = [checkpoints]
        module = Module()
        recipe("Lightning")["train"](
            lake,
            module,
            seq_len=SEQ_LEN,
            callbacks=callbacks,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=bool(save_steps),
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            **options,
        )
        return module.model.seen

    return fit


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning(lake, tmp_path, fit_with_lightning, workers):
    options = {"max_epochs": 3, "workers": workers}
    first = fit_with_lightning(save_steps=5, **options)
    assert first == windows(lake, 3, step=4)
    for steps in (5, 10, 15):
        checkpoint = str(tmp_path / f"step={steps}.ckpt")
        assert fit_with_lightning(checkpoint=checkpoint, **options) == first[4 * steps :]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("limit", [1, 4, 9])
def test_lightning_continues_epochs_that_it_cuts_short(lake, fit_with_lightning, workers, limit):
    options = {"max_epochs": 5, "workers": workers, "limit_train_batches": limit}
    seen = fit_with_lightning(**options)
    assert seen == windows(lake, 5, step=4)[: len(seen)]
    # An epoch of Lightning ends with the limit or with the epoch of the dataset.
    assert len(seen) >= 4 * min(5 * limit, 17)


def test_stateful_data_loader(lake):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    open_loader = recipe("StatefulDataLoader of torchdata")["open_loader"]
    loader = open_loader(lake, seq_len=SEQ_LEN, workers=2)
    batches = [batch["input_ids"].tolist() for batch in islice(loader, 4)]
    state = loader.state_dict()
    assert find_state(state)["consumed"] == 16
    resumed = open_loader(lake, seq_len=SEQ_LEN, workers=2, state=state)
    batches += [batch["input_ids"].tolist() for batch in resumed]
    assert [tuple(row) for batch in batches for row in batch] == windows(lake, 1, step=4)


def run_torchtitan(lake, folder):
    """Do what torchtitan's trainer does with a data loader and its checkpoint; return the batches."""
    import torch.distributed.checkpoint as dcp

    loader_class = recipe("torchtitan")["TokenLoader"]
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def build():
        return loader_class.Config(lake=lake).build(
            dp_world_size=world_size,
            dp_rank=rank,
            tokenizer=None,
            seq_len=SEQ_LEN,
            local_batch_size=4,
            snapshot_every_n_steps=1,
        )

    loader = build()
    seen: list[tuple[int, ...]] = []
    batches = iter(loader)
    for step in range(7):
        if step == 3:
            dcp.save({"dataloader": loader}, checkpoint_id=folder)
            loader = build()
            dcp.load({"dataloader": loader}, checkpoint_id=folder)
            batches = iter(loader)
        inputs, labels = next(batches)
        assert inputs["positions"].shape == labels.shape == inputs["input"].shape
        seen += map(tuple, inputs["input"].tolist())
    return seen, None


def test_torchtitan(lake, tmp_path):
    pytest.importorskip("torchtitan.components.dataloader", reason="needs torchtitan")
    ranks = run_ranks(run_torchtitan, lake, tmp_path / "checkpoint", folder=tmp_path)
    whole = windows(lake)
    assert steps_of(ranks) == [sorted(whole[i : i + 8]) for i in range(0, 56, 8)]


def test_documents_for_datasets(lake):
    pytest.importorskip("datasets", reason="make test-trainers installs it")
    examples = [*recipe("datasets.IterableDataset")["open_documents"](lake)]
    assert sum(len(example["input_ids"]) for example in examples) == 266


def test_losses_of_documents(lake):
    log_losses = recipe("Losses of documents")["log_losses"]
    log_losses(lake, seeded_model(), seq_len=SEQ_LEN, run="proxy")
    assert len([*(Path(lake) / "loss_logs" / "proxy").glob("*.parquet")]) == 1


def program_of(launch: str) -> Block | None:
    return next((block for block in BLOCKS if block.file in shlex.split(launch)), None)


def test_programs_start_in_an_empty_folder(tmp_path, monkeypatch):
    for library in ("accelerate", "datasets", "pytorch_lightning", "transformers", "trl"):
        pytest.importorskip(library, reason="make test-trainers installs it")
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block.file is not None:
            write_file(block, block.file)
        elif block.language == "console":
            run_commands(block.text, ROOT)


def test_every_trainer_has_a_program_and_a_launch_line():
    page = PAGE.read_text("utf-8")
    launched = [block for launch in LAUNCHES if (block := program_of(launch))]
    assert len(launched) == 11
    assert all("if __name__ ==" in block.text for block in launched)
    assert "-m torchtitan.train --module titan --config llama3_lake" in page
