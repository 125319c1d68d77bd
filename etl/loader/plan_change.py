"""`PlanChange`: what a training does differently from a saved state on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from etl.errors import LoaderError
from etl.loader.order.schedule import Schedule

Weights = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class PlanChange:
    """What changes where a state is resumed. The samples before stay what they were.

    - ``weights``: the weights of a mixture from there on. Sources that are left out are removed, and
      sources that the state does not have are added. A Schedule counts all samples of the training; its
      phases before the state do not count.

    >>> PlanChange(weights={"web": 0.5, "code": 0.5}).weights["web"]
    0.5
    """

    weights: Weights | Schedule[Weights] | None = None

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
