"""What `etl tune` prints: what is kept now, and what other thresholds would keep."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from etl.cli.render import columns

if TYPE_CHECKING:
    from etl.audit.tune.kept_counts import Amount, Counted
    from etl.audit.tune.tune import Tuning

_MAX_ROWS = 20


def tuning(found: "Tuning") -> Iterator[str]:
    """What settings would change: in all, by rule, by language, by input file."""
    yield f"lake        {found.lake}"
    for setting in found.settings:
        yield f"set         {setting}"
    yield ""
    whole = found.whole
    rows = [["kept", *_change(whole.now.kept, whole.then.kept)]]
    if whole.now.unique is not None and whole.then.unique is not None:
        rows.append(["no duplicate", *_change(whole.now.unique, whole.then.unique)])
    if whole.now.tokens is not None and whole.then.tokens is not None:
        sign = _sign(whole.then)
        now, then, change = _change(whole.now.tokens, whole.then.tokens)
        rows.append(["tokens", now, sign + then, sign + change if change else ""])
    yield from columns(["documents", "now", "then", "change"], rows, numbers=(1, 2, 3))
    yield from _unknown(found)
    yield ""
    rows = [[reason, *_change(now, then)] for reason, (now, then) in found.rules.items()]
    yield from columns(["rejected by", "now", "then", "change"], rows, numbers=(1, 2, 3))
    for title, parts in (("language", found.languages), ("source", found.sources)):
        if parts:
            yield ""
            yield from _parts(title, parts)


def sweep(found: Sequence["Tuning"]) -> Iterator[str]:
    """What each value of a setting would keep, a line each, after what is kept now."""
    first = found[0]
    yield f"lake        {first.lake}"
    for setting in first.settings[:-1]:
        yield f"set         {setting}"
    yield ""
    key = first.settings[-1].partition("=")[0]
    now = first.whole.now
    rows = [["now", f"{now.kept:,}", "", _number(now.unique), _tokens(now), ""]]
    for case in found:
        then = case.whole.then
        value = case.settings[-1].partition("=")[2]
        change = _change(now.kept, then.kept)[2]
        unknown = f"{case.whole.unknown:,}" if case.whole.unknown else ""
        numbers = [f"{then.kept:,}", change, _number(then.unique), _tokens(then), unknown]
        rows.append([value, *numbers])
    yield from _filled([key, "kept", "change", "no duplicate", "tokens", "unknown"], rows, text=0)
    yield from _unknown(max(found, key=lambda case: case.whole.unknown))


def _parts(title: str, parts: Sequence["Counted"]) -> Iterator[str]:
    rows = [
        [
            part.name,
            f"{part.rows:,}",
            *_change(part.now.kept, part.then.kept),
            _tokens(part.now),
            _tokens(part.then),
        ]
        for part in parts[:_MAX_ROWS]
    ]
    yield from _filled([title, "rows", "now", "then", "change", "tokens now", "then"], rows, text=1)
    if len(parts) > _MAX_ROWS:
        yield f"... and {len(parts) - _MAX_ROWS:,} more, that change less (--json lists all)"


def _unknown(found: "Tuning") -> Iterator[str]:
    for stage, rows in found.unknown.items():
        yield f"unknown: {rows:,} documents would now come to `{stage}`, which has not judged them"
    for kind in found.not_counted:
        yield f"not counted: what `{kind}` leaves out"
    if found.whole.then.estimated:
        yield f"~ {found.whole.then.estimated:,} tokens are estimated: nobody has tokenized their documents"


def _filled(header: list[str], rows: list[list[str]], *, text: int) -> Iterator[str]:
    """The columns that are not empty; the first ``text`` of them are aligned at the left."""
    shown = [place for place in range(len(header)) if any(row[place] for row in rows)]
    rows = [[row[place] for place in shown] for row in rows]
    yield from columns([header[n] for n in shown], rows, numbers=range(text, len(shown)))


def _change(now: int, then: int) -> list[str]:
    return [f"{now:,}", f"{then:,}", f"{then - now:+,}" if then != now else ""]


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _tokens(amount: "Amount") -> str:
    return "" if amount.tokens is None else f"{_sign(amount)}{amount.tokens:,}"


def _sign(amount: "Amount") -> str:
    return "~" if amount.estimated else ""
