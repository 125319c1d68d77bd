"""Probes of containers: HTTP requests, TCP connections and commands."""

import asyncio
import subprocess
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from tests.k8s.lab.api import Json
from tests.k8s.lab.container import Sandbox, run_in_network


@dataclass
class Probe:
    """A probe of a running container, and its last results."""

    spec: Json | None
    ports: dict[str, int]
    due: float
    good: bool
    failures: int = 0

    @classmethod
    def of(cls, container: Json, kind: str, started: float) -> "Probe":
        """Return the probe of a kind; a container without it passes."""
        spec = container.get(kind)
        ports = {p["name"]: p["containerPort"] for p in container.get("ports", []) if "name" in p}
        delay = spec.get("initialDelaySeconds", 0) if spec else 0
        return cls(spec, ports, started + delay, good=spec is None or kind == "livenessProbe")

    async def check(self, address: str, sandbox: Sandbox, time: float) -> None:
        """Probe if it is time to; ``good`` changes after as many failures as the probe allows."""
        if self.spec is None or time < self.due:
            return
        passed = await self._passes(address, sandbox)
        self.failures = 0 if passed else self.failures + 1
        if passed:
            self.good = True
        elif self.failures >= self.spec.get("failureThreshold", 3):
            self.good = False
        self.due = time + self.spec.get("periodSeconds", 10)

    async def _passes(self, address: str, sandbox: Sandbox) -> bool:
        assert self.spec is not None
        limit = self.spec.get("timeoutSeconds", 1)
        if "exec" in self.spec:
            command = self.spec["exec"]["command"]
            with suppress(subprocess.TimeoutExpired):
                return (await asyncio.to_thread(run_in_network, sandbox, command)).returncode == 0
            return False
        http = self.spec.get("httpGet")
        port = (http or self.spec["tcpSocket"])["port"]
        port = self.ports.get(port, port)
        try:
            async with asyncio.timeout(limit):
                if http is None:
                    _, writer = await asyncio.open_connection(address, port)
                    writer.close()
                    return True
                url = f"http://{address}:{port}{http.get('path', '/')}"
                async with aiohttp.ClientSession() as session, session.get(url) as response:
                    return response.status < 400
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
