"""Overlapping runs: whatever another run does between plan and commit, no row is lost or duplicated."""

from collections.abc import Callable, Sequence

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.errors import MismatchError
from etl.job import read_step
from etl.job.plan import Drops, make_plan
from etl.job.run import run
from etl.lake import lake_epochs
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_parquet
from tests.helpers.lake_rows import rows, rows_by_table

TEXTS = {name: [prose(number) for number in numbers] for name, numbers in {
    "a": (0, 1), "b": (2, 3), "c": (4, 5), "new": (6, 7),
}.items()}  # fmt: skip


def write(folder: UPath, name: str, texts: list[str]) -> None:
    fields = [{"doc_id": None, "body": text, "link": None} for text in texts]
    write_parquet(folder / f"{name}.parquet", fields)


@pytest.fixture
def small(recipe: Recipe, place: UPath) -> Recipe:
    """A recipe over three files of two rows."""
    folder = place / "small"
    for name in "abc":
        write(folder, name, TEXTS[name])
    source = recipe.source.model_copy(update={"path": str(folder)})
    return recipe.model_copy(update={"source": source, "stages": recipe.stages[1:]})


def folder_of(recipe: Recipe) -> UPath:
    return UPath(recipe.source.paths[0])


def before(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    action: Callable[[], object],
    is_now: Callable[..., bool] = lambda *_: True,
) -> None:
    """Do something once, before the next run calls a function of its first pass in a certain way."""
    function = getattr(read_step, name)

    def act_first(*args: object, **kwargs: object) -> object:
        if is_now(*args):
            monkeypatch.setattr(read_step, name, function)
            action()
        return function(*args, **kwargs)

    monkeypatch.setattr(read_step, name, act_first)


def has_b(_run: object, results: Sequence[WorkResult], *_: object) -> bool:
    """Return whether rows of b.parquet are about to be committed."""
    return any(result.source.endswith("b.parquet") for result in results)


def check(recipe: Recipe, client: Client, texts: list[str]) -> None:
    """Finish the work; the lake must equal a lake that a single run fills, and hold these texts."""
    run(recipe, cluster=client, replace_changed=True)
    assert not make_plan(recipe).has_work()
    assert verify(str(recipe.lake)) == []
    fresh = recipe.model_copy(update={"lake": f"{recipe.lake}-fresh"})
    run(fresh, cluster=client)
    assert rows_by_table(recipe) == rows_by_table(fresh)
    assert sorted(str(row["text"]) for row in rows(str(recipe.lake), "texts")) == sorted(texts)


def test_plain_runs_that_saw_different_contents(
    client: Client, small: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run reads the file as it was rewritten; the first must not add the old rows."""

    def rewrite_and_run() -> None:
        write(folder_of(small), "b", TEXTS["new"])
        run(small, cluster=client)

    before(monkeypatch, "_commit_documents", rewrite_and_run, has_b)
    with pytest.raises(MismatchError, match="different content"):
        run(small, cluster=client)
    check(small, client, TEXTS["a"] + TEXTS["new"] + TEXTS["c"])


@pytest.mark.parametrize("rewritten", ["b", "c"])
def test_two_runs_that_replace_files(
    client: Client, small: Recipe, monkeypatch: pytest.MonkeyPatch, rewritten: str
) -> None:
    """The first run has dropped the rows of b and read it again when the second one begins."""
    run(small, cluster=client)
    write(folder_of(small), "b", TEXTS["b"][:1])

    def rewrite_and_replace() -> None:
        write(folder_of(small), rewritten, TEXTS["new"])
        run(small, cluster=client, replace_changed=True)

    before(monkeypatch, "_commit_documents", rewrite_and_replace, has_b)
    error = "different content" if rewritten == "b" else "dropped or rebuilt rows"
    with pytest.raises(MismatchError, match=error):
        run(small, cluster=client, replace_changed=True)
    texts = {**TEXTS, "b": TEXTS["b"][:1], rewritten: TEXTS["new"]}
    check(small, client, texts["a"] + texts["b"] + texts["c"])


def test_a_plain_run_does_not_decide_on_rows_that_are_being_replaced(
    client: Client, small: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper of a text is replaced while another run deduplicates new rows against it."""
    run(small, cluster=client)
    write(folder_of(small), "d", [TEXTS["b"][0], prose(9)])

    def replace_keeper() -> None:
        write(folder_of(small), "b", TEXTS["new"])
        run(small, cluster=client, replace_changed=True)

    before(monkeypatch, "numbered_splits", replace_keeper)
    with pytest.raises(MismatchError, match="dropped or rebuilt rows"):
        run(small, cluster=client)
    texts = TEXTS["a"] + TEXTS["new"] + TEXTS["c"] + [TEXTS["b"][0], prose(9)]
    check(small, client, texts)
    assert len(rows(str(small.lake), "tokens")) == len(texts)


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_the_next_run_finishes_an_interrupted_start_of_an_epoch(
    client: Client, small: Recipe, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    run(small, cluster=client)
    write(folder_of(small), "b", TEXTS["new"])
    drop = Ledger.drop
    done: list[str] = []

    def drop_some(ledger: Ledger, *args: object, **kwargs: object) -> None:
        if len(done) == stop_after:
            raise KeyboardInterrupt
        done.append(ledger.url)
        drop(ledger, *args, **kwargs)

    monkeypatch.setattr(Ledger, "drop", drop_some)
    with pytest.raises(KeyboardInterrupt):
        run(small, cluster=client, replace_changed=True)
    monkeypatch.undo()
    write(folder_of(small), "b", TEXTS["b"])  # the file returns to its first content
    texts = TEXTS["a"] + TEXTS["b"] + TEXTS["c"]
    check(small, client, texts)


def test_a_run_that_commits_while_an_epoch_starts_makes_it_start_again(
    client: Client, small: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small, cluster=client)
    write(folder_of(small), "b", TEXTS["new"])
    late = make_plan(small, Drops(replace_changed=True))
    assert late.starts_lake_epoch
    start = lake_epochs.start_lake_epoch
    calls: list[object] = []

    def commit_first(*args: object) -> None:
        if not calls:
            ledger = Ledger(small.table_url("tokens"), fingerprint=small.fingerprint("tokens"))
            ledger.drop(Drop(), lambda *_: None, lake_epoch=ledger.lake_epoch)
        calls.append(args)
        start(*args)

    monkeypatch.setattr("etl.job.planner.start_lake_epoch", commit_first)
    assert run(small, cluster=client, replace_changed=True).ok
    assert len(calls) == 2
    check(small, client, TEXTS["a"] + TEXTS["new"] + TEXTS["c"])


def test_rows_of_an_unreadable_new_content_are_quarantined(client: Client, small: Recipe) -> None:
    run(small, cluster=client)
    path = folder_of(small) / "b.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    report = run(small, cluster=client, replace_changed=True)
    assert [note.source for note in report.quarantined] == [storage.normalize(str(path))]
    write(folder_of(small), "b", TEXTS["new"])
    assert run(small, cluster=client).ok, "no rows of the file are left to replace"
    check(small, client, TEXTS["a"] + TEXTS["new"] + TEXTS["c"])
