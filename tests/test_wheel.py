"""The built distribution: it installs one importable name, and works where others use the same names."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPS = platform.system() == "Linux" and platform.machine() == "x86_64"

LOADER = """
from etl.loader import TokenDataset
batch = next(iter(TokenDataset("lake", seq_len=64).batches(2)))
assert batch["input_ids"].shape == (2, 64)
"""

COLLAPSE = """
import sys
from llvmlite import binding

if "--without-avx2" in sys.argv:
    features = binding.get_host_cpu_features()
    features["avx2"] = False
    binding.get_host_cpu_features = lambda: features

import pyarrow as pa
from etl.kernels import jit
from etl.kernels.bytes import utf8, whitespace

_, data = whitespace.collapse(utf8.texts(pa.array(["one  two\\n three ", "\u2003four"])))
print(bytes(data), *jit.count_kernels())
"""

RECIPE = """
name: mine
source: {path: pages.jsonl}
stages:
  - language: {keep: [en], min_score: 0.5}
  - dedup_exact
"""


def run(*command: str | Path, cwd: Path, check: bool = True, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= variables
    result = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository."""
    tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    tree = tmp_path_factory.mktemp("tree")  # a build leaves files behind in its tree
    for name in filter(None, tracked):
        source, copy = ROOT / name, tree / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                copy.symlink_to(source.readlink())
            else:
                copy.write_bytes(source.read_bytes())
    return tree


@pytest.fixture(scope="module")
def dist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source distribution and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, tree, cwd=tree)
    return folder


@pytest.fixture(scope="module")
def compiled(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with a wheel that has compiled kernels."""
    folder = tmp_path_factory.mktemp("compiled")
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, tree)
    run(*build, cwd=tree, TOKENLAKE_SHIP_KERNELS="1")
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.endswith(
        f"-cp{sys.version_info.major}{sys.version_info.minor}-none-manylinux_2_28_x86_64.whl"
    )
    return borrow(wheel, folder / "environment")


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) for name in ("borrowed", "installed")],
)
def python(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the interpreter of an environment with the wheel; dependencies are installed or borrowed."""
    folder = tmp_path_factory.mktemp("environment")
    python = folder / "bin" / "python"
    if request.param == "installed":
        venv.create(folder, with_pip=True, symlinks=True)
        constraints = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[train]", cwd=folder)
    else:
        python = borrow(wheel, folder)
    return python


def borrow(wheel: Path, folder: Path) -> Path:
    """Install a wheel into an environment that uses the libraries of this one; return its interpreter."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    index = ("--no-index", "--find-links", wheel.parent)  # pip must accept the tag
    run(python, "-m", "pip", "install", "-q", "--no-deps", *index, "tokenlake", cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    here = sysconfig.get_path("purelib")  # its own .pth files, and so this checkout, are not read
    Path(site.strip(), "borrowed.pth").write_text(f"{here}\n")
    return python


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Return a working folder with modules named like the top-level folders of the repository."""
    for name in ("cli", "schemas", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the user')\n")
    return tmp_path


@pytest.mark.slow
def test_the_wheel_installs_one_importable_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"etl"}
    assert {
        "etl/py.typed",
        "etl/cli/app.py",
        "etl/k8s/cluster/dask.yaml",
        "etl/k8s/cluster/driver.yaml",
        "etl/pipelines/demo.yaml",
        "etl/pipelines/sample/kjv.jsonl.gz",
        "etl/pipelines/sample/tokenizer.json",
        "etl/schemas/recipe.schema.json",
    } <= set(names)


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    tracked = run("git", "ls-files", "etl", "cli", "pipelines", "schemas", cwd=ROOT).splitlines()
    modules = {
        name if name.startswith("etl/") else f"etl/{name}"
        for name in tracked
        if name.endswith((".py", ".yaml", ".json", ".parquet", ".gz", ".jsonl"))
    }
    assert modules <= set(zipfile.ZipFile(wheel).namelist())


def test_the_source_distribution_holds_the_package_as_files(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
    assert members["etl/cli/app.py"].isfile()


def test_the_demo_and_the_loader_run_from_a_folder_with_modules_of_the_same_names(
    python: Path, trap: Path
) -> None:
    printed = run(
        python.parent / "etl", "run", "demo", "--lake", "lake", "--workers", "1", cwd=trap
    )
    assert "tokens" in printed
    run(python, "-c", LOADER, cwd=trap)


def test_another_recipe_runs_and_finds_the_language_model(python: Path, trap: Path) -> None:
    (trap / "mine.yaml").write_text(RECIPE)
    text = (
        "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun all day long."
    )
    (trap / "pages.jsonl").write_text(f'{{"text": "{text}"}}\n' * 3)
    printed = run(
        python.parent / "etl", "run", "mine.yaml", "--lake", "other", "--workers", "1", cwd=trap
    )
    assert "kept" in printed
    assert "fineweb" in run(python.parent / "etl", "recipes", cwd=trap)


@pytest.mark.parametrize("lost", ["text", "missing", "dangling"])
def test_a_tree_without_the_links_is_not_built(tmp_path: Path, lost: str) -> None:
    """Git without symbolic links writes the target of a link as text, and so does unpacking a zip file."""
    (tmp_path / "etl").mkdir()
    for name in ("setup.py", "pyproject.toml", "etl/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for link in (path for path in (ROOT / "etl").iterdir() if path.is_symlink()):
        if lost == "text":
            (tmp_path / "etl" / link.name).write_text(str(link.readlink()))
        elif lost == "dangling":
            (tmp_path / "etl" / link.name).symlink_to(link.readlink())
    command = (sys.executable, "-m", "build", "--no-isolation", "--wheel", tmp_path)
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert f"{tmp_path}/etl/cli is not a link to the folder cli/" in result.stdout + result.stderr
    assert not list(tmp_path.rglob("*.whl"))


def files(python: Path) -> set[Path]:
    """Return the files of compiled kernels in an environment."""
    return set(python.parents[1].rglob("*.nb[ci]"))


@pytest.mark.slow
@pytest.mark.skipif(not SHIPS, reason="kernels are shipped for x86-64 Linux")
def test_an_installed_wheel_compiles_nothing(compiled: Path, tmp_path: Path) -> None:
    shipped = files(compiled)
    main = "from etl.cli import main; main()"
    variables = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    warm = json.loads(run(compiled, "-c", main, "warm", "--json", cwd=tmp_path, **variables))
    assert warm["compiled"] == 0
    assert warm["loaded"] > 30
    assert not list(tmp_path.rglob("*.nb?"))
    assert files(compiled) == shipped


@pytest.mark.slow
@pytest.mark.skipif(not SHIPS, reason="kernels are shipped for x86-64 Linux")
def test_other_processors_compile_and_keep_nothing_in_the_package(
    compiled: Path, tmp_path: Path
) -> None:
    kept = {"NUMBA_CACHE_DIR": str(tmp_path)}
    texts = "b'one two threefour'"
    assert run(compiled, "-c", COLLAPSE, cwd=tmp_path, **kept) == f"{texts} 0 1\n"
    for counts in ("1 0", "0 1"):
        output = run(compiled, "-c", COLLAPSE, "--without-avx2", cwd=tmp_path, **kept)
        assert output == f"{texts} {counts}\n"
    assert list(tmp_path.rglob("*.nbc"))
