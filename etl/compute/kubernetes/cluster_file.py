"""`ClusterFile`: what the file of `--cluster k8s:FILE` says of a cluster, and how many workers it has."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from etl.compute.cluster_settings import ClusterSettings, Cpu, Memory, Workers, workers_for
from etl.compute.kubernetes.pod_group import PodGroup, WorkerGroup
from etl.settings_files.secret_names import may_be_secret

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


class ClusterFile(ClusterSettings):
    """A Dask cluster on Kubernetes, and the driver of submitted runs."""

    noun: ClassVar[str] = "cluster file"
    example: ClassVar[str] = "image: registry.example.com/tokenlake:0.1.0"

    image: str = Field(min_length=1)
    """The image of all pods, made from k8s/Dockerfile."""
    namespace: Name = "tokenlake"
    """The namespace of all objects."""
    context: str | None = None
    """The context of the kubeconfig; null: the current one."""
    name: Name = "tokenlake"
    """The name of the cluster, with which the names of its objects begin."""
    workers: Workers = "auto"
    """The number of on-demand workers, which do the shuffles; `auto`: one for each 17 GB of input (10 minutes
    at 28 MB/s)."""
    max_workers: int = Field(100, ge=1)
    """The limit of `auto`."""
    cpu: Cpu = "1"
    """The CPUs of a worker, which has one thread, unless its group has others."""
    memory: Memory = "4Gi"
    """The memory of a worker, unless its group has another; of `high_memory` 16Gi."""
    scheduler: PodGroup = PodGroup()
    """The scheduler."""
    driver: PodGroup = PodGroup()
    """The drivers of `etl submit`."""
    default: PodGroup = PodGroup()
    """The on-demand workers."""
    spot: WorkerGroup | None = None
    """Workers on spot nodes, which help to read and to tokenize; there are none during shuffles."""
    high_memory: WorkerGroup | None = None
    """Workers on nodes with more memory, for shuffles."""
    idle_timeout: int = Field(1800, ge=60)
    """The seconds without work after which the operator deletes the cluster."""
    environment: dict[str, str] = Field({})
    """Variables of the driver and the workers: of Tokenlake (TOKENLAKE_...), of regions, endpoints and
    threads. Credentials are in the Secret `tokenlake-s3`, other variables in the ConfigMap
    `tokenlake-settings`."""

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

    def auto_group(self) -> str | None:
        """Return the group that has as many workers as its input needs; None if all sizes are fixed."""
        if self.workers == "auto":
            return "default"
        return "spot" if self.spot is not None and self.spot.workers == "auto" else None

    def with_workers(self, workers: int | Literal["auto"] | None) -> Self:
        """Return the settings with another size of the group that is `auto`, or of the on-demand one."""
        if workers is None:
            return self
        if self.spot is not None and self.auto_group() == "spot":
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

    def worker_pods(self, group: str) -> PodGroup:
        """Return the size and place of the workers of a group: ``default``, ``spot`` or ``high-memory``."""
        own: PodGroup = getattr(self, group.replace("-", "_"))
        is_shipped = group == "high-memory"
        memory = own.memory or (None if is_shipped else self.memory)
        return own.model_copy(update={"cpu": own.cpu or self.cpu, "memory": memory})
