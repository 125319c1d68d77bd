"""`View`: the documents of a table that are read, how often, and their columns in the batches."""

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

from etl.errors import LoaderError

MAX_TIMES = 100
"""The most often that a document can come in an epoch. Chosen here: after 16 times, repetition is worth
almost nothing (Muennighoff et al., Scaling Data-Constrained Language Models, 2023)."""

_BATCH_NAMES = (
    "input_ids",
    "labels",
    "attention_mask",
    "num_tokens",
    "document_ids",
    "position_ids",
)

Pair = tuple[float | None, float]
Address = tuple[str, int]
"""The ``source`` and the ``row`` of a document."""

MAX_LEFT_OUT = 10_000
"""The documents that ``leave_out`` may have. Chosen here: a state that names so many has less than 1 MB."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """One of two complementary sides of a table: ``share`` of the documents are for validation.

    The side of a document depends only on its ``content_hash`` and ``seed``: it stays when rows are added,
    is the same in another lake, and documents with equal texts are on one side. Near-duplicates are only on
    one side if the recipe has `dedup_minhash`, which keeps one document of each cluster.

    >>> Split(side="validation", share=0.01).share
    0.01
    """

    side: Literal["train", "validation"]
    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.side not in ("train", "validation"):
            raise LoaderError(
                f"side={self.side!r} of Split is unknown", hint="use 'train' or 'validation'"
            )
        if not 0 < self.share < 1:
            raise LoaderError(
                f"share={self.share} of Split is not between 0 and 1",
                hint="0.01 takes 1 % of the documents for validation",
            )


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Tokens before each document, made from a column; labels that belong to them are -100.

    A model that reads where a text comes from learns faster (metadata conditioning: Gao et al., Metadata
    Conditioning Accelerates Language Model Pre-training, arXiv 2501.01956). ``template`` has the value of
    ``column`` in the place of ``{}``; ``tokenizer`` is the path or URL of the tokenizer.json of the table. A
    prefix has at most ``max_tokens``. Documents without a value have none.

    The prefix belongs to its document, of which it is the beginning: for windows, document boundaries, and
    lengths. Samples from ``until_sample`` on, counted from the first epoch over all ranks, have no prefixes,
    so that the model learns to do without. These windows have the same documents; prefixes are removed, and
    the row is filled up at its end with tokens whose labels are -100 (``pad_id``, or 0 in packed windows).
    """

    column: str
    tokenizer: str
    template: str = "{}\n\n"
    max_tokens: int = 64
    until_sample: int | None = None

    def __post_init__(self) -> None:
        if self.template.count("{}") != 1:
            raise LoaderError(f"template={self.template!r} of Prefix does not contain {{}} once")
        if self.max_tokens < 1:
            raise LoaderError(f"max_tokens of Prefix must be at least 1, not {self.max_tokens}")


