"""The attention of docs/guides/trainers.md, compared with dense masks that are made token by token."""

from collections import Counter
from functools import partial

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from etl.loader import Format, TokenDataset
from tests.helpers.rank_processes import run_ranks
from tests.helpers.token_tables import MIXED, SMALL, documents, make_lake
from tests.helpers.trainer_recipes import recipe

PAD = 999
SEQ_LEN = 12
FORMATS = [{}, {"pack": "best_fit", "pad_id": PAD}]
BEGINS = {doc.tokens.start for doc in documents(SMALL) if doc.tokens}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # of torch's compiler


@pytest.fixture(scope="module")
def lake(new_place):
    return make_lake(new_place("attention"), SMALL)


def dense_mask(input_ids):
    """Return the mask (B, 1, S, S) of a batch whose tokens are their own positions in the table."""
    mask = torch.zeros(len(input_ids), 1, *2 * input_ids.shape[1:], dtype=torch.bool)
    for row, tokens in enumerate(input_ids.tolist()):
        start = 0
        for place, token in enumerate(tokens):
            continues = token == tokens[place - 1] + 1 and token not in BEGINS
            if place and not continues and not token == tokens[place - 1] == PAD:
                start = place
            mask[row, 0, place, start : place + 1] = True
    return mask


def first_batch(lake, **options):
    dataset = TokenDataset(lake, seq_len=30, shuffle=MIXED, format=Format(**options))
    batch = next(iter(dataset.batches(4)))
    assert batch["input_ids"].numel() == 120
    torch.manual_seed(0)
    heads = q, k, v = torch.randn(3, 4, 2, 30, 16).unbind()  # each (B, H, S, D)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=dense_mask(batch["input_ids"]))
    return batch, heads, expected


@pytest.mark.parametrize("options", FORMATS)
def test_flex_attention_sees_what_a_dense_mask_shows(lake, options):
    batch, heads, expected = first_batch(lake, document_ids=True, **options)
    names = recipe("FlexAttention")
    is_visible = names["see_own_document"](batch["document_ids"])
    mask = create_block_mask(is_visible, 4, None, 30, 30, device="cpu")
    q, k, v = heads
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=mask), expected)
    torch.testing.assert_close(names["attention"](batch["document_ids"])(*heads), expected)


def attend_by_lengths(q, k, v, starts, key_starts, longest, *_, **options):
    """Do what flash attention's kernel is documented to do, which torch has for GPUs only."""
    assert starts.tolist() == key_starts.tolist()
    assert (options["window_size_left"], options["window_size_right"]) == (-1, 0)
    outputs = []
    for parts in zip(*(x.split(starts.diff().tolist()) for x in (q, k, v)), strict=True):
        assert len(parts[0]) <= longest
        heads = [x.transpose(0, 1) for x in parts]
        output = scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        outputs.append(output.transpose(0, 1))
    empty = q.new_zeros(0)
    return torch.cat(outputs), empty, empty, empty, empty


@pytest.fixture
def _flash_attention_on_cpus():
    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", attend_by_lengths, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("_flash_attention_on_cpus")
@pytest.mark.parametrize("options", FORMATS)
def test_attention_by_lengths_sees_what_a_dense_mask_shows(lake, options):
    batch, heads, expected = first_batch(lake, cu_seqlens=True, **options)
    attend = recipe("Variable-length attention")["attention"](batch)
    torch.testing.assert_close(attend(*heads), expected)


def new_model():
    torch.manual_seed(0)
    model = recipe("What the programs share")["DocumentModel"](SEQ_LEN, vocab_size=266, width=8)
    return model.double()  # AdamW turns differences of tiny gradients into large steps


def weights_of(model):
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def assert_trained_as_with_dense_masks(lake, weights, *, batch_size, steps):
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters())
    wanted = Format(position_ids=True, ignore_boundaries=True)
    dataset = TokenDataset(lake, seq_len=SEQ_LEN, format=wanted)
    for _, batch in zip(range(steps), dataset.batches(batch_size), strict=False):
        mask = dense_mask(batch["input_ids"])
        logits = model(
            batch["input_ids"],
            batch["position_ids"],
            partial(scaled_dot_product_attention, attn_mask=mask),
        )
        loss = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    before = weights_of(new_model())
    for name, value in weights_of(model).items():
        assert abs(value - before[name]).max() > 1e-4 * steps
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-9, msg=name)


def test_a_training_within_documents(lake):
    model = new_model()
    recipe("FlexAttention")["train"](lake, model, seq_len=SEQ_LEN, steps=4, device="cpu")
    assert_trained_as_with_dense_masks(lake, weights_of(model), batch_size=4, steps=4)


def train_context(lake, context_ranks):
    """Train on this rank; return the weights, and the tokens that it was given in each step."""
    model, seen = new_model(), []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].flatten().tolist()))
    options = {"seq_len": SEQ_LEN, "context_ranks": context_ranks, "steps": 2, "device": "cpu"}
    recipe("Context parallelism")["train"](lake, model, **options)
    return weights_of(model), seen


@pytest.mark.parametrize(("world_size", "context_ranks"), [(2, 2), (4, 2)])
def test_windows_are_divided_among_ranks(lake, tmp_path, world_size, context_ranks):
    ranks = run_ranks(train_context, lake, context_ranks, folder=tmp_path, world_size=world_size)
    batch_size = 4 * world_size // context_ranks
    plain = TokenDataset(lake, seq_len=SEQ_LEN).batches(batch_size)
    for step, batch in zip(range(2), plain, strict=False):
        given = Counter(token for _, seen in ranks for token in seen[step])
        assert given == Counter(batch["input_ids"].flatten().tolist())
    for weights, _ in ranks:
        assert_trained_as_with_dense_masks(lake, weights, batch_size=batch_size, steps=2)
