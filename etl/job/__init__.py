"""Running a recipe: the driver, the tasks of the workers, deduplication, and the commits.

run.py         runs a plan on a Dask client, commits, resumes
dedup.py       deduplication: the one barrier, a shuffle of integers
near.py        near-duplicates: candidate pairs with a common band, and the similar ones among them
rounds.py      which documents of the pairs are kept, decided on the driver or in rounds
likeness.py    the similarity of the documents of a pair
paragraphs.py  paragraphs that are repeated from earlier documents
keys.py        the table with the keys of kept documents, by which later runs find duplicates
compared.py    the documents that new ones are compared with, in this lake and others
files.py       the numbered data files of documents
listed.py      the list of these files in storage, for the driver and the workers
shuffle.py     a shuffle that brings equal integers to one worker
waves.py       many units of work on Dask, with a bounded number of live tasks
limits.py      a time limit for units of work
tasks.py       the tasks that workers run, without Dask
decisions.py   the decisions in duplicates about a unit
merged.py      merges data files, and splits them again
replaced.py    the replacement of changed input files, one commit per file
cadence.py     the cadence of commits
commits.py     the commits of one run
costs.py       the costs of each stage
progress.py    the progress and the report of a run
record.py      the lineage record of a commit
quarantine.py  the quarantine of work that failed
"""
