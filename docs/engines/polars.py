import polars as pl

texts = pl.scan_delta("/data/lake/texts").filter(verdict="kept")
head = texts.select("id", "text")

version = pl.scan_delta("/data/lake/texts", version=3)
old = version.filter(verdict="kept").select("id", "text")

documents = pl.scan_delta("/data/lake/documents").filter(pl.col("num_words") > 500)
joined = texts.join(documents, on=["source", "row"]).select("id", "text", "num_words")
