"""Audit a lake: history, lineage, traces, reports, threshold tuning and verification. No Dask.

versions.py     list the versions of a table, each with its lineage record
lineage.py      build the lineage graph down to the input files; compare two versions
openlineage.py  export the graph as OpenLineage events
trace.py        follow one document from its input file to its tokens or its rejection
cuts.py         describe the paragraphs that deduplication cut out of a document
lookup.py       find single rows in many data files by the statistics in the log
by_source.py    read columns of a table by batch or by input file
report.py       count the documents of a lake by outcome, and the cost of each stage
duplicates.py   report the duplicates of a lake: clusters, pairs of files, tokens saved
clusters.py     count clusters of duplicates by keeper
cut_totals.py   sum up what paragraph deduplication cut
tune.py         count the documents that other thresholds would keep
thresholds.py   check that overridden settings are thresholds
replay.py       apply the filters again to stored columns
tallies.py      count documents and tokens before and after a change of settings
verify.py       check logs, files, rows and counts: {log,file,row,key}_checks.py
"""
