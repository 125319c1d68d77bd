"""A version of a token table as an IterableDataset of the library datasets: one example per document.

The data files of the table are its shards, so that ``split_dataset_by_node`` and DataLoader workers divide
them without reading each other's. Its ``state_dict`` resumes inside a file, which is read again up to there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from etl.delta.live_rows import live_rows
from etl.errors import LoaderError
from etl.lake.open_tokens import open_tokens

if TYPE_CHECKING:
    import datasets

_COLUMNS: Final = {"input_ids": "tokens", "id": "id", "source": "source", "row": "row"}
_BATCH_ROWS = 256


def to_huggingface(lake: str, *, version: int | str | None = None) -> "datasets.IterableDataset":
    """Return the documents of a version of a token table, by default the newest, in the order of its files.

    ``lake`` is the URL of a lake or of a token table, and ``version`` a number or the name of a release. An
    example has the tokens as ``input_ids``, and the ``id``, ``source`` and ``row`` of the document. Documents
    without tokens are left out: ``map`` drops the declared types, and nothing can be inferred from an empty
    list. Shuffle, pack and batch the dataset with the library's own means; ``TokenDataset`` does this
    reproducibly, and resumes without reading what was consumed.

    Raises LoaderError if the table does not exist, or if the library is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise LoaderError("the library datasets is missing", hint="pip install datasets") from error
    table = open_tokens(lake, version)
    files = [*table.files("path", "vector")]
    features = datasets.Features(
        {
            "input_ids": datasets.List(datasets.Value("int32")),
            "id": datasets.Value("string"),
            "source": datasets.Value("string"),
            "row": datasets.Value("int64"),
        }
    )
    return datasets.IterableDataset.from_generator(
        read_documents, features=features, gen_kwargs={"table": table.url, "files": files}
    )


def read_documents(table: str, files: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the documents with tokens in data files of a table; raises TableError if a file is damaged."""
    columns = [*_COLUMNS.values()]
    for file in files:
        with live_rows(table, file, columns) as opened:
            for batch in opened.batches(_BATCH_ROWS):
                rows = batch.select(columns).rename_columns([*_COLUMNS])
                yield from (row for row in rows.to_pylist() if row["input_ids"])
