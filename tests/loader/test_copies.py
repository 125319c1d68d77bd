"""Every way to obtain a dataset, with every kind of loader: it reads the epochs in turn, and resumes."""

import copy
import pickle
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Shard, TokenDataset, TokenMixture, View, open_shared
from etl.loader.sharded_dataset import ShardedDataset
from tests.helpers.document_lakes import Doc, make_document_lake
from tests.helpers.rank_processes import run_ranks
from tests.helpers.token_tables import MIXED, SMALL, expected_rows

cloudpickle = pytest.importorskip("cloudpickle", reason="Dask installs it")
stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11 calls it
]

SLOW = pytest.mark.slow
BATCH = 3
Rows = list[tuple[int, ...]]


def new(lake: str) -> TokenDataset:
    return TokenDataset(lake, seq_len=7, shuffle=MIXED)


def read_before(lake: str) -> TokenDataset:
    """Return a dataset of which two epochs were read, and moved to the beginning again."""
    dataset = new(lake)
    for _ in range(2):
        list(dataset.batches(BATCH))
    dataset.set_epoch(0)
    return dataset


def mixture(lake: str) -> TokenMixture:
    return TokenMixture({"a": new(lake)}, weights={"a": 1.0})


def repickled(dataset: ShardedDataset, module: Any = pickle) -> Any:
    return pickle.loads(module.dumps(dataset))


WAYS: dict[str, Callable[[str], ShardedDataset]] = {
    "new": new,
    "from_state": lambda lake: TokenDataset.from_state(lake, new(lake).state_dict()),
    "open_shared": lambda lake: open_shared(partial(new, lake)),
    "copy": lambda lake: copy.copy(read_before(lake)),
    "deepcopy": lambda lake: copy.deepcopy(read_before(lake)),
    "pickle": lambda lake: repickled(read_before(lake)),
    "pickle of a copy": lambda lake: repickled(copy.copy(new(lake))),
    "cloudpickle": lambda lake: repickled(read_before(lake), cloudpickle),
    "with_shard": lambda lake: new(lake).with_shard(Shard(rank=0, world_size=1)),
    "mixture": mixture,
    "pickle of a mixture": lambda lake: repickled(mixture(lake)),
    "mixture from_state": lambda lake: TokenMixture.from_state(
        {"a": lake}, mixture(lake).state_dict()
    ),
}


@pytest.fixture(scope="module")
def document_lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    docs = [Doc(source=name, row=row, quality=row / 30) for name in "abc" for row in range(30)]
    return make_document_lake(str(tmp_path_factory.mktemp("documents") / "lake"), docs)


Loader = Callable[[ShardedDataset], Iterable[Any]]


def of_batches(dataset: ShardedDataset, kind: Any = DataLoader, **options: Any) -> Iterable[Any]:
    return kind(dataset.batches(BATCH), batch_size=None, **options)


FORK: dict[str, Any]
SPAWN: dict[str, Any]
FORK, SPAWN = ({"num_workers": 2, "multiprocessing_context": name} for name in ("fork", "spawn"))
LOADERS: dict[str, Loader] = {
    "batches": lambda dataset: dataset.batches(BATCH),
    "prefetch": lambda dataset: dataset.batches(BATCH, prefetch=3),
    "DataLoader": of_batches,
    "rows": lambda dataset: DataLoader(dataset, batch_size=BATCH, drop_last=True),
    "rows, 2 workers": lambda dataset: DataLoader(
        dataset, batch_size=BATCH, drop_last=True, **FORK
    ),
    "1 worker": partial(of_batches, num_workers=1),
    "2 workers": partial(of_batches, **FORK),
    "persistent": partial(of_batches, **FORK, persistent_workers=True),
    "stateful": partial(of_batches, kind=stateful.StatefulDataLoader),
    "stateful, 2 workers": partial(of_batches, kind=stateful.StatefulDataLoader, **FORK),
    "spawn": partial(of_batches, **SPAWN),
    "spawn, persistent": partial(of_batches, **SPAWN, persistent_workers=True),
    "stateful, spawn": partial(of_batches, kind=stateful.StatefulDataLoader, **SPAWN),
}


def cases() -> list[Any]:
    """Return all combinations: slow but for one new way or one new loader, without spawned workers."""
    quick = {*((way, "2 workers") for way in WAYS), *(("pickle", kind) for kind in LOADERS)}
    return [
        pytest.param(way, kind, marks=[] if (way, kind) in quick and "spawn" not in kind else SLOW)
        for way in WAYS
        for kind in LOADERS
    ]


def rows(batches: Iterable[Any]) -> Rows:
    return [tuple(row) for batch in batches for row in batch["input_ids"].tolist()]


