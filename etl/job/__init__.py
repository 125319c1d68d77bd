"""Plan a run and carry it out: workers write data files, the driver commits them."""
