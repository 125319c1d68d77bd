"""The architecture of the package: which packages import which, and who may import a library."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINKS = ("cli", "k8s", "pipelines", "schemas")

LAYERS = (
    ("visible_text", "text_width", "plural"),
    ("errors", "schemas", "kernels"),
    ("storage", "compact_collections", "html", "frames", "row_condition", "settings_files"),
    ("parquet",),
    ("compute", "delta", "text"),
    ("sources",),
    ("stages",),
    ("pipelines",),
    ("recipe",),
    ("lake",),
    ("dedup", "audit", "loader", "dataframe", "notebook"),
    ("maintenance", "exports", "change"),
    ("job",),
    ("cli",),
)
"""Packages and modules of ``etl`` from the bottom up. Each may import itself and the layers below."""

EXAMPLES = ("etl.pipelines.tour", "etl.pipelines.gpt", "etl.pipelines.train_ddp")
"""Example programs, which may import everything, as a user's program does."""

ONLY: dict[str, tuple[str, ...]] = {
    "etl.delta": ("errors", "compact_collections", "parquet", "storage"),
    "etl.kernels": (),
    "etl.loader": (
        "errors",
        "schemas",
        "html",
        "storage",
        "parquet",
        "delta",
        "lake.commit_info",
        "lake.leases",
        "lake.open_tokens",
        "lake.random_keys",
        "lake.releases",
        "lake.vacuums",
        "row_condition",
        "plural",
    ),
    "etl.parquet": ("errors", "storage", "kernels"),
    "etl.schemas": (),
}
"""Packages that may import less than their layer allows: only themselves and these."""

LIBRARIES = {
    "dask": ("etl.compute.*", "etl.dedup.*", "etl.dataframe", "etl.notebook"),
    "deltalake": ("etl.delta.*",),
    "distributed": (
        "etl.compute.*",
        "etl.dedup.*",
        "etl.job.cluster_job",
        "etl.job.doctor",
        "etl.job.run_steps",
        "etl.job.run",
        "etl.job.shipped_files",
        "etl.job.shuffle",
    ),
    "cryptography": ("etl.compute.certificates",),
    "fsspec": ("etl.storage.local_listing", "etl.storage.filesystem"),
    "kr8s": ("etl.compute.kubernetes.*",),
    "llvmlite": ("etl.kernels.bytes.lanes", "etl.kernels.bytes.simd", "etl.kernels.cpu"),
    "numba": ("etl.kernels.*",),
    "pyarrow.parquet": ("etl.parquet.*", "etl.sources.formats.*", "etl.pipelines.sample.build"),
    "s3fs": ("etl.storage.*",),
    "torch": ("etl.loader.*", *EXAMPLES),
    "typer": ("etl.cli.*",),
    "yaml": ("etl.recipe.*", "etl.settings_files.*"),
}
"""Libraries that only these modules import."""

OPEN_PARQUET = (
    "etl.parquet.*",
    "etl.audit.verify.file_checks",
    "etl.delta.checkpoint",
    "etl.exports.documents",
    "etl.exports.megatron",
    "etl.job.text_expansion",
    "etl.loader.*",
    "etl.maintenance.commit_losses",
    "etl.sources.peek",
    "etl.stages.annotation_table",
)
"""Modules that open or write Parquet files other than the data files of tables, or read these by ranges or as
they are stored. All others read rows of a table through ``etl.delta.live_rows``.
"""

STORED_ROWS = (
    "etl.parquet.*",
    "etl.delta.live_rows",
    "etl.audit.verify.row_checks",  # running totals include struck rows
    "etl.lake.merge_files",  # the layout of a file
    "etl.lake.row_difference",  # struck rows may come back
    "etl.lake.table_digest",  # struck rows
    "etl.dedup.stored_file_list",  # a file that no table lists
)
"""Modules that read rows of data files as they are stored, with those that are struck."""

LOADER_CHAIN = ("order", "fetch", "batches")
"""Packages of ``etl.loader``. Each imports from the loader only itself and those before it."""

SPARSE = {
    "etl.schemas": {"pyarrow", "pydantic"},
    "etl.kernels": {"numpy", "numba", "llvmlite", "pyarrow"},
    "etl.errors": set[str](),
    "etl.loader.order": {"numpy"},
}
"""Packages that import these libraries only, besides the standard library."""

