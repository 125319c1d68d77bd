"""`ClusterSettings`: the base of the files that describe clusters, with quantities and numbers of workers."""

import math
import os
import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from etl.compute.check_memory_limit import MIN_MEMORY
from etl.compute.cluster_request import ClusterRequest
from etl.errors import ClusterError
from etl.settings_files.settings import Settings
from etl.settings_files.yaml_file import FileKind, read_settings

BYTES_PER_WORKER: Final = 28_000_000 * 600
"""Input that `auto` gives to a worker: ten minutes at 28 MB/s, the end-to-end throughput of a core in
``benchmarks/RESULTS.md``. A node takes a minute or two to start: in less time, more workers would not pay."""

_QUANTITY: Final = re.compile(
    r"(\d+\.?\d*|\.\d+)(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?\d{1,2}))?"
)
_FACTORS: Final = (
    {"n": 1e-9, "u": 1e-6, "m": 1e-3}
    | {unit: 1000.0 ** (power + 1) for power, unit in enumerate("kMGTPE")}
    | {f"{unit}i": 1024.0 ** (power + 1) for power, unit in enumerate("KMGTPE")}
)
_MIN_CPU: Final = 0.001  # Kubernetes counts thousandths
_MIN_DISK: Final = 100 << 20


def _as_text(value: Any) -> Any:
    """Return a number as text: YAML reads ``cpu: 2`` as one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _check_quantity(text: str) -> str:
    if _QUANTITY.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a quantity of Kubernetes, such as 500m, 2 or 4Gi")
    return text


def _at_least(min_bytes: int, shown: str) -> AfterValidator:
    """Return a validator of sizes that are not smaller than a number of bytes."""

    def check(text: str) -> str:
        if quantity(text) < min_bytes:
            raise ValueError(f"{text!r} is {quantity(text):.0f} bytes; at least {shown}")
        return text

    return AfterValidator(check)


def _check_cpu(text: str) -> str:
    if quantity(text) < _MIN_CPU:
        raise ValueError(f"{text!r} is less than 1m, a thousandth of a CPU")
    return text


def quantity(text: str) -> float:
    """Return the number that a quantity of Kubernetes means.

    >>> quantity("500m"), quantity("4Gi"), quantity("2e3")
    (0.5, 4294967296.0, 2000.0)
    """
    match = _QUANTITY.fullmatch(text)
    assert match is not None
    return float(match[1]) * _FACTORS.get(match[2] or "", 1.0) * 10.0 ** int(match[3] or 0)


Quantity = Annotated[str, BeforeValidator(_as_text), AfterValidator(_check_quantity)]
Cpu = Annotated[Quantity, AfterValidator(_check_cpu)]
Memory = Annotated[Quantity, _at_least(MIN_MEMORY, "512Mi, e.g. 4Gi")]
Disk = Annotated[Quantity, _at_least(_MIN_DISK, "100Mi, e.g. 20Gi")]
Workers = Annotated[int, Field(ge=1)] | Literal["auto"]
"""A number of workers; auto: for the input that a run has to read."""


class ClusterSettings(Settings):
    """The file of ``--cluster TYPE:FILE``; ``noun`` is its name, and ``example`` a line that is enough."""

    noun: ClassVar[str]
    example: ClassVar[str]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; raise ClusterError with file and line, key and value if it is invalid."""
        hint = f"write at least `{cls.example}`"
        return read_settings(cls, path, FileKind(noun=cls.noun, hint=hint, error=ClusterError))

    @classmethod
    def requested(cls, address: str | None, request: ClusterRequest) -> Self:
        """Read the file of an address (``k8s:FILE``) for a run; raise ClusterError if it is invalid."""
        if request.memory_limit is not None:
            raise ClusterError(
                "--memory-limit is for workers on this machine",
                where=address,
                hint="set memory in the cluster file",
            )
        return cls.load(str(address).partition(":")[2])


def workers_for(planned_bytes: int | None, max_workers: int) -> int:
    """Return the number of workers for input of that size; one if it is unknown.

    >>> workers_for(10**12, 100), workers_for(10**11, 100), workers_for(None, 100)
    (60, 6, 1)
    """
    return max(1, min(max_workers, math.ceil((planned_bytes or 0) / BYTES_PER_WORKER)))
