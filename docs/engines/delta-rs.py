from deltalake import DeltaTable, QueryBuilder

texts = DeltaTable("/data/lake/texts")
head = texts.scan(columns=["id", "text"], predicate="verdict = 'kept'")

version = DeltaTable("/data/lake/texts", version=3)
old = version.scan(columns=["id", "text"], predicate="verdict = 'kept'")

lake = QueryBuilder().register("texts", texts)
lake.register("documents", DeltaTable("/data/lake/documents"))
joined = lake.execute("""
    SELECT texts.id, text, num_words FROM texts JOIN documents USING (source, "row")
    WHERE documents.verdict = 'kept' AND num_words > 500
""")
