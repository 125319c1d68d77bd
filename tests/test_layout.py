"""Layers of the code: imports point downward only, and few modules import each large library.

A layer is a group of modules. A module imports only from its own layer or lower ones, and there are no
import cycles. A new module of ``etl`` must be added to LAYERS, or the first test fails.
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

LAYERS = (
    # common to all
    ("schemas.*", "pipelines", "pipelines.sample.*", "etl.errors"),
    # files, and kernels over arrays
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
    # recipes and plans
    ("etl.recipe_file", "etl.recipe", "etl.references", "etl.plan"),
    # jobs
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
    # inspection, maintenance, training
    ("etl.audit.*",),
    ("etl.care.*",),
    ("etl.loader.*",),
    # the public API and the entry points
    ("etl",),
    ("cli.*", "pipelines.tour", "pipelines.gpt", "pipelines.train_ddp"),
)
"""Patterns of modules, lowest layer first; ``package.*`` is a package and its modules."""

ALLOWED_MODULES: dict[str, tuple[str, ...]] = {
    "etl.kernels.*": ("etl.kernels.*",),
    "etl.loader.*": (
        *("schemas.*", "etl.errors", "etl.storage", "etl.table", "etl.releases"),
        "etl.loader.*",
    ),
    "schemas.*": ("schemas.*",),
    "pipelines": (),
}
"""Modules -> the only modules of this project that they may import, where layers allow more."""

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
"""Library -> the only modules that may import it."""

ALLOWED_LIBRARIES = {
    "schemas.*": {"pyarrow", "pydantic"},
    "etl.kernels.*": {"numpy", "numba", "llvmlite", "pyarrow"},
    "etl.errors": set[str](),
}
"""Modules -> the only libraries that they may import besides the standard library."""

HEAVY_LIBRARIES = ("dask", "distributed", "numba", "pandas", "polars", "tokenizers", "fasttext")
"""Libraries that a training process must not import: each costs tens of MB or hundreds of ms."""


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


def _layer(module: str) -> int | None:
    layers = [layer for layer, patterns in enumerate(LAYERS) if _matches(module, patterns)]
    return layers[0] if layers else None


def _imports(module: str) -> Iterator[str]:
    """Yield all imports of a file: modules of this project by full name, libraries by top-level name."""
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: import is not absolute"
            base = node.module or ""
            targets = [f"{base}.{alias.name}" for alias in node.names]
            names = [target if target in FILES else base for target in targets]
        else:
            continue
        yield from (n if n.split(".")[0] in PACKAGES else n.split(".")[0] for n in names)


EDGES = [(module, target) for module in FILES for target in sorted(set(_imports(module)))]
INTERNAL_EDGES = [(module, target) for module, target in EDGES if target.split(".")[0] in PACKAGES]


def test_every_module_has_a_layer() -> None:
    assert [module for module in FILES if _layer(module) is None] == []


def test_imports_point_downward() -> None:
    upward = [
        (module, target)
        for module, target in INTERNAL_EDGES
        if (_layer(module) or 0) < (_layer(target) or 0)
    ]
    assert upward == []


def test_there_are_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {module: set() for module in FILES}
    for module, target in INTERNAL_EDGES:
        graph[module].add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("modules", ALLOWED_MODULES)
def test_some_modules_import_few_others(modules: str) -> None:
    forbidden = {
        (module, target)
        for module, target in INTERNAL_EDGES
        if _matches(module, (modules,)) and not _matches(target, ALLOWED_MODULES[modules])
    }
    assert forbidden == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_few_modules_import_a_library(library: str) -> None:
    importers = [module for module, target in EDGES if target == library]
    assert [module for module in importers if not _matches(module, LIBRARIES[library])] == []


@pytest.mark.parametrize("modules", ALLOWED_LIBRARIES)
def test_some_modules_import_few_libraries(modules: str) -> None:
    allowed = ALLOWED_LIBRARIES[modules] | sys.stdlib_module_names | set(PACKAGES)
    forbidden = {
        (module, target)
        for module, target in EDGES
        if _matches(module, (modules,)) and target.split(".")[0] not in allowed
    }
    assert forbidden == set()


@pytest.mark.parametrize("module", ["etl.loader", "schemas", "etl.errors"])
def test_a_training_process_imports_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{*sys.modules}} & {{*{HEAVY_LIBRARIES}}}))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
