"""Images that nodes have: each is a folder of programs of this machine."""

import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.helpers.manifests import ROOT

_PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True)
class Image:
    """The environment, user and entry point of an image."""

    environment: dict[str, str]
    user: int | None = None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=())


_PATH = {"PATH": f"{_PROGRAMS}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
IMAGES = {
    # As in k8s/Dockerfile.
    "registry.example.com/tokenlake:0.1.0": Image(
        {
            **_PATH,
            "HOME": "/tmp",
            "DASK_TEMPORARY_DIRECTORY": "/tmp",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),
        },
        user=1000,
    ),
    "ghcr.io/dask/dask-kubernetes-operator:*": Image(
        {**_PATH, "HOME": "/tmp", "PYTHONUNBUFFERED": "1"},
        user=1000,
        entrypoint=("kopf", "run", "-m", "dask_kubernetes.operator.controller"),
    ),
    "chrislusf/seaweedfs:*": Image(_PATH),
}


def find_image(name: str) -> Image | None:
    """Return an image by its name with tag, or None if no registry has it."""
    return next((image for pattern, image in IMAGES.items() if fnmatch(name, pattern)), None)
