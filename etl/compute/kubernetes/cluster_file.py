"""`ClusterFile`: what the file of `--cluster k8s:FILE` says of a cluster, and how many workers it has."""

import math
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from etl.errors import ClusterError, RecipeError, nearest_names
from etl.settings_files.secret_names import may_be_secret
from etl.settings_files.validation_errors import Location, explain_errors, keys_of, names_of_model
from etl.settings_files.yaml_file import YamlFile

SCHEME: Final = "k8s:"

BYTES_PER_WORKER: Final = 28_000_000 * 600
"""Input that `auto` gives to a worker: ten minutes at 28 MB/s, the end-to-end throughput of a core in
``benchmarks/RESULTS.md``. A node takes a minute or two to start: in less time, more workers would not pay."""

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_FACTORS: Final = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{unit}i": float(1 << 10 * (power + 1)) for power, unit in enumerate("KMGTPE")
}
_MIN_MEMORY: Final = 512 << 20  # a worker takes 400 MB when it has loaded the library (RESULTS.md)
_MAX_NAME_CHARS: Final = 40  # the operator adds up to 28 to the name of the cluster, of at most 63


def _as_text(value: Any) -> Any:
    """Return a number as text: YAML reads ``cpu: 2`` as one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _check_quantity(text: str) -> str:
    if _QUANTITY.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a quantity of Kubernetes, such as 500m, 2 or 4Gi")
    return text


def _check_memory(text: str) -> str:
    if quantity(text) < _MIN_MEMORY:
        raise ValueError(f"{text!r} is {quantity(text):.0f} bytes; at least 512Mi, e.g. 4Gi")
    return text


def quantity(text: str) -> float:
    """Return the number that a quantity of Kubernetes means.

    >>> quantity("500m"), quantity("4Gi")
    (0.5, 4294967296.0)
    """
    match = _QUANTITY.fullmatch(text)
    assert match is not None
    return float(match[1]) * _FACTORS.get(match[2] or "", 1.0)


Quantity = Annotated[str, BeforeValidator(_as_text), AfterValidator(_check_quantity)]
Memory = Annotated[Quantity, AfterValidator(_check_memory)]
Name = Annotated[
    str, Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=_MAX_NAME_CHARS, min_length=1)
]
Workers = Annotated[int, Field(ge=1)] | Literal["auto"]
"""A number of workers; auto: for the input that a run has to read."""


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Toleration(_Settings):
    """A taint of nodes that pods of a group tolerate, with the names of Kubernetes."""

    key: str
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class WorkerGroup(_Settings):
    """A group of workers on other nodes; None: as in the manifest of the group."""

    workers: Workers
    memory: Memory | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = Field(None, strict=False)


class ClusterFile(_Settings):
    """A Dask cluster on Kubernetes.

    ``workers`` is the number of on-demand workers, which do the shuffles; those of ``spot`` help to read and
    to tokenize. ``max_workers`` limits `auto`. ``cpu`` and ``memory`` are of a worker, which has one thread.
    After ``idle_timeout`` seconds without work, the operator deletes the cluster. ``environment`` is added to
    the driver and the workers; credentials are in the Secret ``tokenlake-s3``.
    """

    image: str = Field(min_length=1)
    namespace: Name = "tokenlake"
    context: str | None = None
    name: Name = "tokenlake"
    workers: Workers = "auto"
    max_workers: int = Field(100, ge=1)
    spot: WorkerGroup | None = None
    high_memory: WorkerGroup | None = None
    cpu: Quantity = "1"
    memory: Memory = "4Gi"
    idle_timeout: int = Field(1800, ge=60)
    environment: dict[str, str] = Field(default_factory=dict)

    @field_validator("environment")
    @classmethod
    def _check_environment(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if may_be_secret(name):
                raise ValueError(f"{name} may hold a secret: put it into the Secret tokenlake-s3")
        return environment

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.high_memory is not None and self.high_memory.workers == "auto":
            raise ValueError("high_memory.workers is a number: shuffles run at a fixed size")
        if self.spot is not None and self.spot.workers == "auto" == self.workers:
            raise ValueError("workers and spot.workers cannot both be auto: set one to a number")
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; raise ClusterError with file and line, key and value if it is invalid."""
        file = Path(path).expanduser()
        try:
            if not file.is_file():
                siblings = file.parent.glob("*.y*ml") if file.parent.is_dir() else []
                raise ClusterError(
                    "cluster file not found",
                    where=os.fspath(path),
                    hint=nearest_names(file.name, sorted(sibling.name for sibling in siblings))
                    or "write one: `image: registry.example.com/tokenlake:0.1.0`",
                )
            data = YamlFile.parse(file, noun="a cluster file", hint="write at least `image: NAME`")
            return cls._validate(data)
        except RecipeError as error:
            raise ClusterError(error.what, where=error.where, hint=error.hint) from error

    @classmethod
    def _validate(cls, file: YamlFile) -> Self:
        try:
            return cls.model_validate(file.data)
        except ValidationError as error:
            raise explain_errors(error, file, partial(_names_in, cls)) from error

    def with_workers(self, workers: int | Literal["auto"] | None) -> Self:
        """Return the settings with another size of the group that is `auto`, or of the on-demand one."""
        if workers is None:
            return self
        if self.spot is not None and self.spot.workers == "auto":
            spot = self.spot.model_copy(update={"workers": workers})
            return self.model_copy(update={"spot": spot})
        return self.model_copy(update={"workers": workers})

    def sizes(self, planned_bytes: int | None) -> Mapping[str, int]:
        """Return the number of workers of each group, by the name that follows that of the cluster.

        ``planned_bytes`` is the input to read, for `auto`; None if it is unknown: then one worker.
        """
        auto = max(1, min(self.max_workers, math.ceil((planned_bytes or 0) / BYTES_PER_WORKER)))
        groups = {"default": self.workers}
        groups |= {"spot": self.spot.workers} if self.spot is not None else {}
        groups |= {"high-memory": self.high_memory.workers} if self.high_memory is not None else {}
        return {name: auto if size == "auto" else size for name, size in groups.items()}


def _names_in(model: type[BaseModel], location: Location) -> list[str]:
    return names_of_model(keys_of(location), model)
