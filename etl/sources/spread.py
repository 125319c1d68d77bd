"""Choose a few items of a long sequence at equal distances."""

from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Spread(Generic[Item]):
    """At most ``count`` of the items that are added, at equal distances, the first one included.

    Of more items, at least half as many as ``count`` are kept.
    """

    def __init__(self, count: int) -> None:
        self.items: list[Item] = []
        self._count, self._seen, self._step = count, 0, 1

    def add(self, item: Item) -> None:
        """Add the next item of the sequence."""
        if self._seen % self._step == 0:
            self.items.append(item)
        self._seen += 1
        if len(self.items) > self._count:
            self.items = self.items[::2]
            self._step *= 2


def spread(items: Iterable[Item], count: int) -> list[Item]:
    """Return a few items at equal distances, as ``Spread`` keeps them.

    >>> spread(range(10), 4), spread(range(3), 4)
    ([0, 4, 8], [0, 1, 2])
    """
    chosen: Spread[Item] = Spread(count)
    for item in items:
        chosen.add(item)
    return chosen.items
