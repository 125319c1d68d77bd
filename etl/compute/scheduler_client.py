"""A client of a scheduler, which closes itself if it cannot connect."""

from typing import Any

from distributed import Client


class SchedulerClient(Client):
    """A client that is closed when its constructor raises.

    Dask leaves such a client to the garbage collector, which closes it: in a thread that is just starting
    another client, too. Both need Dask's lock for event loops, and that thread would wait for itself.
    """

    def start(self, **options: Any) -> None:
        """Connect to the scheduler, as the constructor does."""
        try:
            super().start(**options)
        except BaseException:
            self.close()
            raise
