SELECT id, text FROM delta_scan('/data/lake/texts') WHERE verdict = 'kept';

SELECT id, text FROM delta_scan('/data/lake/texts', version = 3) WHERE verdict = 'kept';

SELECT t.id, text, num_words
FROM delta_scan('/data/lake/texts') AS t
JOIN delta_scan('/data/lake/documents') AS d USING (source, "row")
WHERE d.verdict = 'kept' AND num_words > 500;
