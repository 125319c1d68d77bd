"""Write and open Parquet files with checksums; read their footers, page headers and pages."""
