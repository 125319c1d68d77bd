"""Strings that readers of statistics get wrong, and Delta tables with them."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from upath import UPath

from etl.delta.table import Table
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout
from tests.helpers.delta_engines import Comparison

_LAST = "\U0010ffff"
_CUT = 16  # the most characters of a string in the log

HOSTILE = tuple(
    dict.fromkeys(
        [
            *("", "a", "b", "doc-3", "null", "NaN", "1", "{}", "2020-01-01T00:00:00Z", " a", "a "),
            *("z" * 513, "z" * 600, "z" * 5000, "https://site.test/" + "z" * 600),
            *("\U00020000", "\U00020000x", "\U00020001", "x\U00020000", "\U00020000" * 300),
            *(
                "😀",
                "👩\u200d👩\u200d👧",
                "e\u0301",
                "\u00e9",
                "\u202eabc",
                "\u2028",
                "\x85",
                "\ufeffa",
            ),
            *(
                "\x00",
                "a\x00",
                "a\x00b",
                "\x01",
                "\x1f",
                "\x7f",
                "\t",
                "a\nb",
                "\r\n",
                "\x1b]0;x\x07",
            ),
            *(
                "'",
                '"',
                "\\",
                "`",
                "a'b''c",
                'a"b""c',
                "\\ud840\\udc00",
                "\\u0000",
                "%",
                "a%20b",
                "/",
                "*",
            ),
            *("\ud7ff", "\ud7ff\ud7ff", "\ue000", "\ufffd", "\ufffe", "\uffff", "\U00010000"),
            *(_LAST * n for n in (1, 2, 3, _CUT - 1, _CUT, _CUT + 1, 40, 600)),
            *(_LAST * n + "a" for n in (1, _CUT - 1, _CUT, 40)),
            *("a" + _LAST * n for n in (1, 2, _CUT, 40)),
            *("a" * n + _LAST * 40 for n in (_CUT - 1, _CUT, _CUT + 1)),
            *(first + "b" * 40 for first in ("\ud7ff", "\U0010fffe", "\x1f", "!", "[", "\x7f")),
            *("a" * n + "\ud7ff" + "b" * 40 for n in (_CUT - 2, _CUT - 1, _CUT)),
        ]
    )
)

SCHEMA = pa.schema({"id": pa.string(), "source": pa.string()})


def write_hostile_table(place: UPath, rows_per_file: int, *, checkpoint: bool = False) -> Table:
    """Write the strings as ids and as sources, which the log has whole, in their order."""
    layout = Layout(statistics=("id", "source"), lookup=("source",))
    table = Table.create(str(place), SCHEMA, layout)
    ids = [*sorted(HOSTILE), None]  # a file without ids, if each file has one row
    for start in range(0, len(ids), rows_per_file):
        writer = DataFileWriter(table.url, SCHEMA, layout, name="hostile")
        part = pa.array(ids[start : start + rows_per_file], pa.string())
        writer.append(pa.table([part, part], schema=SCHEMA))
        table = table.commit(writer.close(), transactions={})
    if checkpoint:
        table.checkpoint()
    return table


def comparisons(operators: str, columns: Sequence[str] = ("id", "source")) -> list[Comparison]:
    """Return comparisons with each string, and with some that are not in the table."""
    values = [*HOSTILE, "c", "doc-2", "\U00020002", "z" * 514]
    return [(name, op, value) for name in columns for op in operators for value in values]


def find_wrong_counts(
    asked: Sequence[Comparison], counts: Iterable[int]
) -> list[tuple[Comparison, int, int]]:
    """Return comparisons with the count that a reader found, and the right one in the order of bytes."""
    ids = [value.encode() for value in HOSTILE]
    matches = {"=": bytes.__eq__, "<": bytes.__lt__, ">": bytes.__gt__}
    right = [sum(matches[op](known, value.encode()) for known in ids) for _, op, value in asked]
    found = zip(asked, counts, right, strict=True)
    return [(comparison, count, n) for comparison, count, n in found if count != n]
