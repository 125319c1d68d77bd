"""Prefixes of documents: their tokens, labels, boundaries and columns, against lists of Python."""

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from etl.errors import LoaderError
from etl.loader import Format, Prefix, Schedule, Shard, TokenDataset, View
from etl.loader.batches.document_boundaries import IGNORED
from etl.loader.replay import replay
from tests.helpers.document_lakes import Doc, make_document_lake, tokens_of
from tests.helpers.struck_tables import strike
from tests.helpers.token_tables import MIXED

FIRST = 10  # documents before it are left out: their tokens could be those of prefixes
DOCS = [
    Doc(source=f"f{i % 3}", row=i, length=random.Random(i).choice([0, 1, 5, 20, 40]))
    for i in range(60)
]
EVERYTHING = Format(document_ids=True, position_ids=True, ignore_boundaries=True)


WHERE = f"row >= {FIRST}"


@pytest.fixture(scope="module", params=[WHERE, None], ids=["not selected", "struck"])
def where(request: pytest.FixtureRequest) -> str | None:
    """The condition that leaves out the first documents, unless they are struck."""
    condition: str | None = request.param
    return condition


@pytest.fixture(scope="module")
def doc_lake(tmp_path_factory: pytest.TempPathFactory, where: str | None) -> str:
    url = str(tmp_path_factory.mktemp("prefixes") / "lake")
    lake = make_document_lake(url, DOCS, shuffled=True)
    if where is None:
        for name in ("tokens", "tokens_shuffled"):
            strike(f"{lake}/{name}", {(doc.source, doc.row) for doc in DOCS[:FIRST]})
    return lake


@pytest.fixture
def view(tiny_tokenizer: Path, tmp_path: Path, where: str | None) -> View:
    prefix = Prefix(column="url", tokenizer=str(tiny_tokenizer), template="<{}> ", max_tokens=12)
    return View(where=where, columns=["row"], prefix=prefix, cache=str(tmp_path))


def until(view: View, sample: int) -> View:
    assert view.prefix is not None
    return View(**{**vars(view), "prefix": Prefix(**{**vars(view.prefix), "until_sample": sample})})


def prefix_of(doc: Doc, tokenizer: Tokenizer) -> list[int]:
    if doc.url is None:
        return []
    ids: list[int] = tokenizer.encode(f"<{doc.url}> ", add_special_tokens=False).ids
    return ids[:12]


Token = tuple[int, bool, int]  # its id, whether it belongs to a prefix, its document


def stream(tokenizer: Path) -> list[Token]:
    """Return all tokens in the order of the table."""
    loaded = Tokenizer.from_file(str(tokenizer))
    order = sorted(range(FIRST, len(DOCS)), key=lambda i: (DOCS[i].source, i))
    tokens: list[Token] = []
    for number in order:
        doc = DOCS[number]
        if doc.length:
            tokens += [(token, True, number) for token in prefix_of(doc, loaded)]
            tokens += [(token, False, number) for token in tokens_of(number, doc)]
    return tokens


def expected_row(window: list[Token], layout: Format, size: int = 17) -> dict[str, Any]:
    """Return the tensors of a window of S + 1 tokens, of which the last ones may be missing."""
    window = [*window, *[(0, True, -1)] * (size + 1 - len(window))]
    row: dict[str, Any] = {"input_ids": [token for token, _, _ in window[:-1]]}
    labels = []
    for before, (token, is_prefix, number) in pairwise(window):
        is_ignored = is_prefix or (layout.ignore_boundaries and before[2] != number)
        labels.append(IGNORED if is_ignored else token)
    if not layout.shifted_labels:
        labels = [IGNORED if is_prefix else token for token, is_prefix, _ in window[:-1]]
    row["labels"] = labels
    numbers = list(dict.fromkeys(number for _, _, number in window[:-1]))
    ids = [numbers.index(number) for _, _, number in window[:-1]]
    if layout.document_ids:
        row["document_ids"] = ids
        row["position_ids"] = [i - ids.index(id_) for i, id_ in enumerate(ids)]
    row["row"] = [DOCS[number].row for number in numbers if number >= 0]
    return row


@pytest.mark.parametrize(
    "layout",
    [Format(), EVERYTHING, Format(shifted_labels=False)],
    ids=["plain", "boundaries", "unshifted"],
)
@pytest.mark.parametrize("last", [None, 20], ids=["always", "until 20"])
def test_windows_have_prefixes_without_a_loss(doc_lake, tiny_tokenizer, view, layout, last):
    view = view if last is None else until(view, last)
    tokens = stream(tiny_tokenizer)
    dataset = TokenDataset(doc_lake, seq_len=17, shuffle=False, format=layout, view=view)
    assert dataset.num_tokens == len(tokens)
    sample = 0
    for batch in dataset.batches(3, drop_last=False):
        for row in range(len(batch["input_ids"])):
            window = tokens[17 * sample : 17 * sample + 18]
            if last is not None and sample >= last:
                window = [token for token in window if not token[1]]
            expected = expected_row(window, layout)
            found = {
                name: values[row].tolist() if isinstance(values, torch.Tensor) else values[row]
                for name, values in batch.items()
            }
            assert found == expected, sample
            spans = dataset.locate(sample)
            assert sum(span.count for span in spans) == len(window)
            assert sum(span.num_prefix for span in spans) == sum(t[1] for t in window)
            sample += 1
    assert sample == dataset.num_samples > 30


