"""Choose the file to damage in a copy of a lake, and files that another program could write in its place."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.damage.damages import Target
from tests.damage.history import Lakes
from tests.damage.kinds import files_by_kind


@dataclass(frozen=True)
class Damaged:
    """A copy of a lake that is damaged: its folder, and the name of the lake."""

    folder: Path
    name: str


class Targets:
    """Chooses files of lakes; the lake ``at_once`` must exist when its files are used."""

    def __init__(self, lakes: Lakes, make_at_once: Callable[[], object]) -> None:
        self._lakes = lakes
        self._make_at_once = make_at_once
        self.kinds_of = cache(self._kinds_of)

    def choose(self, of: Damaged, kind: str, damage: str, rng: random.Random) -> Target:
        """Choose a file of a kind."""
        kinds = self.kinds_of(of.name)
        path = rng.choice(kinds[kind])
        table, suffix = kind.partition(" ")[0], kind.rpartition(" ")[2]
        siblings = [
            (k.partition(" ")[0], paths) for k, paths in kinds.items() if k.endswith(f" {suffix}")
        ]
        same = [p for name, paths in siblings if name == table for p in paths if p != path]
        others = [p for name, paths in siblings if name != table for p in paths if p != path]
        replacements: dict[str, Path] = {}
        if others:
            replacements["other table"] = of.folder / rng.choice(others)
        if (older := self._lakes.folder_of("older") / path).exists():
            replacements["older"] = older
        if damage == "other lake":
            twin = self._lakes.folder_of("at_once")
            paths = self._twins(kind, path)
            if paths:
                replacements[damage] = twin / rng.choice(paths)
        return Target(of.folder, path, same or others, replacements)

    def _twins(self, kind: str, path: str) -> list[str]:
        """Return files of another lake that have the same name, or else the same kind."""
        kinds = self.kinds_of("at_once")
        table, suffix = kind.partition(" ")[0], kind.rpartition(" ")[2]
        names = [p for paths in kinds.values() for p in paths if p == path]
        return names or [
            p
            for k, paths in kinds.items()
            if k.endswith(f" {suffix}") and k.partition(" ")[0] == table
            for p in paths
        ]

    def _kinds_of(self, name: str) -> dict[str, list[str]]:
        if name == "at_once":
            self._make_at_once()
        return files_by_kind(self._lakes.folder_of(name))
