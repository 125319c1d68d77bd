"""The versions of Python, Tokenlake and the libraries that must be the same on the driver and all workers."""

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from unicodedata import unidata_version

import etl

NOT_INSTALLED: Final = "not installed"
CODE: Final = "the code of tokenlake"

# Apart from the recipe, a result depends on our code and on these libraries.
_OF_RESULTS = (
    "tokenlake", "pyarrow", "polars", "numba", "deltalake", "tokenizers", "gigatoken",
    "xxhash", "ftfy", "idna", "brotli", "resiliparse", "trafilatura",
)  # fmt: skip
# Only recipes with words of Chinese, Japanese or Korean need these.
_OPTIONAL = ("jieba", "kiwipiepy", "kiwipiepy_model", "sudachipy", "sudachidict_core")
# Driver and workers exchange objects of these, or messages that these encode.
_OF_PICKLES = ("dask", "distributed", "cloudpickle", "msgpack", "numpy", "pandas", "pydantic")
# Workers do not run the code of these packages.
_OF_DRIVER = ("cli", "pipelines")

_MAX_SHOWN = 3  # differences of a worker


@cache  # 18 ms: several commits of a small run would take most of its time
def library_versions() -> Mapping[str, str]:
    """Return the installed versions of Tokenlake and of the libraries that results depend on."""
    versions = {"unicode": unidata_version}  # defines letters, digits and marks
    versions.update({name: installed_version(name) for name in _OF_RESULTS})
    optional = {name: installed_version(name) for name in _OPTIONAL}
    return versions | {name: each for name, each in optional.items() if each != NOT_INSTALLED}


@cache
def environment_versions() -> Mapping[str, str]:
    """Return what must be the same in all processes of a run.

    Besides libraries these are the minor version of Python, on which bytecode depends, and a digest of the
    code of this package: an installation from sources may differ without another version.
    """
    versions = {"python": ".".join(platform.python_version_tuple()[:2]), **library_versions()}
    versions.update({name: installed_version(name) for name in _OF_PICKLES})
    return {**versions, CODE: _digest_of_code()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the versions that differ, by name: here and there.

    Libraries that only some recipes need, and that one side lacks, are left out.

    >>> differences({"numpy": "2.1", "jieba": "0.42"}, {"numpy": "2.2"})
    {'numpy': ('2.1', '2.2')}
    """
    pairs = {
        name: (here.get(name, NOT_INSTALLED), there.get(name, NOT_INSTALLED))
        for name in dict.fromkeys([*here, *there])
    }
    return {
        name: pair
        for name, pair in pairs.items()
        if pair[0] != pair[1] and not (name in _OPTIONAL and NOT_INSTALLED in pair)
    }


def describe(different: Mapping[str, tuple[str, str]]) -> str:
    """Return differences as the end of a sentence about the other process.

    >>> describe({"numpy": ("2.1", "2.2"), "dask": ("2026.8", "not installed")})
    'has numpy 2.2 (the driver: 2.1) and dask not installed (the driver: 2026.8)'
    """
    parts = [f"{name} {there} (the driver: {here})" for name, (here, there) in different.items()]
    if len(parts) > _MAX_SHOWN:
        parts = [*parts[:_MAX_SHOWN], f"{len(parts) - _MAX_SHOWN} more differences"]
    *first, last = parts
    return f"has {', '.join(first)} and {last}" if first else f"has {last}"


def hint(different: Mapping[str, tuple[str, str]]) -> str:
    """Return how to make both sides equal.

    >>> hint({"numpy": ("2.1", "2.2")})
    'use the same image, or environment, for the driver and all workers; there: pip install numpy==2.1'
    """
    install = [
        f"{name}=={here}"
        for name, (here, _) in different.items()
        if name not in ("python", "unicode", CODE) and here != NOT_INSTALLED
    ]
    same = "use the same image, or environment, for the driver and all workers"
    return f"{same}; there: pip install {' '.join(install)}" if install else same


def installed_version(name: str) -> str:
    """Return the version of a package, or ``NOT_INSTALLED``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return NOT_INSTALLED


def _digest_of_code() -> str:
    """Return a digest of the source files of this package that workers use (10 ms)."""
    assert etl.__file__ is not None
    root = Path(etl.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] not in _OF_DRIVER:
            digest.update(f"{name.as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
