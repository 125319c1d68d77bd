"""`ClusterFile`: what the file of `--cluster k8s:FILE` says of a cluster, and how many workers it has."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from etl.compute.cluster_settings import (
    ClusterSettings,
    Memory,
    Quantity,
    Workers,
    workers_for,
)
from etl.settings_files.secret_names import may_be_secret
from etl.settings_files.settings import Settings

SCHEME: Final = "k8s:"

_PUBLIC: Final = frozenset(
    {
        *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ACCOUNT_NAME"),
        *("GOOGLE_CLOUD_PROJECT", "STORAGE_EMULATOR_HOST", "LANG", "TZ"),
        *("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "MALLOC_ARENA_MAX"),
    }
)
"""The variables that a cluster file may set besides TOKENLAKE_...; manifests show their values."""

_MAX_NAME_CHARS: Final = 40  # the operator adds up to 28 to the name of the cluster, of at most 63


Name = Annotated[
    str, Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=_MAX_NAME_CHARS, min_length=1)
]


class Toleration(Settings):
    """A taint of nodes that pods of a group tolerate, with the names of Kubernetes."""

    key: str
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class WorkerGroup(Settings):
    """A group of workers on other nodes; None: as in the manifest of the group."""

    workers: Workers
    memory: Memory | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = Field(None, strict=False)


class ClusterFile(ClusterSettings):
    """A Dask cluster on Kubernetes.

    ``workers`` is the number of on-demand workers, which do the shuffles; the workers of ``spot`` help to
    read and to tokenize. ``max_workers`` limits `auto`. ``cpu`` and ``memory`` are of a worker, which has
    one thread. After ``idle_timeout`` seconds without work, the operator deletes the cluster.
    ``environment`` is added to the driver and the workers: variables of Tokenlake (TOKENLAKE_...), of
    regions, endpoints and threads. Credentials are in the Secret ``tokenlake-s3``, other variables in the
    ConfigMap ``tokenlake-settings``.
    """

    noun: ClassVar[str] = "cluster file"
    example: ClassVar[str] = "image: registry.example.com/tokenlake:0.1.0"

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
            if may_be_secret(name, _PUBLIC):
                raise ValueError(
                    f"{name} may hold a secret: put it into the Secret tokenlake-s3, or into the ConfigMap "
                    "tokenlake-settings if it holds none"
                )
        return environment

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.high_memory is not None and self.high_memory.workers == "auto":
            raise ValueError("high_memory.workers is a number: shuffles run at a fixed size")
        if self.spot is not None and self.spot.workers == "auto" == self.workers:
            raise ValueError("workers and spot.workers cannot both be auto: set one to a number")
        return self

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
        auto = workers_for(planned_bytes, self.max_workers)
        groups = {"default": self.workers}
        groups |= {"spot": self.spot.workers} if self.spot is not None else {}
        groups |= {"high-memory": self.high_memory.workers} if self.high_memory is not None else {}
        return {name: auto if size == "auto" else size for name, size in groups.items()}
