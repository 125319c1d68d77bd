"""Propose a recipe for files: inspect them, and write a commented recipe."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from etl.html.card import Card, Shown
from etl.plural import many
from etl.recipe.judge_proposal import ProposedStage, judge, yaml_value
from etl.sources.inspect import SourceFacts, inspect_source
from etl.stages.apply import apply
from etl.stages.filters.language import Language
from etl.stages.fineweb2_limits import limits_of_table
from etl.stages.tokenize import Encoder, Tokenize
from etl.stages.transforms.extract import Extract
from etl.text import segmenters

_MIN_SCORE: Final = 0.65  # the default of the language stage
_MIN_LANGUAGE_SHARE: Final = 0.02  # of the sampled documents, for a language to be kept
_MIN_CERTAIN: Final = 0.5  # share of the texts whose language is certain; chosen here
_MIN_PAGE_SHARE: Final = 0.1  # of the sampled documents, for HTML to be extracted
_DICTIONARY: Final = {"zh", "ja", "ko"}  # languages whose words `words: dictionary` finds
_COMMENT_CHARS: Final = 78
_MAX_NAMES: Final = 12  # of columns in a comment


@dataclass(frozen=True, kw_only=True, repr=False)
class Proposal(Shown):
    """A recipe as text, and what it is based on.

    ``languages`` has the share of sampled documents by language, largest first; documents whose language is
    uncertain are left out. ``stages`` are the kinds of the proposed stages. Of the ``judged``
    distinct texts they keep ``kept``; ``changes`` are sentences about settings that differ from the defaults
    because these would keep too few. ``doubts`` are sentences about what is not plausible in the files.
    """

    text: str
    facts: SourceFacts
    languages: Mapping[str, float]
    is_html: bool
    stages: tuple[str, ...]
    judged: int
    kept: int
    changes: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def sampled(self) -> int:
        """The number of sampled documents with a text."""
        texts = self.facts.documents["text"]
        return len(texts) - int(texts.null_count)

    def _cards(self) -> list[Card]:
        """Return the recipe as cards."""
        title = f"Recipe, proposed from {many(self.sampled, 'document')}"
        return [Card(title=title, text=self.text, is_code=True)]


def propose_recipe(
    source: str | Sequence[str],
    *,
    name: str | None = None,
    lake: str | None = None,
    tokenizer: str | None = None,
) -> Proposal:
    """Inspect files and return a recipe for them, with comments.

    ``source`` is a URL, a glob, a folder, or several of them. ``name`` is by default the source's, and
    ``lake`` is ``lakes/<name>``. ``tokenizer`` is the path or URL of a tokenizer.json; without it, the stage
    is a comment. Raises SourceError if no file can be read, or if they have no records or no column with
    text; StorageError if a URL cannot be listed; TokenizerError if the tokenizer cannot be loaded.
    """
    paths = [source] if isinstance(source, str) else [*source]
    name = name or _name_of(paths[0])
    if tokenizer is not None:
        Encoder.of(Tokenize(tokenizer=tokenizer))
    facts = inspect_source(paths)
    documents = apply(facts.documents, [Extract(), Language(min_score=None)])
    is_certain = pc.greater_equal(documents["lang_score"], _MIN_SCORE)
    counts = Counter(documents["lang"].filter(pc.fill_null(is_certain, False)).to_pylist())
    total = max(sum(value is not None for value in documents["lang"].to_pylist()), 1)
    languages = {str(code): count / total for code, count in counts.most_common()}
    pages = len(documents) - documents["extract_html_chars"].null_count
    is_html = pages > _MIN_PAGE_SHARE * max(len(documents), 1)
    doubts = (*facts.doubts, *_language_doubts(languages))
    judged = judge([*_stages(facts, languages, is_html=is_html)], facts.documents)
    lines = [
        f"name: {yaml_value(name)}",
        *_source_lines(facts, doubts),
        "",
        *_comment("The folder of the tables that a run writes: a path or a URL."),
        f"lake: {yaml_value(lake or f'lakes/{name}')}",
        "",
        *_comment(
            "What happens to each document, in order. `etl stages NAME` prints the settings of a stage."
        ),
        "stages:",
    ]
    for stage in judged.stages:
        lines += [*_comment(stage.about, indent=2), f"  {stage.line}"]
    lines += _tokenize_lines(tokenizer)
    kinds = [stage.kind for stage in judged.stages if not stage.is_left_out]
    kinds += ["tokenize"] if tokenizer else []
    return Proposal(
        text="\n".join(lines) + "\n",
        facts=facts,
        languages=languages,
        is_html=is_html,
        stages=tuple(kinds),
        judged=judged.judged,
        kept=judged.kept,
        changes=judged.changes,
        doubts=doubts,
    )


def _stages(
    facts: SourceFacts, languages: Mapping[str, float], *, is_html: bool
) -> Iterator[ProposedStage]:
    """Yield stages for the documents: as in FineWeb for pages in English, as in FineWeb-2 for others."""
    is_web = is_html or facts.source.columns.url is not None or _is_warc(facts)
    if is_html:
        yield ProposedStage(
            "HTML to text. `trafilatura` is more precise, and takes 16 times as long.",
            "extract",
            {"extractor": "resiliparse"},
        )
    kept = [code for code, share in languages.items() if share >= _MIN_LANGUAGE_SHARE]
    if kept:
        shares = ", ".join(f"{code} {share:.0%}" for code, share in [*languages.items()][:8])
        yield ProposedStage(
            f"Languages of the sample: {shares}. Remove those that you do not want.",
            "language",
            {"keep": kept, "min_score": _MIN_SCORE},
        )
    limits = _limits(kept)
    about = "Repeated lines, paragraphs and word sequences."
    if _DICTIONARY & {*kept} and not segmenters.are_installed():
        about += (
            " In Chinese, Japanese and Korean, each character counts as a word here and below: `words: "
            "dictionary` needs `pip install 'tokenlake[segmenters]'`."
        )
    yield ProposedStage(about, "gopher_repetition", limits)
    yield ProposedStage(
        "Length, word lengths, symbols, stop words. It rejects most lists, tables and code.",
        "gopher_quality",
        limits,
    )
    if is_web and not limits:
        yield ProposedStage(
            "Web pages: drop lines of menus and policies, and pages with few sentences.",
            "c4",
            {"terminal_punctuation": False},
        )
    if is_web:
        yield ProposedStage("Web pages: lines should be sentences.", "fineweb_quality", limits)
        yield ProposedStage("Mask e-mail and IP addresses.", "pii", {"find": ["email", "ip"]})
    yield ProposedStage("Keep one of several equal documents.", "dedup_exact")
    yield ProposedStage(
        "Keep one of several similar documents. `etl plan` prints which similarity is found.",
        "dedup_minhash",
    )


def _limits(kept: Sequence[str]) -> Mapping[str, str]:
    """Return the settings of filters with limits by language; none if English is the only language."""
    if not any(code in limits_of_table("fineweb2", "gopher_quality") for code in kept):
        return {}
    has_words = _DICTIONARY & {*kept} and segmenters.are_installed()
    return {"languages": "fineweb2"} | ({"words": "dictionary"} if has_words else {})


def _language_doubts(languages: Mapping[str, float]) -> Iterator[str]:
    if (certain := sum(languages.values())) < _MIN_CERTAIN:
        yield f"the language of {1 - certain:.0%} of the texts is uncertain, so they may not be prose"


def _is_warc(facts: SourceFacts) -> bool:
    return any(each.format == "warc" for each in facts.formats)


def _source_lines(facts: SourceFacts, doubts: Sequence[str]) -> Iterator[str]:
    source = facts.source
    yield ""
    found = ", ".join(
        f"{each.files:,} {each.format} ({each.bytes / 1e6:,.1f} MB)" for each in facts.formats
    )
    yield from _comment(f"Files: {found}. A URL, a glob, a folder, or a list of them.")
    yield "source:"
    key = "path" if source.list is None else "list"
    yield f"  {key}: {yaml_value(getattr(source, key))}"
    if source.format is not None:
        yield f"  format: {source.format}  # guessed from the content"
    if any(each.columns for each in facts.formats):
        known = source.columns.known
        if missing := [name for name in ("id", "url") if name not in known]:
            yield from _comment(f"No column was found for: {', '.join(missing)}.", indent=2)
        yield f"  columns: {yaml_value(known)}"
    if source.delimiter is not None:
        yield f"  delimiter: {yaml_value(source.delimiter)}  # guessed from the content"
    for doubt in doubts:
        yield from _comment(f"DOUBT: {doubt}.", indent=2)
    for each in facts.lacking_text:
        names = ", ".join(each.columns[:_MAX_NAMES])
        yield from _comment(
            f"WARNING: the {each.format} files have no column {source.columns.text!r}, but {names}. "
            "Give them a recipe of their own.",
            indent=2,
        )
    if others := [name for name in facts.other_columns if name][:_MAX_NAMES]:
        yield from _comment("Other columns, which can be kept as JSON:", indent=2)
        yield f"  # metadata: {yaml_value(others)}"


def _tokenize_lines(tokenizer: str | None) -> Iterator[str]:
    if tokenizer is not None:
        yield from _comment("Token ids for the model to be trained.", indent=2)
        yield f"  - tokenize: {yaml_value(tokenizer)}"
        return
    yield from _comment(
        "Token ids: download tokenizer.json of the model to be trained, and remove the `# ` below. Without "
        "this stage, the lake holds texts only.",
        indent=2,
    )
    yield "  # - tokenize: tokenizer.json"


def _comment(text: str, *, indent: int = 0) -> list[str]:
    margin = " " * indent + "# "
    return textwrap.wrap(
        text,
        _COMMENT_CHARS,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _name_of(path: str) -> str:
    """Return a name for a recipe: the last part of a path that has no wildcard.

    >>> _name_of("s3://crawl/2026-10/**/*.parquet"), _name_of("my data.jsonl.gz"), _name_of("*.csv")
    ('2026-10', 'my-data', 'my-recipe')
    """
    parts = [part for part in path.partition("://")[2].split("/") or [] if part]
    parts = parts or [part for part in path.split("/") if part]
    plain = [part for part in parts if not re.search(r"[*?\[]", part) and part not in (".", "..")]
    name = plain[-1].split(".")[0] if plain else ""
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "my-recipe"
