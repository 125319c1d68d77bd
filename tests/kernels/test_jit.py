"""Cached kernels are recompiled after a change in another file that they use."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etl.kernels import cache, cpu, jit

CALLER = """
from etl.kernels.jit import kernel
from {callee} import factor

@kernel
def scaled(number):
    return factor() * number

print(scaled(10), sum(scaled.stats.cache_hits.values()))
"""
CALLEE = """
from etl.kernels.jit import kernel

@kernel
def factor():
    return {factor}
"""

TYPED_CALLER = """
from etl.kernels.callee import {name}
from etl.kernels.jit import kernel

@kernel
def total(pair):
    return pair.one + pair.other

print(total({name}(2, 3)), sum(total.stats.cache_hits.values()))
"""
TYPED_CALLEE = """
from typing import NamedTuple

class {name}(NamedTuple):
    one: int
    other: int
"""


def copy_compiler(folder: Path) -> Path:
    """Copy the modules that compile kernels, without any kernel; return ``etl/kernels`` in the folder."""
    copy = folder / "etl/kernels"
    copy.mkdir(parents=True)
    for file in Path(jit.__file__).parent.glob("*.py"):
        shutil.copy(file, copy)
    return copy


def scaled(caller: Path, root: Path, cache: Path | None) -> list[str]:
    """Run the caller in a new process: the result and the number of cache hits."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    command = [sys.executable, str(caller)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.split()


@pytest.mark.slow
def test_a_change_in_another_subfolder_of_kernels_recompiles(tmp_path):
    root = copy_compiler(tmp_path)
    caller, callee = root / "signals/caller.py", root / "words/callee.py"
    for folder in (caller.parent, callee.parent):
        folder.mkdir()
    caller.write_text(CALLER.format(callee="etl.kernels.words.callee"))
    outputs = []
    for factor in (2, 2, 3):
        callee.write_text(CALLEE.format(factor=factor))
        outputs.append(scaled(caller, tmp_path, tmp_path / "cache"))
    assert outputs == [["20", "0"], ["20", "1"], ["30", "0"]]


@pytest.mark.slow
def test_a_change_beside_a_kernel_of_another_project_recompiles(tmp_path):
    caller, callee = tmp_path / "caller.py", tmp_path / "callee.py"
    caller.write_text(CALLER.format(callee="callee"))
    outputs = []
    for factor in (2, 2, 3):
        callee.write_text(CALLEE.format(factor=factor))
        outputs.append(scaled(caller, Path(jit.__file__).parents[2], tmp_path / "cache"))
    assert outputs == [["20", "0"], ["20", "1"], ["30", "0"]]


@pytest.mark.slow
def test_a_stale_cache_of_a_renamed_type_is_ignored_and_removed(tmp_path):
    """Numba loads the types in an index before it compares stamps: the name must differ."""
    root, cache = copy_compiler(tmp_path), tmp_path / "cache"
    outputs, files = [], []
    for name in ("Pair", "Couple", "Couple"):
        (root / "callee.py").write_text(TYPED_CALLEE.format(name=name))
        (root / "caller.py").write_text(TYPED_CALLER.format(name=name))
        outputs.append(scaled(root / "caller.py", tmp_path, cache))
        files.append({path.name for path in cache.rglob("*.nb?")})
    assert outputs == [["5", "0"], ["5", "0"], ["5", "1"]]
    assert len(files[0]) == len(files[1]) == 2  # an index and the machine code
    assert not files[0] & files[1]
    assert files[1] == files[2]


