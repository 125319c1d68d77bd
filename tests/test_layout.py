"""The house's floors: imports point downward only, and few modules know each big library.

A floor is a group of modules; a module imports from its own floor or from those before it, and no
imports go in a circle. A new module of ``etl`` gets its place in FLOORS, or the first test fails.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "pipelines", "etl", "cli")

FLOORS = (
    # what all may know
    ("schemas.*", "pipelines", "pipelines.sample.*", "etl.errors"),
    # the machine: files, and kernels over arrays
    ("etl.storage", "etl.compact", "etl.kernels.*"),
    # tables, sources, stages
    (
        *(
            "etl.fragment",
            "etl.transactions",
            "etl.foreign",
            "etl.checkpoint",
            "etl.log",
            "etl.snapshot",
            "etl.table",
            "etl.ledger",
            "etl.key_table",
        ),
        *("etl.lease", "etl.releases"),
    ),
    ("etl.sources.*", "etl.stages.*"),
    # what to do
    ("etl.recipe_file", "etl.recipe", "etl.references", "etl.plan"),
    # doing it
    (
        "etl.certificates",
        "etl.cluster",
        "etl.job",
        "etl.job.cadence",
        "etl.job.costs",
        "etl.job.decisions",
        "etl.job.limits",
        "etl.job.quarantine",
    ),
    (
        "etl.job.tasks",
        "etl.job.files",
        "etl.job.likeness",
        "etl.job.listed",
        "etl.job.merged",
        "etl.job.shuffle",
        "etl.job.progress",
        "etl.job.record",
        "etl.job.replaced",
        "etl.job.waves",
    ),
    ("etl.job.keys", "etl.job.commits", "etl.job.compared", "etl.job.rounds"),
    ("etl.job.near", "etl.job.paragraphs", "etl.job.dedup", "etl.job.run", "etl.frames"),
    # reading it back, training from it
    ("etl.audit.*",),
    ("etl.care.*",),
    ("etl.loader.*",),
    # the public names, and what a person calls
    ("etl",),
    ("cli.*", "pipelines.tour", "pipelines.gpt", "pipelines.train_ddp"),
)
"""From the ground up; ``package.*`` is a package and all in it."""

ONLY: dict[str, tuple[str, ...]] = {
    "etl.kernels.*": ("etl.kernels.*",),
    "etl.loader.*": (
        *("schemas.*", "etl.errors", "etl.storage", "etl.table", "etl.releases"),
        "etl.loader.*",
    ),
    "schemas.*": ("schemas.*",),
    "pipelines": (),
}
"""Modules that may know less of the house than their floor allows."""

DASK = (
    *("etl.job.run", "etl.job.waves", "etl.job.dedup", "etl.job.near", "etl.job.keys"),
    *("etl.job.paragraphs", "etl.job.rounds", "etl.job.commits"),
    *("etl.cluster", "etl.frames"),
)

LIBRARIES = {
    "deltalake": ("etl.table", "etl.foreign"),
    "dask": (*DASK, "etl.job.shuffle", "etl.job.listed"),
    "distributed": DASK,
    "fsspec": ("etl.storage",),
    "s3fs": ("etl.storage",),
    "numba": ("etl.kernels.*",),
    "llvmlite": ("etl.kernels.machine",),
    "torch": ("etl.loader.*", "pipelines.gpt", "pipelines.train_ddp"),
    "cryptography": ("etl.certificates",),
    "typer": ("cli.*",),
}
"""Library -> the modules that may import it."""

SPARSE = {
    "schemas.*": {"pyarrow", "pydantic"},
    "etl.kernels.*": {"numpy", "numba", "llvmlite", "pyarrow"},
    "etl.errors": set[str](),
}
"""Modules -> the only libraries that they may import besides the standard one."""

HEAVY = ("dask", "distributed", "numba", "pandas", "polars", "tokenizers", "fasttext")
"""What a training process must not load: each takes tens of MB, or hundreds of milliseconds."""


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    _name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
}


def _matches(module: str, patterns: tuple[str, ...]) -> bool:
    return any(
        fnmatch(module, pattern) or module == pattern.removesuffix(".*") for pattern in patterns
    )


def _floor(module: str) -> int | None:
    found = [floor for floor, patterns in enumerate(FLOORS) if _matches(module, patterns)]
    return found[0] if found else None


def _imports(module: str) -> Iterator[str]:
    """The modules that a file imports anywhere in it: ours by file, others by their top name."""
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute here"
            base = node.module or ""
            below = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name in FILES else base for name in below]
        else:
            continue
        yield from (n if n.split(".")[0] in PACKAGES else n.split(".")[0] for n in names)


EDGES = [(module, target) for module in FILES for target in sorted(set(_imports(module)))]
OURS = [(module, target) for module, target in EDGES if target.split(".")[0] in PACKAGES]


def test_every_module_has_a_floor() -> None:
    assert [module for module in FILES if _floor(module) is None] == []


def test_imports_point_downward() -> None:
    upward = [
        (module, target) for module, target in OURS if (_floor(module) or 0) < (_floor(target) or 0)
    ]
    assert upward == []


def test_imports_do_not_go_in_a_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in FILES}
    for module, target in OURS:
        graph[module].add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("modules", ONLY)
def test_some_know_little_of_the_house(modules: str) -> None:
    found = {
        (module, target)
        for module, target in OURS
        if _matches(module, (modules,)) and not _matches(target, ONLY[modules])
    }
    assert found == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_few_modules_know_a_library(library: str) -> None:
    found = [module for module, target in EDGES if target == library]
    assert [module for module in found if not _matches(module, LIBRARIES[library])] == []


@pytest.mark.parametrize("modules", SPARSE)
def test_some_modules_need_few_libraries(modules: str) -> None:
    known = SPARSE[modules] | sys.stdlib_module_names | set(PACKAGES)
    found = {
        (module, target)
        for module, target in EDGES
        if _matches(module, (modules,)) and target.split(".")[0] not in known
    }
    assert found == set()


@pytest.mark.parametrize("module", ["etl.loader", "schemas", "etl.errors"])
def test_a_training_process_loads_no_pipeline(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{*sys.modules}} & {{*{HEAVY}}}))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