def epochs(lake: str, count: int) -> list[Rows]:
    """Return the windows of some epochs in order, each without its incomplete step."""
    found = [[tuple(row[:-1]) for row in expected_rows(new(lake), SMALL, e)] for e in range(count)]
    return [windows[: len(windows) // BATCH * BATCH] for windows in found]


def position_of(loader: Any, dataset: ShardedDataset, seen: int) -> Any:
    """Return the state after some samples since the first epoch, as this loader knows it."""
    if isinstance(loader, stateful.StatefulDataLoader):
        return loader.state_dict()
    if getattr(loader, "num_workers", 0):
        return dataset.state_dict(samples_seen=seen)
    return dataset.state_dict()


def mixed_epochs(lake: str, count: int) -> list[Rows]:
    """Return the windows of some epochs of the mixture, each selected and read by this process alone."""
    found = []
    for epoch in range(count):
        dataset = mixture(lake)
        dataset.set_epoch(epoch)
        found.append(rows(dataset.batches(BATCH)))
    return found


@pytest.mark.parametrize(("way", "kind"), cases())
def test_a_dataset_reads_epochs_in_turn_and_resumes(lake, way, kind):
    expected = (mixed_epochs if "mixture" in way else epochs)(lake, 4)
    dataset = WAYS[way](lake)
    loader = LOADERS[kind](dataset)
    assert [rows(loader), rows(loader)] == expected[:2]
    iterator = iter(loader)
    begun = rows(islice(iterator, 2))
    assert begun == expected[2][:6]
    state = position_of(loader, dataset, sum(map(len, expected[:2])) + len(begun))
    resumed = WAYS[way](lake)
    resumed.load_state_dict(state)
    again = LOADERS[kind](resumed)
    assert [rows(again), rows(again)] == [expected[2][6:], expected[3]]
    del iterator


def test_a_copy_continues_where_the_original_is(lake):
    expected = epochs(lake, 2)
    for make in (copy.copy, copy.deepcopy, repickled):
        dataset = new(lake)
        rows(islice(dataset.batches(BATCH), 2))
        twin = make(dataset)
        assert twin.state_dict() == dataset.state_dict()
        for each in (twin, dataset):  # neither moves the other
            assert [rows(each.batches(BATCH)), rows(each.batches(BATCH))] == [
                expected[0][6:],
                expected[1],
            ]


def test_a_batch_can_be_looked_at_in_a_copy(lake):
    dataset = new(lake)
    first = next(iter(copy.copy(dataset).batches(BATCH)))
    assert torch.equal(next(iter(dataset.batches(BATCH)))["input_ids"], first["input_ids"])


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        pytest.param(way, kind, marks=[] if "2" not in kind or way in ("new", "pickle") else SLOW)
        for way in ("new", "from_state", "copy", "deepcopy", "pickle")
        for kind in ("batches", "2 workers", "stateful, 2 workers")
    ],
)
def test_a_view_reads_epochs_in_turn_and_resumes(document_lake, tmp_path, way, kind):
    view = View(where="quality > 0.3", columns=["url"], cache=str(tmp_path))

    def open_view() -> TokenDataset:
        return TokenDataset(document_lake, seq_len=7, shuffle=MIXED, view=view)

    def obtain() -> Any:
        if way == "from_state":
            return TokenDataset.from_state(document_lake, open_view().state_dict())
        make: dict[str, Any] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": repickled}
        return make.get(way, lambda dataset: dataset)(open_view())

    expected = []
    for epoch in range(3):
        alone = open_view()
        alone.set_epoch(epoch)
        expected.append([(batch["input_ids"].tolist(), batch["url"]) for batch in alone.batches(3)])
    dataset = obtain()
    loader = LOADERS[kind](dataset)
    read = [[(batch["input_ids"].tolist(), batch["url"]) for batch in loader] for _ in range(2)]
    assert read == expected[:2]
    begun = [batch["input_ids"].tolist() for batch in islice(loader, 2)]
    assert begun == [ids for ids, _ in expected[2][:2]]
    seen = 3 * (2 + sum(map(len, expected[:2])))
    resumed = obtain()
    resumed.load_state_dict(position_of(loader, dataset, seen))
    rest = [(batch["input_ids"].tolist(), batch["url"]) for batch in LOADERS[kind](resumed)]
    assert rest == expected[2][2:]


def read_epochs(dataset: ShardedDataset, workers: int) -> list[Rows]:
    loader = of_batches(dataset, num_workers=workers)
    return [rows(loader) for _ in range(3)]


def read_shared(lake: str, workers: int) -> list[Rows]:
    return read_epochs(open_shared(partial(new, lake)), workers)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_ranks_that_share_an_opened_dataset_read_the_same_epochs(lake, tmp_path, workers):
    ranks = run_ranks(read_shared, lake, workers, folder=tmp_path)
    for epoch, windows in enumerate(epochs(lake, 3)):
        read = [row for rank in ranks for row in rank[epoch]]
        assert sorted(read) == sorted(windows[: len(read)])
        assert len(read) == 36


def read_opened_before(rank: int, dataset: ShardedDataset, results: Any, world_size: int) -> None:
    own = dataset.with_shard(Shard(rank=rank, world_size=world_size))
    results.put((rank, read_epochs(own, 2)))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_ranks_that_are_started_with_a_dataset_have_their_own_position(lake, method):
    dataset = new(lake)
    list(dataset.batches(BATCH))  # the ranks begin with the second epoch
    results = get_context(method).SimpleQueue()
    torch.multiprocessing.start_processes(
        read_opened_before, args=(dataset, results, 2), nprocs=2, start_method=method
    )
    ranks = dict(results.get() for _ in range(2))
    for number, windows in enumerate(epochs(lake, 4)[1:]):
        read = [row for rank in range(2) for row in ranks[rank][number]]
        assert sorted(read) == sorted(windows[: len(read)])
        assert len(read) == 36
    assert dataset.epoch == 0


def share_divided(lake: str) -> tuple[str, list[int]]:
    rank = torch.distributed.get_rank()
    shard = Shard(rank=rank // 2, world_size=2)
    try:
        open_shared(lambda: TokenDataset(lake, seq_len=7, shard=shard))
    except LoaderError as error:
        message = str(error)
    dataset = open_shared(lambda: TokenDataset(lake, seq_len=7), shard=shard)
    return message, [dataset.rank, dataset.world_size]


def test_a_shared_dataset_has_the_shard_of_each_rank(lake, tmp_path):
    results = run_ranks(share_divided, lake, folder=tmp_path, world_size=4)
    assert [place for _, place in results] == [[0, 2], [0, 2], [1, 2], [1, 2]]
    assert all("which is that of rank 0" in message for message, _ in results)
