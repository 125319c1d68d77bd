"""Build a wheel with compiled kernels if TOKENLAKE_SHIP_KERNELS is 1, as in `make dist`.

A tree without the links in ``etl/`` is refused, since its wheel would lack ``etl.cli`` and others. Everything
else about the distribution is in pyproject.toml.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SHIPPED = "x86-64-v3"  # etl.kernels.shipped reads the files on machines that have all of it
HAS_KERNELS = os.environ.get("TOKENLAKE_SHIP_KERNELS") == "1" and (
    platform.system() == "Linux" and platform.machine() == "x86_64"
)
# Package indexes refuse ``linux_x86_64``. Kernels are data for numba, which resolves their few symbols of the
# C library (memcpy, memset, expf) when it loads them, so they run wherever numba does: this is its own tag.
PLATFORM = "manylinux_2_28_x86_64"


class BuildPackage(build_py):
    """Copies the modules, then compiles all kernels in the copy and moves them to where a wheel has them."""

    def run(self) -> None:
        """Run the command."""
        super().run()
        if not HAS_KERNELS or self.editable_mode:
            return
        root = Path(self.build_lib).resolve()
        environment = {key: os.environ[key] for key in os.environ if not key.startswith("NUMBA_")}
        environment |= {"PYTHONPATH": str(root), "TOKENLAKE_CPU": SHIPPED}
        command = [sys.executable, "-c", "from etl.cli import main; main()", "warm"]
        subprocess.run(command, cwd=root, env=environment, check=True)
        for file in root.glob("etl/kernels/**/__pycache__/*.nb[ci]"):
            folder = file.parent.parent / "compiled"  # builds leave __pycache__ out
            folder.mkdir(exist_ok=True)
            file.replace(folder / file.name)


class BuildWheel(bdist_wheel):
    """Names the Python version and the platform if the wheel has machine code."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag: no ABI of Python, since no module is an extension."""
        if not HAS_KERNELS:
            return super().get_tag()
        return f"cp{sys.version_info.major}{sys.version_info.minor}", "none", PLATFORM


def check_links() -> None:
    """Exit with an error if a link to a top-level folder is not there, as in a checkout without links."""
    folder = Path(__file__).parent / "etl"
    for name in ("cli", "k8s", "pipelines", "schemas"):
        if not (folder / name).is_dir():  # a link here, a folder in a source distribution
            raise SystemExit(
                f"error: {folder / name} is not a link to the folder {name}/\n"
                "This copy of the repository has lost its symbolic links, as zip files and checkouts with "
                "core.symlinks=false do.\n"
                "hint: clone it with `git clone -c core.symlinks=true`, or install a released version"
            )


check_links()
setup(cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel})