def test_windows_of_changing_length_have_prefixes(doc_lake, tiny_tokenizer, view):
    lengths, tokens = Schedule([(0, 17), (12, 9)]), stream(tiny_tokenizer)
    options = {"seq_len": lengths, "shuffle": False, "view": until(view, 20)}
    dataset = TokenDataset(doc_lake, **options)
    sample = first = 0
    for _ in range(2):
        for batch in dataset.batches(3, drop_last=False):
            for row, inputs in enumerate(batch["input_ids"].tolist()):
                size = len(inputs)
                assert size == lengths.at(sample)
                window = tokens[first : first + size + 1]
                if sample >= 20:
                    window = [token for token in window if not token[1]]
                expected = expected_row(window, Format(), size)
                assert inputs == expected["input_ids"]
                assert batch["labels"][row].tolist() == expected["labels"]
                assert batch["row"][row] == expected["row"]
                first, sample = first + size, sample + 1
    assert sample > 40


@pytest.mark.parametrize("table", ["tokens", "tokens_shuffled"])
def test_padded_rows_begin_with_the_prefix(doc_lake, tiny_tokenizer, view, table):
    loaded = Tokenizer.from_file(str(tiny_tokenizer))
    dataset = TokenDataset(
        f"{doc_lake}/{table}",
        seq_len=30,
        shuffle=MIXED,
        format=Format(pad_id=9),
        view=until(view, 25),
    )
    read, sample = [], 0
    for batch in dataset.batches(2, drop_last=False):
        for row, number in enumerate(batch["row"]):
            prefix = prefix_of(DOCS[number], loaded)
            window = [*prefix, *tokens_of(number, DOCS[number])][:31]
            labels = [IGNORED if i < len(prefix) else token for i, token in enumerate(window)][1:]
            inputs, count, ignored = window[:30], len(window), len(prefix)
            if sample >= 25:
                inputs, labels = inputs[len(prefix) :], labels[len(prefix) :]
                count, ignored = count - len(prefix), 0
            fill = 30 - len(inputs)
            assert batch["input_ids"][row].tolist() == inputs + [9] * fill
            assert batch["labels"][row].tolist() == labels + [IGNORED] * (30 - len(labels))
            assert batch["attention_mask"][row].tolist() == [1] * (30 - fill) + [0] * fill
            (span,) = dataset.locate(sample)
            assert (span.row, span.count, span.num_prefix) == (number, count, ignored)
            read.append(number)
            sample += 1
    assert sorted(read) == [i for i in range(FIRST, 60) if DOCS[i].length]


def test_ranks_and_resuming_change_nothing(doc_lake, view):
    options = {"seq_len": 17, "shuffle": MIXED, "format": EVERYTHING, "view": until(view, 20)}
    table = f"{doc_lake}/tokens_shuffled"
    dataset = TokenDataset(table, **options)
    whole = Counter(str(b["input_ids"].tolist()) for b in dataset.batches(1))
    part = TokenDataset(table, **options)
    read: Counter[str] = Counter()
    batches = iter(part.batches(1))
    for _ in range(7):
        read[str(next(batches)["input_ids"].tolist())] += 1
    state = json.loads(json.dumps(part.state_dict()))
    for rank in range(3):
        shard = Shard(rank=rank, world_size=3)
        rest = TokenDataset.from_state(table, state, view=options["view"], shard=shard)
        read.update(str(b["input_ids"].tolist()) for b in rest.batches(1))
    assert not read - whole
    assert (whole - read).total() == (dataset.num_samples - 7) % 3
    rows = replay(TokenDataset.from_state(table, state, view=options["view"]), batch_size=20).rows
    assert [sum(p.span.num_prefix for p in row.passages) > 0 for row in rows][13:] == [False] * 7
    plain = View(**{**vars(options["view"]), "prefix": None})
    without = TokenDataset(table, seq_len=17, shuffle=MIXED, view=plain)
    with pytest.raises(LoaderError, match="another order of samples"):
        without.load_state_dict(state)


def test_an_invalid_prefix_is_an_error(doc_lake, view, tiny_tokenizer):
    tokenizer = str(tiny_tokenizer)
    with pytest.raises(LoaderError, match="does not contain {} once"):
        Prefix(column="url", tokenizer=tokenizer, template="URL")
    with pytest.raises(LoaderError, match="max_tokens of Prefix must be"):
        Prefix(column="url", tokenizer=tokenizer, max_tokens=0)
    unknown = View(**{**vars(view), "prefix": Prefix(column="uri", tokenizer=tokenizer)})
    with pytest.raises(LoaderError, match="no column 'uri'"):
        TokenDataset(doc_lake, seq_len=17, view=unknown)