HTML_CALLER = """
from etl.kernels.html import describe
from etl.kernels.jit import count_kernels

print(describe.describe_page(b"<p>a&euro;<xmp>b</xmp>").texts, count_kernels())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "texts"),
    [
        ("tags.py", "textarea xmp iframe", "textarea iframe", "['a€b']"),  # a table
        ("entities.py", "len(raw), name in", "0, name in", "['a']"),  # a table that is computed
        (
            "attributes.py",
            "return end_key(key, at - first), at",
            "return end_key(key, 0), at",
            "['a€b']",
        ),
    ],
    ids=["table", "computed", "callee"],
)
def test_a_change_in_what_reads_html_recompiles(tmp_path, file, old, new, texts):
    kernels = tmp_path / "etl/kernels"
    shutil.copytree(
        Path(jit.__file__).parent, kernels, ignore=shutil.ignore_patterns("__pycache__")
    )
    caller, outputs = tmp_path / "caller.py", []
    caller.write_text(HTML_CALLER)
    for change in (False, False, True):
        if change:
            source = (kernels / "html" / file).read_text("utf-8")
            assert source.count(old) == 1
            (kernels / "html" / file).write_text(source.replace(old, new), "utf-8")
        outputs.append(" ".join(scaled(caller, tmp_path, tmp_path / "cache")))
    assert outputs == ["['a€'] (2, 0)", "['a€'] (0, 2)", f"{texts} (2, 0)"]


@pytest.mark.parametrize("damage", [b"", bytes(100), b"\x80\x05"], ids=["empty", "zeros", "cut"])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_damaged_machine_code_is_written_again(tmp_path, suffix, damage):
    """After a power failure, a file may be empty, end early, or have zeros."""
    kept = cache._CacheFile(str(tmp_path), "kernel", "stamp")
    kept.save("int64", "machine code")
    assert kept.load("int64") == "machine code"
    (file,) = tmp_path.glob(f"*{suffix}")
    file.write_bytes(damage)
    assert kept.load("int64") is None
    kept.save("int64", "machine code")
    assert kept.load("int64") == "machine code"


def test_machine_code_that_cannot_be_opened_is_kept_elsewhere(tmp_path):
    files = [cache._CacheFile(str(tmp_path / name), "kernel", "stamp") for name in "ab"]
    files[0].save("int64", "machine code")
    (index,) = tmp_path.glob("a/*.nbi")
    index.unlink()
    index.mkdir()
    both = cache._CacheFiles(files)
    assert both.load("int64") is None
    both.save("int64", "machine code")
    assert both.load("int64") == files[1].load("int64") == "machine code"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts a folder")
def test_machine_code_is_read_from_a_read_only_folder_and_kept_in_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)  # it would be kept there
    root = copy_compiler(tmp_path / "installed")
    caller = root / "caller.py"
    caller.write_text(CALLER.format(callee="etl.kernels.callee"))
    (root / "callee.py").write_text(CALLEE.format(factor=2))

    def read_only(home: str) -> list[str]:
        installed = shlex.quote(str(tmp_path / "installed"))
        mount = f"mount --bind {installed} {installed} && mount -o remount,ro,bind {installed}"
        command = f"{mount} && exec {sys.executable} {shlex.quote(str(caller))}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
        run = subprocess.run(
            ["unshare", "--mount", "sh", "-c", command],
            env={**environment, "HOME": home, "PYTHONPATH": str(tmp_path / "installed")},
            capture_output=True,
            text=True,
            check=True,
        )
        return run.stdout.split()

    home = str(tmp_path / "home")
    assert [read_only("/proc"), read_only(home), read_only(home)] == [
        ["20", "0"],  # it cannot be kept anywhere
        ["20", "0"],
        ["20", "1"],
    ]
    assert scaled(caller, tmp_path / "installed", None) == ["20", "0"]
    assert read_only("/proc") == ["20", "1"]


@pytest.mark.parametrize(
    ("machine", "name", "expected"),
    [
        ("x86_64", "x86-64-v3", "x86-64-v3"),
        ("x86_64", "x86-64-v4", None),
        ("x86_64", "x86-64-v5", None),
        ("aarch64", "x86-64-v3", "generic"),
    ],
)
def test_a_level_is_used_where_the_machine_has_all_of_it(monkeypatch, machine, name, expected):
    has = dict.fromkeys(cpu.CPUS["x86-64-v3"], True)
    monkeypatch.setattr(cpu.binding, "get_host_cpu_features", lambda: has)
    monkeypatch.setattr(cpu.platform, "machine", lambda: machine)
    monkeypatch.setenv("TOKENLAKE_CPU", name)
    assert cpu.cpu() == expected


def test_the_stamp_covers_paths_and_contents_of_all_subfolders(tmp_path):
    file = tmp_path / "words/uax29.py"
    file.parent.mkdir()
    file.write_text("a = 1\n")
    (tmp_path / "jit.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    stamps = [stamp(tmp_path)]
    file.write_text("a = 2\n")
    stamps.append(stamp(tmp_path))
    file.rename(tmp_path / "words/spacy.py")
    stamps.append(stamp(tmp_path))
    (tmp_path / "words/empty.py").write_text("")
    stamps.append(stamp(tmp_path))
    assert len({*stamps}) == len(stamps)
    (tmp_path / "notes.txt").write_text("not code")
    assert stamp(tmp_path) == stamps[-1]


def stamp(folder: Path) -> str:
    """The stamp of a folder, computed again."""
    return cache._stamp.__wrapped__(folder)
