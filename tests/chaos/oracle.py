"""What must hold for a lake after any disturbance: no text is lost, and none is there twice."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.job.plan import make_plan
from etl.lake.releases import list_releases
from tests.chaos.drivers import Driver
from tests.chaos.pauses import Kind
from tests.chaos.processes import DONE, FAILED, QUARANTINED
from tests.chaos.small_site import SmallSite
from tests.chaos.texts import Row as InputRow
from tests.chaos.texts import Text
from tests.helpers.lake_rows import Row, addresses, judged, names, rows

_HINTS: Mapping[str, Kind] = {"--replace-changed": "replace_changed", "etl repair": "repair"}
_COPY = "_copies/"
_WAIT = "retry when it has finished"
_MAX_JOBS = 8

_GROUP: Mapping[str, Callable[[Row, Text], Hashable]] = {
    "near": lambda _, text: text.family,
    "exact": lambda _, text: text,
    "fused": lambda row, _: (row["source"], row["row"]),
}
"""By the duplicates that a recipe removes: the group of a kept row, of which it keeps one."""


def settle(site: SmallSite, driver: Driver, *, is_damaged: bool = False) -> None:
    """Run the recipe until nothing remains to be done, following the hints of errors, and shuffle again.

    A lake is repaired only if it may be damaged, or if a run asks for it.
    """
    outputs: list[str] = []
    kind: Kind = "repair" if is_damaged else "plain"
    for _ in range(_MAX_JOBS):
        ended = driver.run(kind, site)
        outputs.append(f"{kind} ended with {ended.code}: {ended.output}")
        if ended.code == FAILED and _WAIT in ended.output:
            site.age(1)  # the leases of jobs that were killed expire
            continue
        hints = [then for hint, then in _HINTS.items() if hint in ended.output]
        if kind == "plain" and ended.code == DONE:
            if make_plan(site.recipe).missing.without_texts:
                kind = "drop_missing"
                continue
            if Table.exists(str(site.lake / "tokens_shuffled")):
                shuffled = driver.run("shuffle", site)
                assert shuffled.code == DONE, shuffled.output
            return
        if ended.code == FAILED:
            assert hints, "\n".join(outputs)
        if is_damaged and kind == "replace_changed" and verify(str(site.lake)):
            kind = "repair"
        elif ended.code == DONE and kind != "repair":
            kind = "plain"
        elif kind == "repair":
            kind = "replace_changed"
        else:
            assert ended.code != QUARANTINED, "\n".join(outputs)
            kind = hints[0]
    raise AssertionError("\n".join(outputs))


def check_sound(site: SmallSite) -> None:
    """Check that a lake has no damage, however many of its jobs are in progress; each of its states once.

    The second copy of a small file may be missing: a job is about to write it, or was killed before it did.
    Documents of a file that was deleted then may have no texts.
    """
    state = site.state()
    if state not in site.sound and Table.exists(site.recipe.table_url("documents")):
        problems = [each for each in verify(str(site.lake)) if "without texts" not in each.what]
        assert [each for each in problems if _COPY not in str(each.file)] == []
        site.sound.add(state)


def check_releases(site: SmallSite) -> None:
    """Check that all rows of all releases are readable."""
    if not Table.exists(site.recipe.table_url("documents")):
        return
    for release in list_releases(str(site.lake)):
        for table, version in release.versions.items():
            found = rows(str(site.lake), table, version)
            assert len(set(addresses(found))) == len(found), f"{release.name}: {table}"


def check_complete(site: SmallSite, ids: Sequence[str] | None = None) -> None:
    """Check that a lake holds exactly the rows of its input files, and each text once.

    ``ids`` are the rows' ids, if the addresses that they must have are unknown.
    """
    assert not make_plan(site.recipe).has_work()
    check_sound(site)
    tables = {step: names(rows(str(site.lake), step)) for step in site.recipe.steps}
    documents, tokens = names(judged(str(site.lake))), tables["tokens"]
    duplicates = tables.get("duplicates", [])
    if ids is None:
        _check_documents(site, documents)
    else:
        assert sorted(str(row["id"]) for row in documents) == sorted(ids)
    if Table.exists(str(site.lake / "tokens_shuffled")):
        shuffled = names(rows(str(site.lake), "tokens_shuffled"))
        added = {"note"}  # a column that another engine may have added to one of the tables
        assert [_without(row, added) for row in shuffled] == [
            _without(row, added) for row in tokens
        ]
    texts = {(row["source"], row["row"]): site.known[str(row["id"])].text for row in documents}
    kept = {address for address, text in texts.items() if text.family is not None}
    dropped = addresses(duplicates)
    assert len(set(dropped)) == len(dropped)
    assert set(dropped) <= kept
    assert addresses(tokens) == sorted(kept - set(dropped))
    known = {str(text): text for text in (row.text for row in site.known.values())}
    decode = _decoder(site.tokenizer)
    decoded = {
        address: known.get(decode(tuple(row["tokens"])))
        for address, row in zip(addresses(tokens), tokens, strict=True)
    }
    assert decoded == {address: texts[address] for address in decoded}
    for row in duplicates:
        text, keeper = texts[row["source"], row["row"]], (row["keeper_source"], row["keeper_row"])
        assert keeper in set(addresses(tokens)), row
        assert texts[keeper].family == text.family, row
        assert row["kind"] != "exact" or site.stages == "near" or texts[keeper] == text, row
    groups = [_GROUP[site.stages](row, texts[row["source"], row["row"]]) for row in tokens]
    assert len(set(groups)) == len(groups), "a text has tokens twice"


def _without(row: Row, columns: set[str]) -> Row:
    return {name: value for name, value in row.items() if name not in columns}


def _check_documents(site: SmallSite, documents: list[Row]) -> None:
    """Check that a table holds the rows of all input files as they are now.

    The rows of a deleted file stay: all rows of one of the contents that it had, or a part of these if not
    all had been read.
    """
    expected = {(name, k): row for name, rows in site.inputs.items() for k, row in enumerate(rows)}
    found = {(str(row["source"]), int(str(row["row"]))): row for row in documents}
    assert len(found) == len(documents), "an address occurs twice"
    for name, past in site.past.items():
        if name not in site.inputs:
            stayed = {k: str(row["id"]) for (source, k), row in found.items() if source == name}
            contents = [dict(enumerate(rows)) for rows, _ in past]
            if name in site.unfinished:
                contents += [{k: rows[k] for k in stayed if k in rows} for rows in contents]
            ids_of = [{k: row.id for k, row in content.items()} for content in (*contents, {})]
            assert stayed in ids_of, f"mixed contents of the deleted file {name}: {stayed}"
            content = [*contents, {}][ids_of.index(stayed)]
            expected |= {(name, k): row for k, row in content.items()}
    assert {address: row["id"] for address, row in found.items()} == {
        address: row.id for address, row in expected.items()
    }
    for address, row in found.items():
        _check_row(row, expected[address])


def _check_row(row: Row, expected: InputRow) -> None:
    if expected.text.family is None:
        assert row["reason"] == "gopher_quality.short"
    else:
        assert (row["reason"], row["text"]) == (None, str(expected.text))


@cache
def _decoder(tokenizer: Path) -> Callable[[tuple[int, ...]], str]:
    loaded = Tokenizer.from_file(str(tokenizer))
    return cache(lambda ids: str(loaded.decode(list(ids))))