@dataclass(frozen=True, kw_only=True)
class View:
    """The documents of a table that are read, and how often; by default all, once in an epoch.

    Each setting reads columns of the version of ``documents`` that the tokens were made from.

    - ``where``: an SQL condition, with the syntax of the stage `where`. Documents for which it is false or
      null are left out.
    - ``repeat``: for each of some numeric columns, pairs (threshold, times) with falling thresholds. The
      first threshold that the value of a document reaches says how often the document comes in an epoch; if
      it reaches none, never. ``(None, times)`` is the pair for null and NaN, which are an error without it.
      With several columns, their times are multiplied. A document comes 2.3 times if it comes twice, and
      30 % of the documents once more, chosen by a hash of ``seed`` and the address.
    - ``split``: one side of a split into training and validation.
    - ``leave_out``: the addresses, (source, row), of documents that are not read; a version may lack them.
    - ``columns``: columns that come with the batches, for each document with tokens in ``input_ids``. In a
      packed batch, ``batch["url"]`` has a list for each row, in the order of the documents; in a padded
      batch, one value for each row. Use ``dataset.batches()``: the lists of single rows cannot be stacked.
    - ``prefix``: tokens before each document, made from a column, without a loss.
    - ``cache``: a local folder for the result, by default below ``~/.cache/tokenlake/loader``.

    The view is evaluated once for a version and kept in the cache, from which all processes of a machine map
    it into memory. Raises LoaderError if a setting is not valid.

    >>> view = View(where="lang = 'de'", repeat={"quality": [(0.9, 4), (0.5, 1), (0, 0.2)]})
    >>> view.repeat["quality"][0]
    (0.9, 4)
    """

    where: str | None = None
    repeat: Mapping[str, Sequence[Pair]] = field(default_factory=dict)
    split: Split | None = None
    columns: Sequence[str] = ()
    prefix: Prefix | None = None
    leave_out: Iterable[Address] = ()
    seed: int = 0
    cache: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "leave_out", check_addresses(self.leave_out))
        if isinstance(self.columns, str):
            raise LoaderError(f"columns={self.columns!r} is not a list", hint="use columns=['url']")
        for name in self.columns:
            check_column_name(name, _BATCH_NAMES)
        most = 1.0
        for column, pairs in self.repeat.items():
            _check_pairs(column, pairs)
            most *= max(times for _, times in pairs)
        if not most <= MAX_TIMES:
            raise LoaderError(
                f"repeat of View has {most:g} times for some documents, but {MAX_TIMES} are allowed"
            )

    @property
    def selects(self) -> bool:
        """Whether some documents may be left out or repeated."""
        return self.where is not None or bool(self.repeat) or self.split is not None

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the samples and their columns, as JSON data."""
        return {
            "where": self.where,
            "repeat": {name: [list(pair) for pair in pairs] for name, pairs in self.repeat.items()},
            "split": None if self.split is None else asdict(self.split),
            "columns": list(self.columns),
            "prefix": None if self.prefix is None else asdict(self.prefix),
            "leave_out": [list(address) for address in self.leave_out],
            "seed": self.seed,
        }

    def to_json(self) -> str:
        """Return the settings as text, for saved states."""
        return json.dumps(self.settings())

    @staticmethod
    def from_json(text: str) -> "View":
        """Return the view with the settings in a text."""
        settings = json.loads(text)
        for name, kind in (("split", Split), ("prefix", Prefix)):
            if settings[name] is not None:
                settings[name] = kind(**settings[name])
        settings["leave_out"] = [(source, row) for source, row in settings["leave_out"]]
        return View(**settings)


def check_addresses(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """Return addresses of documents in order; raise LoaderError unless they are, or if they are too many.

    >>> check_addresses([("b", 2), ("a", 10), ("b", 2)])
    (('a', 10), ('b', 2))
    """
    try:
        distinct = {(source, operator.index(row)) for source, row in addresses}
        ordered = tuple(sorted(distinct))
    except (TypeError, ValueError) as error:
        raise LoaderError(
            f"leave_out is not a list of addresses (source, row): {error}",
            hint="pass [(span.source, span.row) for span in dataset.locate(sample)]",
        ) from error
    if len(ordered) > MAX_LEFT_OUT:
        raise LoaderError(
            f"leave_out has {len(ordered):,} documents, but {MAX_LEFT_OUT:,} are allowed",
            hint="describe them by their columns: View(where=...)",
        )
    return ordered


def check_column_name(name: str, taken: Iterable[str]) -> None:
    """Raise LoaderError if batches have another value by the name of a column."""
    if name in taken:
        raise LoaderError(
            f"the column {name} of View has the name of a tensor of the batches",
            hint="leave it out of columns",
        )


def _check_pairs(column: str, pairs: Sequence[Pair]) -> None:
    """Raise LoaderError unless pairs are (threshold, times), with falling thresholds."""
    where = f"repeat[{column!r}] of View"
    if any(len(pair) != 2 for pair in pairs) or not pairs:
        raise LoaderError(f"{where} is not a list of (threshold, times): {pairs}")
    thresholds = [threshold for threshold, _ in pairs if threshold is not None]
    if any(low >= high for high, low in pairwise(thresholds)):
        raise LoaderError(
            f"the thresholds of {where} do not fall: {thresholds}",
            hint="the first threshold that a value reaches decides: put the highest one first",
        )
    if len(pairs) - len(thresholds) > 1:
        raise LoaderError(f"{where} has several pairs for null")
    for _, times in pairs:
        if not times >= 0:
            raise LoaderError(f"{where} has times={times}, which is not 0 or more")
