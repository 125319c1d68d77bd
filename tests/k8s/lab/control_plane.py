"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

The binaries are in the folder that ``KUBEBUILDER_ASSETS`` names.
"""

import base64
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from etl.compute.certificates import make_certificates
from tests.helpers.ports import free_ports

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ADMIN_TOKEN = "admin"  # the API server listens on loopback only
_AUDITED = ("system:serviceaccounts:tokenlake", "system:serviceaccounts:dask-operator")


def missing_programs() -> list[str]:
    """Return the programs that ``KUBEBUILDER_ASSETS`` does not hold."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    return [name for name in PROGRAMS if folder is None or not (Path(folder) / name).exists()]


@dataclass
class ControlPlane:
    """The processes of a control plane, and how to reach its API server."""

    folder: Path
    services: str
    port: int = field(default_factory=lambda: free_ports(1)[0])
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    etcd_port: int = 0
    restarts: list[tuple[datetime, datetime]] = field(default_factory=list)  # until it was ready

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubelet_certificate(self) -> Path:
        return self.folder / "certificates" / "scheduler.pem"

    @property
    def authority(self) -> Path:
        """The certificate that the API server has signed for itself."""
        return self.folder / "apiserver.crt"

    def start(self) -> None:
        """Start all programs; return when the API server is ready."""
        make_certificates(self.folder / "certificates")
        self.etcd_port, peers, manager, scheduler = free_ports(4)
        self._start_etcd(f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peers}")
        self._start_api_server(f"http://127.0.0.1:{self.etcd_port}")
        self._wait_until_ready()
        config = self.kubeconfig("admin", ADMIN_TOKEN)
        common = (f"--kubeconfig={config}", "--leader-elect=false", "--port=0")
        local = ("--bind-address=127.0.0.1", f"--cert-dir={self.folder}")
        self._spawn(
            "kube-controller-manager",
            *(*common, *local, f"--secure-port={manager}"),
            f"--service-account-private-key-file={self.kubelet_certificate}",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials",
            "--controllers=*,-nodeipam",
        )
        self._spawn("kube-scheduler", *common, *local, f"--secure-port={scheduler}")

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """Kill the API server, and start it again at the end."""
        self.processes["kube-apiserver"].kill()
        self.processes["kube-apiserver"].wait()
        yield
        started = datetime.now(UTC)
        self._start_api_server(f"http://127.0.0.1:{self.etcd_port}")
        self._wait_until_ready()
        self.restarts.append((started, datetime.now(UTC)))

    @contextmanager
    def with_silent_api_server(self) -> Iterator[None]:
        """Suspend the API server: connections to it stay open, and nothing is answered."""
        self.processes["kube-apiserver"].send_signal(signal.SIGSTOP)
        yield
        self.processes["kube-apiserver"].send_signal(signal.SIGCONT)

    def _start_etcd(self, clients: str, peers: str) -> None:
        self._spawn(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )

    def _start_api_server(self, etcd: str) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
        policy = self.folder / "audit.json"
        policy.write_text(
            json.dumps(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived", "ResponseStarted"],
                    "rules": [{"level": "Metadata", "userGroups": list(_AUDITED)}],
                }
            )
        )
        key = self.kubelet_certificate
        issuer = "https://kubernetes.default.svc"
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}",
            f"--service-cluster-ip-range={self.services}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--service-account-issuer={issuer}",
            f"--api-audiences={issuer}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            f"--kubelet-client-certificate={self.folder / 'certificates' / 'client.pem'}",
            f"--kubelet-client-key={self.folder / 'certificates' / 'client.pem'}",
            "--kubelet-preferred-address-types=InternalIP",
        )

    def _spawn(self, name: str, *arguments: str) -> None:
        """Start a program that is killed when this process ends."""
        program = Path(os.environ["KUBEBUILDER_ASSETS"]) / name
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_ready(self) -> None:
        log = self.folder / "kube-apiserver.log"
        deadline = time.monotonic() + 90
        while True:
            assert self.processes["kube-apiserver"].poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            try:
                if self.get("/readyz") == b"ok":
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.2)

    def get(self, path: str) -> bytes:
        """Return what the API server responds to the administrator."""
        context = ssl.create_default_context(cafile=str(self.authority))
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            content: bytes = response.read()
        return content

    def kubeconfig(self, user: str, token: str, namespace: str = "default") -> Path:
        """Write the file with which clients reach the API server as a user."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        context = {"cluster": "lab", "user": user, "namespace": namespace}
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "lab",
                    "clusters": [{"name": "lab", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": token}}],
                    "contexts": [{"name": "lab", "context": context}],
                }
            )
        )
        return path

    def audited(self) -> list[dict[str, Any]]:
        """Return the requests of service accounts to the API server while it was ready.

        A server that has just started denies what it has not read yet.
        """
        lines = (self.folder / "audit.log").read_text("utf-8").splitlines()
        return [entry for entry in map(json.loads, lines) if not self._is_of_restart(entry)]

    def _is_of_restart(self, entry: dict[str, Any]) -> bool:
        time = datetime.fromisoformat(entry["requestReceivedTimestamp"])
        return any(started <= time <= ready for started, ready in self.restarts)

    def cpu_seconds(self) -> dict[str, float]:
        """Return the processor time that each program has used."""
        times = {name: psutil.Process(p.pid).cpu_times() for name, p in self.processes.items()}
        return {name: round(used.user + used.system, 1) for name, used in times.items()}

    def stop(self) -> None:
        """Stop all programs, in the opposite order."""
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def control_plane(folder: Path, services: str) -> Iterator[ControlPlane]:
    """Run a control plane with its files in a folder, and Services in a range of addresses."""
    folder.mkdir()
    plane = ControlPlane(folder, services)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
