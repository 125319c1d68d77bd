"""Doing what a plan says: the driver (run, dedup), what it sends out (tasks, waves), what it notes.

run.py         executes a plan on a Dask client, commits, resumes
dedup.py       the one barrier: integers through a shuffle, duplicates out
near.py        near-duplicates: pairs with a band in common, those that are alike
rounds.py      who stays of these, on the driver or in rounds
likeness.py    how alike the documents of a pair are
paragraphs.py  units of documents that stand in others before
keys.py        the table by which documents that stay are found again
compared.py    what new documents are compared with, in this lake and others
files.py       the data files of documents, numbered
listed.py      these as a list in storage, for the driver and the workers
shuffle.py     rows of numbers with equal values in one place
waves.py       many units of work through Dask, a bounded number at a time
limits.py      a limit of time for a unit of work
tasks.py       what a worker does with one unit of work; no Dask
decisions.py   what the table of duplicates says of a unit
replaced.py    rows that take the place of others come in one commit
costs.py       what each stage costs
progress.py    how far a run is, and what it did
record.py      the lineage record of a commit
quarantine.py  what could not be read
"""
