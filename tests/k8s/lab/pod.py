"""The life of one pod on a node: its sandbox, volumes, containers, probes, restarts and status."""

import asyncio
import logging
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientError

from tests.k8s.lab.api import Api, ApiError, Json, ignore_missing, now
from tests.k8s.lab.container import (
    Container,
    Launch,
    Mount,
    Sandbox,
    remove_cgroup,
    start_container,
    start_sandbox,
)
from tests.k8s.lab.images import Image, find_image
from tests.k8s.lab.network import Network
from tests.k8s.lab.probes import Probe
from tests.k8s.lab.resolve import NotAvailableError, Resolver, expand, facts, write_files
from tests.k8s.lab.services import Services

_LOG = logging.getLogger(__name__)
_TICK = 0.2  # seconds between two looks at the containers
_RETRY = 2.0  # seconds between two attempts to start what cannot start
_MAX_MESSAGE = 2048  # bytes, as Kubernetes limits termination messages


@dataclass
class Run:
    """A container of a pod, over its restarts."""

    spec: Json
    folder: Path
    running: Container | None = None
    restarts: int = 0
    next_start: float = 0.0
    started_at: str = ""
    waiting: tuple[str, str] = ("ContainerCreating", "")
    ended: Json | None = None
    ready: Probe | None = None
    alive: Probe | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def is_ready(self) -> bool:
        return self.running is not None and self.ready is not None and self.ready.good

    def status(self) -> Json:
        """Return the entry of the pod's status."""
        state: Json
        if self.running is not None:
            state = {"running": {"startedAt": self.started_at}}
        elif self.waiting[0]:
            state = {"waiting": {"reason": self.waiting[0], "message": self.waiting[1]}}
        else:
            state = {"terminated": self.ended}
        status = {
            "name": self.spec["name"],
            "image": self.spec["image"],
            "imageID": self.spec["image"] if self.started_at else "",
            "ready": self.is_ready(),
            "started": self.running is not None,
            "restartCount": self.restarts,
            "state": state,
        }
        if self.ended is not None and "terminated" not in state:
            status["lastState"] = {"terminated": self.ended}
        return status


