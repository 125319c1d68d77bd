"""`etl tune`: print what other thresholds would keep."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.audit.tune.kept_counts import Amount, Counted
    from etl.audit.tune.similarity_limits import SimilarityTuning
    from etl.audit.tune.tune import Tuning

app = typer.Typer()

_MAX_ROWS_SHOWN = 20


@app.command(
    epilog=options.examples(
        "etl tune lake --set gopher_quality.min_words=80",
        "etl tune lake --sweep gopher_quality.min_words=20,50,80,100",
        "etl tune lake --similarity 0.7,0.8,0.9",
    )
)
def tune(
    lake: options.LakeArgument,
    *,
    settings: options.Settings = None,
    over: Annotated[
        str | None,
        typer.Option("--sweep", metavar="KEY=A,B,C", help="Try each of these values of a setting."),
    ] = None,
    similarity: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Estimate what `dedup_minhash` would remove with each of these as min_similarity.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Count what other thresholds would keep.

    Uses the stored signals and reads no text. The counts are those that a run with these settings would
    give; a ~ marks an estimate. With --similarity, the signatures of a sample are compared with the
    signatures of all documents, and pairs next to each limit are shown.
    """
    if similarity is not None:
        from etl.audit.tune.similarity_limits import tune_similarity

        if settings or over is not None:
            raise typer.BadParameter("give --similarity alone")
        tuning = tune_similarity(lake, _numbers(similarity))
        output.print_result(tuning, similarity_lines, as_json=as_json)
        return
    from etl.audit.tune.tune import sweep
    from etl.audit.tune.tune import tune as count

    if over is not None:
        output.print_result(sweep(lake, over, settings or ()), sweep_lines, as_json=as_json)
    elif settings:
        output.print_result(count(lake, settings), lines, as_json=as_json)
    else:
        raise typer.BadParameter("give --set KEY=VALUE, --sweep KEY=A,B,C or --similarity A,B,C")


def lines(tuning: "Tuning") -> Iterator[str]:
    """Yield what the settings would change: in all, by rule, by language, by input file."""
    yield f"lake        {tuning.lake}"
    for setting in tuning.settings:
        yield f"set         {setting}"
    yield ""
    whole = tuning.whole
    rows = [["kept", *_change(whole.now.kept, whole.then.kept)]]
    if whole.now.unique is not None and whole.then.unique is not None:
        rows.append(["unique", *_change(whole.now.unique, whole.then.unique)])
    if whole.now.tokens is not None and whole.then.tokens is not None:
        sign = _sign(whole.then)
        now, then, change = _change(whole.now.tokens, whole.then.tokens)
        rows.append(["tokens", now, sign + then, sign + change if change else ""])
    yield from output.columns(["documents", "now", "then", "change"], rows, numbers=(1, 2, 3))
    yield from _unknown(tuning)
    yield ""
    rows = [[reason, *_change(now, then)] for reason, (now, then) in tuning.rules.items()]
    yield from output.columns(["rejected by", "now", "then", "change"], rows, numbers=(1, 2, 3))
    for title, parts in (("language", tuning.languages), ("source", tuning.sources)):
        if parts:
            yield ""
            yield from _parts(title, parts)


def sweep_lines(tunings: Sequence["Tuning"]) -> Iterator[str]:
    """Yield a line for each value of a setting, after a line for the current settings."""
    first = tunings[0]
    yield f"lake        {first.lake}"
    for setting in first.settings[:-1]:
        yield f"set         {setting}"
    yield ""
    key = first.settings[-1].partition("=")[0]
    now = first.whole.now
    rows = [["now", f"{now.kept:,}", "", _number(now.unique), _tokens(now), ""]]
    for tuning in tunings:
        then = tuning.whole.then
        value = tuning.settings[-1].partition("=")[2]
        change = _change(now.kept, then.kept)[2]
        unknown = f"{tuning.whole.unknown:,}" if tuning.whole.unknown else ""
        numbers = [f"{then.kept:,}", change, _number(then.unique), _tokens(then), unknown]
        rows.append([value, *numbers])
    header = [key, "kept", "change", "unique", "tokens", "unknown"]
    yield from _filled(header, rows, num_left=0)
    yield from _unknown(max(tunings, key=lambda tuning: tuning.whole.unknown))


def similarity_lines(tuning: "SimilarityTuning") -> Iterator[str]:
    """Yield a line for each limit, then pairs of documents next to each."""
    yield f"lake        {tuning.lake}"
    removed = many(tuning.removed, "document")
    yield f"recipe      min_similarity {tuning.limit:g} removes {removed}"
    yield f"compared    {tuning.sampled:,} of {many(tuning.documents, 'document')} with all earlier ones"
    yield ""
    rows = [
        [
            f"{each.limit:g}",
            f"~{each.documents:,}",
            f"{each.documents / max(1, tuning.documents):.1%}",
        ]
        for each in tuning.limits
    ]
    yield from output.columns(["min_similarity", "removed", "share"], rows, numbers=(0, 1, 2))
    for each in tuning.limits:
        if each.examples:
            yield ""
            yield f"next to {each.limit:g}:"
        for pair in each.examples:
            yield f"  {pair.similarity:.2f}  {pair.source} row {pair.row}"
            yield f"          {output.cell(pair.text)}"
            yield f"        {pair.earlier_source} row {pair.earlier_row}"
            yield f"          {output.cell(pair.earlier_text)}"


def _numbers(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of numbers, such as 0.7,0.8") from error


def _parts(title: str, parts: Sequence["Counted"]) -> Iterator[str]:
    rows = [
        [
            part.name,
            f"{part.rows:,}",
            *_change(part.now.kept, part.then.kept),
            _tokens(part.now),
            _tokens(part.then),
        ]
        for part in parts[:_MAX_ROWS_SHOWN]
    ]
    header = [title, "rows", "now", "then", "change", "tokens now", "then"]
    yield from _filled(header, rows, num_left=1)
    if len(parts) > _MAX_ROWS_SHOWN:
        more = len(parts) - _MAX_ROWS_SHOWN
        yield f"... and {more:,} more with smaller changes (--json lists all)"


def _unknown(tuning: "Tuning") -> Iterator[str]:
    for stage, rows in tuning.unknown.items():
        documents = many(rows, "document")
        yield f"unknown: {documents} would now reach `{stage}`, which has not judged them"
    for kind in tuning.not_counted:
        yield f"not counted: documents that `{kind}` removes"
    if tuning.whole.then.estimated:
        tokens = many(tuning.whole.then.estimated, "token")
        yield f"~ {tokens} are estimated: their documents have not been tokenized"


def _filled(header: list[str], rows: list[list[str]], *, num_left: int) -> Iterator[str]:
    """Yield the columns that are not empty; the first ``num_left`` of them are left-aligned."""
    shown = [index for index in range(len(header)) if any(row[index] for row in rows)]
    rows = [[row[index] for index in shown] for row in rows]
    numbers = range(num_left, len(shown))
    yield from output.columns([header[index] for index in shown], rows, numbers=numbers)


def _change(now: int, then: int) -> list[str]:
    return [f"{now:,}", f"{then:,}", f"{then - now:+,}" if then != now else ""]


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _tokens(amount: "Amount") -> str:
    return "" if amount.tokens is None else f"{_sign(amount)}{amount.tokens:,}"


def _sign(amount: "Amount") -> str:
    return "~" if amount.estimated else ""