HEAVY = ("dask", "distributed", "numba", "pandas", "polars", "tokenizers", "fasttext")
"""Libraries that a training process must not load: tens of MB, or hundreds of milliseconds each."""

OF_WORKERS = (
    "dask",
    "distributed",
    "numba",
    "pandas",
    "pyarrow.dataset",
    "tokenizers",
    "gigatoken",
    "ftfy",
)
"""Libraries that only the work of a run needs, not its plan."""

LIGHT = {
    "etl.loader.dataset": HEAVY,
    "etl.schemas": HEAVY,
    "etl.errors": HEAVY,
    "etl.html.card": ("jinja2", *HEAVY),
    "etl.delta.table": HEAVY,
    "etl.loader.measure_evenness": ("torch", *HEAVY),
    "etl.loader.fetch.read_index": ("torch", *HEAVY),
    "etl.stages": OF_WORKERS,
    "etl.job.run": OF_WORKERS,
    "etl.job.cost_estimate": OF_WORKERS,
    "etl.audit.duplicates.duplicate_report": OF_WORKERS,
    "etl.audit.lake_report": OF_WORKERS,
    "etl.audit.lineage_graph": OF_WORKERS,
    "etl.audit.row_lookup": OF_WORKERS,
    "etl.audit.trace": OF_WORKERS,
    "etl.audit.tune.tune": OF_WORKERS,
    "etl.audit.verify.verify": OF_WORKERS,
}
"""Modules with the libraries that they must not load."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "etl" else ("etl", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_name(path): path
    for folder in ("etl", *LINKS)
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def package(module: str) -> str:
    """The package or module of ``etl`` that a module belongs to."""
    return module.split(".")[1]


def is_in(module: str, patterns: tuple[str, ...]) -> bool:
    return any(
        fnmatch(module, pattern) or module == pattern.removesuffix(".*") for pattern in patterns
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(module: str) -> Iterator[str]:
    """The modules that a file imports anywhere in it, by their full names."""
    for node in ast.walk(tree_of(FILES[module])):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: use absolute imports"
            base = node.module or ""
            submodules = [f"{base}.{alias.name}" for alias in node.names]
            # A name that is imported from a library may be that of a module.
            is_own = base.split(".")[0] == "etl"
            names = [name if name in FILES or not is_own else base for name in submodules]
        else:
            continue
        yield from names


IMPORTS = [(module, target) for module in FILES for target in sorted(set(imported_modules(module)))]
INTERNAL = [(module, target) for module, target in IMPORTS if target.split(".")[0] == "etl"]
ACROSS = [
    (module, target)
    for module, target in INTERNAL
    if "etl" not in (module, target)
    and module not in EXAMPLES
    and package(module) != package(target)
]


def test_every_package_has_a_layer() -> None:
    known = {name for layer in LAYERS for name in layer}
    assert {package(module) for module in FILES if module != "etl"} == known


def test_imports_point_to_lower_layers() -> None:
    layer_of = {name: index for index, layer in enumerate(LAYERS) for name in layer}
    wrong = [
        (module, target)
        for module, target in ACROSS
        if layer_of[package(target)] >= layer_of[package(module)]
    ]
    assert wrong == []


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in FILES}
    for module, target in INTERNAL:
        if module != "etl":  # imports lazily
            graph[module].add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("restricted", ONLY)
def test_restricted_packages_import_nothing_else_of_etl(restricted: str) -> None:
    allowed = tuple(f"etl.{name}.*" for name in ONLY[restricted])
    wrong = [
        (module, target)
        for module, target in ACROSS
        if is_in(module, (f"{restricted}.*",)) and not is_in(target, allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("index", range(len(LOADER_CHAIN)), ids=LOADER_CHAIN)
def test_the_loader_is_a_chain_of_packages(index: int) -> None:
    *earlier, package_name = (f"etl.loader.{name}.*" for name in LOADER_CHAIN[: index + 1])
    wrong = [
        (module, target)
        for module, target in INTERNAL
        if is_in(module, (package_name,))
        and is_in(target, ("etl.loader.*",))
        and not is_in(target, (*earlier, package_name))
    ]
    assert wrong == []


def test_nothing_in_the_order_of_the_loader_reads_files() -> None:
    targets = {target for module, target in IMPORTS if is_in(module, ("etl.loader.order.*",))}
    internal = {target for target in targets if target.split(".")[0] == "etl"}
    assert all(is_in(target, ("etl.errors", "etl.loader.order.*")) for target in internal)
    tops = {target.split(".")[0] for target in targets}
    assert not tops & {"pathlib", "os", "io", "mmap", "tempfile"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_few_modules_import_a_library(library: str) -> None:
    importers = [module for module, target in IMPORTS if is_in(target, (f"{library}.*",))]
    assert [module for module in importers if not is_in(module, LIBRARIES[library])] == []


def test_rows_of_tables_are_read_in_one_place() -> None:
    importers = [module for module, target in IMPORTS if target == "etl.parquet.parquet_file"]
    assert [module for module in importers if not is_in(module, OPEN_PARQUET)] == []


def test_struck_rows_are_left_out_in_one_place() -> None:
    readers = {"open_data_file", "read_columns", "read_row_groups"}
    importers = {
        module
        for module, path in FILES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == "etl.parquet.data_file_reader"
        if readers & {alias.name for alias in node.names}
    }
    assert {module for module in importers if not is_in(module, STORED_ROWS)} == set()


@pytest.mark.parametrize("sparse", SPARSE)
def test_some_packages_need_few_libraries(sparse: str) -> None:
    known = SPARSE[sparse] | sys.stdlib_module_names | {"etl"}
    libraries = {
        target.split(".")[0] for module, target in IMPORTS if is_in(module, (f"{sparse}.*",))
    }
    assert libraries <= known


@pytest.mark.parametrize(("module", "libraries"), LIGHT.items())
def test_a_module_loads_few_libraries(module: str, libraries: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sorted({{*sys.modules}} & {{*{libraries}}}))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


def test_a_file_name_occurs_once() -> None:
    """A command has the name of what it prints, and an ``__init__`` that of its folder."""
    paths: dict[str, list[str]] = {}
    for module, path in FILES.items():
        if path.name != "__init__.py" and not is_in(module, ("etl.cli.commands.*",)):
            paths.setdefault(path.name, []).append(module)
    assert [modules for modules in paths.values() if len(modules) > 1] == []


SHARED_CLASSES = {
    "Split": "users of the loader divide a table into sides by it, and a source is cut into splits",
}
"""Names of two public classes, each with the reason."""


def test_a_class_name_occurs_once() -> None:
    """Except private classes, which only their own file uses, and those of the example programs."""
    modules: dict[str, list[str]] = {}
    for module in FILES.keys() - {*EXAMPLES}:
        path = FILES[module]
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(module)
    assert {name for name, found in modules.items() if len(found) > 1} == SHARED_CLASSES.keys()


@pytest.mark.parametrize("folder", LINKS)
def test_a_top_level_folder_is_linked_into_the_package(folder: str) -> None:
    link = ROOT / "etl" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder


def test_nothing_imports_a_top_level_folder_by_its_own_name() -> None:
    """That would load a second copy of each module."""
    modules = [
        *FILES.values(),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "benchmarks").glob("*.py"),  # not modules of the peers' environments
        *(ROOT / "benchmarks" / "peers").rglob("*.py"),
    ]
    for path in modules:
        for node in ast.walk(tree_of(path)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            tops = {name.split(".")[0] for name in names}
            assert not tops & {*LINKS}, f"{path}:{node.lineno}: import etl.{tops.pop()} instead"


TEST_FOLDERS = ("benchmarks", "chaos", "damage", "fuzz", "helpers", "k8s")
"""Folders of tests that belong to no package."""

WHOLE_REPOSITORY = (
    "api",
    "docs",
    "generated_files",
    "glossary",
    "layout",
    "long",
    "prose",
    "readme",
    "sample",
    "site",
    "sizes",
    "wheel",
)
"""Test modules that belong to no package or module of ``etl``."""


def test_the_test_folders_are_those_of_the_packages() -> None:
    packages = {package(module) for module, path in FILES.items() if module != "etl"}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert folders <= packages | {*TEST_FOLDERS}
    modules = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    assert modules <= packages | {*WHOLE_REPOSITORY}


def test_tests_share_only_helpers() -> None:
    """A test module that imported another one would collect its fixtures and tests, too."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            parts = {
                part for name in names if name.startswith("tests.") for part in name.split(".")
            }
            wrong = {part for part in parts if part == "conftest" or part.startswith("test_")}
            assert not wrong, f"{path}:{node.lineno}: move what they share to tests/helpers"
