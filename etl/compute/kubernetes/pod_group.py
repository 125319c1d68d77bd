"""`PodGroup`: the size and place of the pods of a group in a cluster file, by the rules of Kubernetes."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from etl.compute.cluster_settings import Cpu, Disk, Memory, Workers
from etl.settings_files.settings import Settings

_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_DOMAIN_CHARS: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The part of a key after the slash, and a value that is not empty: at most 63 characters."""
_OURS: Final = ("app.kubernetes.io/", "batch.kubernetes.io/", "dask.org/", "tokenlake/")
_OF_JOBS: Final = ("controller-uid", "job-name")
_MAX_ANNOTATION_BYTES: Final = 256 << 10  # of all annotations of a pod


def _check_key(key: str) -> str:
    domain, slash, name = key.rpartition("/")
    if _NAME.fullmatch(name) is None or (slash and not _is_domain(domain)):
        raise ValueError(
            f"{key!r} is not a key of Kubernetes, such as pool or example.com/pool: up to 63 letters, "
            "digits, '-', '_' and '.', perhaps after a domain in lower case and '/'"
        )
    return key


def _check_value(value: str) -> str:
    if value and _NAME.fullmatch(value) is None:
        raise ValueError(
            f"{value!r} is not a value of Kubernetes' labels: up to 63 letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
    return value


def _check_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in labels.items():
        _check_key(key)
        _check_value(value)
    return labels


def _check_object(name: str) -> str:
    if not _is_domain(name):
        raise ValueError(
            f"{name!r} is not a name of Kubernetes: up to {_MAX_DOMAIN_CHARS} lower-case letters, digits, "
            "'-' and '.', with a letter or digit at both ends"
        )
    return name


def _is_domain(text: str) -> bool:
    return len(text) <= _MAX_DOMAIN_CHARS and _DOMAIN.fullmatch(text) is not None


Key = Annotated[str, AfterValidator(_check_key)]
Value = Annotated[str, AfterValidator(_check_value)]
Labels = Annotated[dict[str, str], AfterValidator(_check_labels)]
ObjectName = Annotated[str, AfterValidator(_check_object)]


class Toleration(Settings):
    """A taint of nodes that the pods of a group tolerate, as in Kubernetes."""

    key: Key | None = None
    """The key of the taint; null: every taint, with the operator Exists."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the taint must have the value, or any."""
    value: Value | None = None
    """The value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The effect of the taint; null: each."""
    toleration_seconds: int | None = None
    """With the effect NoExecute: how long pods stay on a node after it gets the taint; null: always."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise ValueError("without a key, operator is Exists")
        if self.operator == "Exists" and self.value:
            raise ValueError(f"with the operator Exists there is no value, not {self.value!r}")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("toleration_seconds is for the effect NoExecute")
        return self


class TopologySpread(Settings):
    """How the pods of a group are spread over parts of the cluster, as in Kubernetes."""

    topology_key: Key
    """The label of nodes that names the part, such as topology.kubernetes.io/zone."""
    max_skew: int = Field(1, ge=1)
    """By how many pods two parts may differ."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """What happens to a pod that would exceed it."""


class PodGroup(Settings):
    """The size and place of the pods of a group; null: as in the manifest of the group."""

    cpu: Cpu | None = None
    """The CPUs that a pod requests; it may use more."""
    memory: Memory | None = None
    """The memory that a pod requests, and its limit."""
    ephemeral_storage: Disk | None = None
    """The disk that a pod requests, and the size of its `/tmp`."""
    node_selector: Labels | None = None
    """The labels of the nodes."""
    tolerations: tuple[Toleration, ...] | None = Field(None, strict=False)
    """The taints of nodes that are tolerated."""
    topology_spread: tuple[TopologySpread, ...] | None = Field(None, strict=False)
    """How the pods of the group are spread over zones or nodes."""
    priority_class: ObjectName | None = None
    """The PriorityClass."""
    image_pull_secrets: tuple[ObjectName, ...] | None = Field(None, strict=False)
    """The Secrets with which nodes pull the image."""
    labels: Labels | None = None
    """Further labels, such as those by which costs are assigned."""
    annotations: dict[str, str] | None = None
    """Further annotations."""

    @field_validator("labels", "annotations")
    @classmethod
    def _check_ours(cls, values: dict[str, str] | None) -> dict[str, str] | None:
        for key in values or {}:
            if _check_key(key).startswith(_OURS) or key in _OF_JOBS:
                raise ValueError(f"{key} is set by Tokenlake, Dask's operator or Kubernetes")
        return values

    @field_validator("annotations")
    @classmethod
    def _check_size(cls, values: dict[str, str] | None) -> dict[str, str] | None:
        size = sum(len(text.encode()) for pair in (values or {}).items() for text in pair)
        if size > _MAX_ANNOTATION_BYTES:
            raise ValueError(f"{size:,} bytes; at most {_MAX_ANNOTATION_BYTES:,} in a pod")
        return values

    @field_validator("topology_spread")
    @classmethod
    def _check_spread(
        cls, spread: tuple[TopologySpread, ...] | None
    ) -> tuple[TopologySpread, ...] | None:
        pairs = [(each.topology_key, each.when_unsatisfiable) for each in spread or ()]
        if repeated := {key for key, effect in pairs if pairs.count((key, effect)) > 1}:
            raise ValueError(f"{min(repeated)} occurs twice with the same when_unsatisfiable")
        return spread


class WorkerGroup(PodGroup):
    """A group of workers besides the on-demand ones: a group of pods with a size."""

    workers: Workers
    """The number of workers; `auto` is for `spot` only."""
