SELECT id, text FROM deltaLakeLocal('/data/lake/texts') WHERE verdict = 'kept';

SELECT id, text FROM deltaLakeLocal('/data/lake/texts') WHERE verdict = 'kept'
SETTINGS delta_lake_snapshot_version = 3;

SELECT t.id AS id, text, num_words
FROM deltaLakeLocal('/data/lake/texts') AS t
JOIN deltaLakeLocal('/data/lake/documents') AS d USING (source, row)
WHERE d.verdict = 'kept' AND num_words > 500;

SELECT count(*) FROM deltaLakeLocal('/data/lake/texts') SETTINGS optimize_trivial_count_query = 0;
