"""What must be true of a lake after whatever happened to it."""

from collections import Counter

from etl.audit.verify import verify
from etl.plan import make_plan
from etl.recipe import Recipe
from etl.storage import join
from etl.table import Table
from tests.chaos.corpus import Record
from tests.job.test_run import Row, addresses, rows
from tests.job.test_s3 import names

Outcome = dict[str, list[Row]]


def outcome(recipe: Recipe, records: dict[str, list[Record]]) -> Outcome:
    """All rows of all tables, by the names of input files, once they are found to be of one mind."""
    lake = str(recipe.lake)
    assert not make_plan(recipe).has_work()
    assert verify(lake) == []
    found: Outcome = {name: names(rows(lake, name)) for name in recipe.steps}
    _check_rows(found, records)
    _check_lineage(lake, found)
    return found


def differences(found: Outcome, expected: Outcome, *, put_aside: bool) -> list[str]:
    """In which tables two outcomes differ.

    Which of several copies stays depends on what was there when they were compared: a run that put a part
    of the input aside decided without it. Then the groups of copies must be the same, of which one stays.
    """
    if not put_aside:
        return [name for name in expected if found[name] != expected[name]]
    different = {
        "documents": found["documents"] != expected["documents"],
        "duplicates": _groups(found["duplicates"]) != _groups(expected["duplicates"]),
        "tokens": len(found["tokens"]) != len(expected["tokens"]),
    }
    return [name for name, differs in different.items() if differs]


def _groups(duplicates: list[Row]) -> set[frozenset[object]]:
    """The addresses of duplicates and keepers, those that belong together in a set."""
    groups: dict[object, frozenset[object]] = {}
    for row in duplicates:
        pair = (row["source"], row["row"]), (row["keeper_source"], row["keeper_row"])
        joined = frozenset(pair).union(*(groups.get(address, ()) for address in pair))
        groups.update(dict.fromkeys(joined, joined))
    return set(groups.values())


def _check_rows(found: Outcome, records: dict[str, list[Record]]) -> None:
    """Each record of the input once, and tokens of what is kept and no duplicate, once."""
    documents, duplicates, tokens = (found[name] for name in ("documents", "duplicates", "tokens"))
    ids: dict[tuple[object, object], object] = {
        (name, number): row["doc_id"]
        for name, part in records.items()
        for number, row in enumerate(part)
    }
    assert addresses(documents) == list(ids)
    assert all(row["id"] == ids[row["source"], row["row"]] for row in documents)
    kept = {a for a, row in zip(addresses(documents), documents, strict=True) if not row["reason"]}
    left_out = addresses(duplicates)
    assert len(set(left_out)) == len(left_out)
    assert set(left_out) <= kept
    assert addresses(tokens) == sorted(kept - set(left_out))
    keepers = {(row["keeper_source"], row["keeper_row"]) for row in duplicates}
    assert keepers <= set(addresses(tokens))


def _check_lineage(lake: str, found: Outcome) -> None:
    """The counts of all commits add up to the rows that stand there."""
    sums: Counter[tuple[str, str]] = Counter()
    for name in found:
        for entry in Table.open(join(lake, name)).history():
            counts = entry.get("tokenlake", {}).get("counts", {})
            fields = ("rows", "kept", "duplicates", "tokens")
            sums.update({(name, field): counts.get(field, 0) for field in fields})
    documents, duplicates, tokens = (found[name] for name in ("documents", "duplicates", "tokens"))
    kept = sum(not row["reason"] for row in documents)
    assert sums["documents", "rows"] == len(documents)
    assert sums["documents", "kept"] == sums["duplicates", "rows"] == kept
    assert sums["duplicates", "duplicates"] == len(duplicates)
    assert sums["tokens", "kept"] == len(tokens)
    assert sums["tokens", "tokens"] == sum(int(str(row["num_tokens"])) for row in tokens)
