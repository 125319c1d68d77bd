"""Maintain a lake: vacuum, repair and optimize its tables. No Dask.

vacuum.py    delete data files that no retained version, release or running job needs
repair.py    drop damaged data, which the next run rebuilds
optimize.py  compact small data files
record.py    write the lineage record of a maintenance commit
"""
