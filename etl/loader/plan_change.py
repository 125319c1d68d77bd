"""`PlanChange`: what a training does differently from a saved state on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from etl.errors import LoaderError
from etl.loader.order.schedule import Schedule
from etl.loader.views.view import Address, View

Weights = Mapping[str, float]
Version = int | str


@dataclass(frozen=True, kw_only=True)
class PlanChange:
    """What changes where a state is resumed. The samples before stay what they were.

    - ``weights``: the weights of a mixture from there on. Sources that are left out are removed, and
      sources that the state does not have are added. A Schedule counts all samples of the training; its
      phases before the state do not count.
    - ``version``: another version of the table, as a number or the name of a release; in a mixture, versions
      by source.
    - ``seq_len``: another length of the windows of a single table.
    - ``leave_out``: the addresses (source, row) of documents that are not read any more, besides documents
      that already were left out; in a mixture, addresses by source.

    Weights change at once. All others change with the next epoch of each source, of which nothing is read
    yet: an epoch that has begun is read to its end as it was planned.

    >>> PlanChange(weights={"web": 0.5, "code": 0.5}).weights["web"]
    0.5
    """

    weights: Weights | Schedule[Weights] | None = None
    version: Version | Mapping[str, Version] | None = None
    seq_len: int | None = None
    leave_out: Iterable[Address] | Mapping[str, Iterable[Address]] = ()

    def of_table(self, settings: Mapping[str, Any], *, where: str) -> dict[str, Any]:
        """Return the settings of a single table that change, for the settings of a state.

        Raises LoaderError for a change that is of a mixture, or not possible.
        """
        by_source = {"version": self.version, "leave_out": self.leave_out}
        given = [name for name, value in by_source.items() if isinstance(value, Mapping)]
        if given or self.weights is not None:
            raise LoaderError(
                f"the state is of a single table, but the change names sources in "
                f"{', '.join(given or ['weights'])}",
                where=where,
                hint="PlanChange(version=7) changes the version of a single table",
            )
        return self._changed(settings, self.version, self.leave_out, where=where)

    def of_sources(self, saved: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the settings of each source of a mixture that change, without sources that stay.

        Raises LoaderError for a change that a mixture cannot have.
        """
        versions, left_out = self.version, self.leave_out
        if self.seq_len is not None:
            raise LoaderError(
                "the sources of a mixture begin their next epochs at different samples, but its windows all "
                "have one length",
                where=f"seq_len={self.seq_len} of the change",
                hint="open the mixture with a Schedule of seq_len that changes later, and load the state",
            )
        versions = {} if versions is None else versions
        left_out = left_out or {}
        if not isinstance(versions, Mapping) or not isinstance(left_out, Mapping):
            raise LoaderError(
                "the version and leave_out of a change must name the sources of the mixture",
                hint="PlanChange(version={'web': 7})",
            )
        unknown = [name for name in (*versions, *left_out) if name not in saved]
        if unknown:
            raise LoaderError(
                f"the change names {unknown[0]}, but the sources of the state are {', '.join(saved)}",
                hint="open a dataset for each source that is added, with its version",
            )
        return {
            name: self._changed(saved[name], versions.get(name), left_out.get(name, ()), where=name)
            for name in dict.fromkeys((*versions, *left_out))
        }

    def _changed(
        self,
        settings: Mapping[str, Any],
        version: Any,
        left_out: Any,
        *,
        where: str,
    ) -> dict[str, Any]:
        changed = {"version": version, "seq_len": self.seq_len}
        changed = {name: value for name, value in changed.items() if value is not None}
        view = View.from_json(settings["view"]) if "view" in settings else View()
        if left_out := [*left_out]:
            changed["view"] = replace(view, leave_out=[*view.leave_out, *left_out]).to_json()
        if changed and isinstance(settings["seq_len"], list):
            raise LoaderError(
                "the length of the windows is a Schedule, in whose passes epochs begin at changing samples, "
                f"so that {', '.join(changed)} cannot change",
                where=where,
                hint="weights, and later lengths of the Schedule, can: open with another Schedule, and load "
                "the state",
            )
        return changed

    @property
    def schedule(self) -> Schedule[Weights]:
        """The weights by sample; without sources if they do not change."""
        if isinstance(self.weights, Schedule):
            return self.weights
        return Schedule([(0, self.weights or {})])

    def check_sources(self, saved: Iterable[str], lakes: Iterable[str]) -> None:
        """Raise LoaderError unless there is a lake for each source, and a weight for each added one."""
        names = list(dict.fromkeys([*saved, *(n for value in self.schedule.values for n in value)]))
        if set(lakes) != set(names):
            raise LoaderError(
                f"lakes are given for {', '.join(lakes)}, "
                f"but the sources of the state {'and the change ' if self.weights else ''}"
                f"are {', '.join(names)}",
                hint="give one lake for each source, also for one that the change removes",
            )

    def weights_from(self, at: int, past: Schedule[Weights]) -> Schedule[Weights]:
        """Return the past weights up to a sample, and the weights of the change from there on."""
        before = [(start, value) for start, value in past if start < at]
        later = [(start + at, value) for start, value in self.schedule.between(at, None)]
        return Schedule([*before, *later])


NO_CHANGE = PlanChange()
