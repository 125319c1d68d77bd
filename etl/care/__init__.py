"""Taking care of a lake: what goes, what is mended, what is made smaller. No Dask.

vacuum.py    deletes data files that no version within the retention, no release and no job needs
repair.py    drops what is damaged, so that the next run makes it again
optimize.py  puts small data files together
"""
