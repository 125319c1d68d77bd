"""Compare the versions of driver and workers, before the workers start and before each commit.

Workers of another version would change results, or could not read their tasks. The task of a split compares
the versions itself (``etl.job.shipped_files``), before its worker does anything else. The driver checks all
workers at the start of a run, and newer workers before each commit, so that no results of such workers are
committed.
"""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from distributed import Client

from etl.compute.library_versions import (
    CODE,
    NOT_INSTALLED,
    describe,
    differences,
    environment_versions,
    hint,
)
from etl.compute.machine_folder import is_local
from etl.errors import ClusterError, error_line

_MAX_SHOWN: Final = 3  # workers of an error


class WorkerVersions:
    """The comparison of the driver's versions with the versions of a cluster's workers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Workers of a cluster that this process started have its installation.
        self.expected: tuple[tuple[str, str], ...] = (
            () if is_local(client) else tuple(environment_versions().items())
        )
        self._compared: set[str] = set()

    def check(self) -> None:
        """Raise ClusterError if a worker that was not compared before has other versions."""
        if not self.expected:
            return
        new = sorted(set(self._client.nthreads()) - self._compared)
        if not new:
            return
        here = dict(self.expected)
        wrong: dict[str, dict[str, tuple[str, str]]] = {}
        answers = self._ask(environment_versions, new)
        errors = {w: answer for w, answer in answers.items() if isinstance(answer, Exception)}
        answers = {w: answer for w, answer in answers.items() if w not in errors}
        answers |= self._ask_without_package(errors)
        for worker, there in answers.items():
            known = {name: each for name, each in here.items() if name in there}
            if different := differences(known if worker in errors else here, there):
                wrong[worker] = different
        if wrong:
            raise self._error(wrong)
        self._compared.update(answers)

    def _ask(self, function: Any, workers: list[str], *args: str) -> dict[str, Any]:
        """Return the answer of each worker, or its error; without those that have been lost."""
        answers: dict[str, Any] = self._client.run(
            function, *args, workers=workers, on_error="return"
        )
        return {worker: each for worker, each in answers.items() if not isinstance(each, OSError)}

    def _ask_without_package(self, errors: Mapping[str, Exception]) -> dict[str, dict[str, str]]:
        """Return the versions of workers that cannot call a function of this package, by their errors."""
        versions: dict[str, dict[str, str]] = {}
        if not errors:
            return versions
        for worker, answer in self._ask(platform.python_version_tuple, list(errors)).items():
            broken = f"that cannot be imported ({error_line(errors[worker])})"
            versions[worker] = {"python": ".".join(answer[:2]), CODE: broken}
        for name, _ in self.expected:
            if name in ("python", "unicode", CODE):
                continue
            for worker, answer in self._ask(version, list(versions), name).items():
                versions[worker][name] = answer if isinstance(answer, str) else NOT_INSTALLED
        return versions

    def _error(self, wrong: Mapping[str, Mapping[str, tuple[str, str]]]) -> ClusterError:
        workers = list(wrong)
        shown = [f"the worker {each} {describe(wrong[each])}" for each in workers[:_MAX_SHOWN]]
        if len(workers) > _MAX_SHOWN:
            shown.append(f"{len(workers) - _MAX_SHOWN} more workers have other versions, too")
        return ClusterError(
            "; ".join(shown),
            where=self._client.scheduler.address if self._client.scheduler is not None else None,
            hint=hint({name: pair for each in wrong.values() for name, pair in each.items()}),
        )
