"""Reading a lake back: what its log says, where a row came from, whether all is there. No Dask.

versions.py     the versions of a table, each with its lineage record
lineage.py      the graph down to the source files, and what changed between two versions
openlineage.py  that graph as OpenLineage events
trace.py        one document, from its source to its tokens or to the reason why it has none
lookup.py       single rows out of many data files, by the statistics in the log
report.py       what became of the documents of a lake, and what each stage cost
tune.py         what other thresholds would keep
thresholds.py   which settings are thresholds
replay.py       the filters judged again over stored columns
tallies.py      what is kept now and then, counted
verify.py       whether logs, files, counts and addresses agree: log_checks.py, file_checks.py, row_checks.py
"""