@dataclass
class Pod:
    """A pod that the scheduler has assigned to a node of this machine."""

    api: Api
    services: Services
    item: Json
    folder: Path
    address: str
    number: int
    network: Network
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    runs: list[Run] = field(default_factory=list)
    _sandbox: Sandbox | None = None
    _events: set[tuple[str, str]] = field(default_factory=set)
    _last_status: Json | None = None
    _since: dict[str, tuple[str, str]] = field(default_factory=dict)
    _start_time: str = field(default_factory=now)

    def __post_init__(self) -> None:
        metadata, spec = self.item["metadata"], self.item["spec"]
        self.name, self.namespace = metadata["name"], metadata["namespace"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.resolver = Resolver(self.api, facts(self.item, self.address))
        self.runs = [Run(each, self.folder / each["name"]) for each in spec["containers"]]

    async def live(self) -> None:
        """Run the pod until it is deleted, then remove it."""
        try:
            await self._start()
            while not self.stopped.is_set() and not await self._step():
                await self._sleep(_TICK)
            await self.stopped.wait()
        except (ApiError, ClientError, LookupError, OSError, RuntimeError):
            _LOG.exception("pod %s", self.name)
            await self.stopped.wait()
        finally:
            await self.end()
        await ignore_missing(
            self.api.request(
                "DELETE",
                self.path,
                {
                    "gracePeriodSeconds": 0,
                    "preconditions": {"uid": self.item["metadata"]["uid"]},
                },
            )
        )

    async def end(self) -> None:
        """End all processes; containers get the pod's time for that."""
        metadata = self.item["metadata"]
        grace = metadata.get("deletionGracePeriodSeconds", 0)
        running = [run.running for run in self.runs if run.running is not None]
        await asyncio.gather(*(container.stop(grace) for container in running))
        if self._sandbox is not None:
            await self._sandbox.stop()
            self._sandbox = None
        for container in running:
            remove_cgroup(container)
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)

    async def _start(self) -> None:
        """Create the sandbox and the volumes; retry while an object is missing."""
        self.folder.mkdir(parents=True)
        await self._report("Pending")
        self._sandbox = await start_sandbox(self.name)
        await asyncio.to_thread(self.network.connect, self.number, self._sandbox.pid)
        for volume in self.item["spec"].get("volumes", []):
            while not self.stopped.is_set():
                try:
                    await self._fill(volume)
                    break
                except NotAvailableError as error:
                    what = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
                    await self._warn("FailedMount", what)
                    await self._sleep(_RETRY)

    async def _fill(self, volume: Json) -> None:
        folder = self.folder / "volumes" / volume["name"]
        group = self.item["spec"].get("securityContext", {}).get("fsGroup")
        if "emptyDir" in volume:
            folder.mkdir(parents=True)
            os.chown(folder, 0, -1 if group is None else group)
            folder.chmod(0o2777)
            return
        write_files(folder, await self.resolver.files(volume), group)

    async def _step(self) -> bool:
        """Start, probe and restart containers, and report; return whether the pod has finished."""
        for run in self.runs:
            self._collect(run)
            if run.running is None and run.waiting[0] and time.monotonic() >= run.next_start:
                await self._try_to_start(run)
            if run.running is not None:
                await self._probe(run)
        finished = all(run.running is None and not run.waiting[0] for run in self.runs)
        if finished:
            codes = [run.ended["exitCode"] for run in self.runs if run.ended is not None]
            await self._report("Failed" if any(codes) else "Succeeded")
        else:
            started = any(run.started_at for run in self.runs)
            await self._report("Running" if started else "Pending")
        return finished

    def _collect(self, run: Run) -> None:
        """Note the end of a container, and when to start it again."""
        if run.running is None or (code := run.running.exit_code()) is None:
            return
        reason = "Completed" if code == 0 else "Error"
        if run.running.ran_out_of_memory():
            reason = "OOMKilled"
        run.ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": run.started_at,
            "finishedAt": now(),
        }
        fallback = run.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if code and fallback:
            run.ended["message"] = run.log.read_bytes()[-_MAX_MESSAGE:].decode(errors="replace")
        remove_cgroup(run.running)
        run.running = None
        policy = self.item["spec"].get("restartPolicy", "Always")
        if policy == "Always" or (policy == "OnFailure" and code):
            run.waiting = ("CrashLoopBackOff", f"restarting failed container {run.spec['name']}")
            run.next_start = time.monotonic() + (min(30, 2**run.restarts) if code else 1)
            run.restarts += 1

    async def _try_to_start(self, run: Run) -> None:
        """Start a container, or note why it cannot start."""
        image = find_image(run.spec["image"])
        if image is None:
            reason = "ImagePullBackOff" if run.waiting[0] == "ErrImagePull" else "ErrImagePull"
            message = f'failed to resolve reference "{run.spec["image"]}": not found'
            run.waiting = (reason, message)
            run.next_start = time.monotonic() + _RETRY
            await self._warn("Failed", f'Failed to pull image "{run.spec["image"]}": {message}')
            return
        try:
            run.running = await self._start_container(run, image)
        except NotAvailableError as error:
            run.waiting = ("CreateContainerConfigError", str(error))
            run.next_start = time.monotonic() + _RETRY
            await self._warn("Failed", f"Error: {error}")
            return
        run.waiting = ("", "")
        run.started_at = now()
        started = time.monotonic()
        run.ready = Probe.of(run.spec, "readinessProbe", started)
        run.alive = Probe.of(run.spec, "livenessProbe", started)

    async def _start_container(self, run: Run, image: Image) -> Container:
        assert self._sandbox is not None
        links = self.item["spec"].get("enableServiceLinks", True)
        known = self.services.environment(self.namespace, links=links) | image.environment
        environment = await self.resolver.environment(run.spec, known | {"HOSTNAME": self.name})
        entrypoint = run.spec.get("command") or image.entrypoint
        arguments = run.spec.get("args") or (() if run.spec.get("command") else image.command)
        command = [expand(text, environment) for text in (*entrypoint, *arguments)]
        mounts = [Mount(self.services.hosts(self.namespace), "/etc/hosts")]
        for mount in run.spec.get("volumeMounts", []):
            source = self.folder / "volumes" / mount["name"] / mount.get("subPath", "")
            mounts.append(Mount(source, mount["mountPath"], mount.get("readOnly", False)))
        pod = self.item
        if image.user is not None:
            context = pod["spec"].get("securityContext") or {}
            user = {"runAsUser": image.user, "runAsGroup": image.user} | context
            pod = pod | {"spec": pod["spec"] | {"securityContext": user}}
        launch = Launch(command=command, environment=environment, mounts=mounts)
        return await start_container(self._sandbox, run.folder, pod, run.spec, launch)

    async def _probe(self, run: Run) -> None:
        assert run.running is not None
        assert run.ready is not None
        assert run.alive is not None
        assert self._sandbox is not None
        moment = time.monotonic()
        await run.ready.check(self.address, self._sandbox, moment)
        await run.alive.check(self.address, self._sandbox, moment)
        if not run.alive.good:
            await self._warn("Unhealthy", f"Liveness probe of {run.spec['name']} failed")
            run.running.kill()

    async def _report(self, phase: str) -> None:
        """Write the status of the pod to the API server if it has changed."""
        ready = bool(self.runs) and all(run.is_ready() for run in self.runs)
        conditions = {
            "Initialized": True,
            "ContainersReady": ready,
            "Ready": ready,
            "PodScheduled": True,
        }
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._start_time,
            "containerStatuses": [run.status() for run in self.runs],
            "conditions": [self._condition(kind, on=on) for kind, on in conditions.items()],
        }
        if status == self._last_status:
            return
        self._last_status = status
        await ignore_missing(self.api.patch(f"{self.path}/status", {"status": status}))

    def _condition(self, kind: str, *, on: bool) -> Json:
        value = str(on)
        if self._since.get(kind, ("", ""))[0] != value:
            self._since[kind] = (value, now())
        return {"type": kind, "status": value, "lastTransitionTime": self._since[kind][1]}

    async def _warn(self, reason: str, message: str) -> None:
        """Record an event, once."""
        if (reason, message) not in self._events:
            self._events.add((reason, message))
            with suppress(ApiError):
                await self.api.post_event(self.item, reason, message)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), seconds)
