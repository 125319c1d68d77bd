"""A nullable column that another engine adds to a table is not a problem, and the lake stays writable."""

import deltalake
import pyarrow as pa
from distributed import Client

from etl import storage
from etl.audit.lake_report import report
from etl.audit.row_lookup import read_first_rows
from etl.audit.verify.verify import verify
from etl.dataframe import read_table
from etl.delta.table import Table
from etl.job.run import run
from etl.loader import TokenDataset
from etl.maintenance.optimize import optimize
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.paths import at

TABLES = ("documents", "duplicates", "keys", "tokens")


def test_a_lake_with_added_columns_is_sound_and_writable(client: Client, changing: Recipe) -> None:
    assert run(changing, cluster=client).ok
    for name in TABLES:
        url = f"{changing.lake}/{name}"
        delta = deltalake.DeltaTable(url, storage_options=storage.delta_options(url))
        delta.alter.add_columns(deltalake.Field("added", deltalake.schema.PrimitiveType("string")))
    assert verify(changing.lake) == []
    write_parquet(at(changing.source.path) / "d.parquet", records(300, 340))
    assert run(changing, cluster=client).ok
    assert any(table.files_before > table.files for table in optimize(changing.lake))
    assert verify(changing.lake) == []
    counts = report(changing.lake)
    for name, column in (("documents", "source"), ("tokens", "num_tokens")):
        table = Table.open(changing.table_url(name))
        rows = read_first_rows(table, 1000)
        assert rows.schema.field("added").type == pa.string()
        assert rows["added"].null_count == rows.num_rows == len(read_table(changing.lake, name))
        assert rows.num_rows == {"documents": counts.rows, "tokens": counts.tokenized}[name]
        assert read_first_rows(table, 7, [column]).num_rows == 7
    assert TokenDataset(changing.lake, seq_len=8).num_tokens == counts.tokens
