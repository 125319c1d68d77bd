"""The image of k8s/Dockerfile: what it is built from, and with root, the demo in it with a read-only root."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from tests.helpers.manifests import pods

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "k8s" / "Dockerfile").read_text("utf-8")
TOOLS = ("buildah", "mmdebstrap", "unshare")
IMAGE = "tokenlake:test"

READ_ONLY = """
mount --bind "$0" "$0"
mount -o remount,ro,bind "$0"
mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot --userspec=1000:1000 "$0" env -i "$@"
"""
"""Run a command in a root file system as Kubernetes does with readOnlyRootFilesystem and a volume in /tmp."""


def test_the_user_is_the_one_of_the_pods() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    (uid,) = {pod.spec["securityContext"]["runAsUser"] for pod in pods("k8s/overlays/trial")}
    assert users == [f"{uid}:{uid}"]  # a name would not satisfy runAsNonRoot


def test_the_base_is_a_pinned_argument() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")} == {
        "${BASE}"
    }


def test_the_build_receives_the_package_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert lines[1] == "*"
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    tops = {PurePath(name).parts[0] for name in filter(None, tracked)}
    assert sent <= tops
    assert {"etl", "cli", "pipelines", "schemas", "pyproject.toml", "constraints.txt"} <= sent
    assert not sent & {".git", "tests", "docs", "benchmarks"}


def run(*command: str | Path) -> str:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout.strip()


@pytest.fixture(scope="module")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build the image on Debian's Python instead of a base from a registry, and mount it."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        pytest.skip(f"an image is built as root with {', '.join(TOOLS)}")
    base = tmp_path_factory.mktemp("base") / "root.tar"
    packages = "python3-minimal,python3-venv,ca-certificates"
    run("mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", base)
    container = run("buildah", "from", "scratch")
    run("buildah", "add", container, base, "/")
    run("buildah", "commit", "--rm", container, "tokenlake-base:test")
    base.unlink()
    certificates = "/etc/ssl/certs"  # also certificates of a proxy
    run(
        *("buildah", "bud", "--isolation", "chroot", "--network", "host", "--layers"),
        *(
            "--volume",
            f"{certificates}:{certificates}:ro",
            "--build-arg",
            "BASE=tokenlake-base:test",
        ),
        *("--file", "k8s/Dockerfile", "--tag", IMAGE, "."),
    )
    container = run("buildah", "from", IMAGE)
    try:
        yield Path(run("buildah", "mount", container))
    finally:
        run("buildah", "rm", container)


@pytest.mark.slow
def test_the_demo_runs_in_the_image_with_a_read_only_root(image_root: Path) -> None:
    template = "{{range .OCIv1.Config.Env}}{{println .}}{{end}}"
    environment = run("buildah", "inspect", "--type=image", f"--format={template}", IMAGE)
    steps = (
        *("cd /tmp", "id -u", "touch /opt/tokenlake/x 2>&1"),
        *("etl run demo --lake lake --workers 2 2>&1", "etl warm"),
    )
    printed = run(
        *("unshare", "--mount", "sh", "-ec", READ_ONLY, image_root),
        *environment.splitlines(),
        *("sh", "-c", "; ".join(steps)),
    )
    assert printed.startswith("1000\n")
    assert "Read-only file system" in printed
    assert "tokens      3,190,897" in printed
    assert "compiled    0 kernels for x86-64-v3" in printed
