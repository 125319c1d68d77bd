"""A small asynchronous client of the Kubernetes API: requests, watches and events."""

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_MERGE = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    """The API server of a kubeconfig that holds a token and an authority."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.url = str(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        token = config["users"][0]["user"]["token"]
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(
                ssl=ssl.create_default_context(cadata=authority), limit=0
            ),
        )

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Json | None = None, *, content: str = "application/json"
    ) -> Json:
        """Send a request and return the response; raise ApiError if it is refused.

        It is sent again while the API server does not respond, which tests kill.
        """
        while True:
            try:
                return await self._request(method, path, body, content)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                _LOG.warning("%s %s: %r", method, path, error)
                await asyncio.sleep(0.3)

    async def _request(self, method: str, path: str, body: Json | None, content: str) -> Json:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content}
        async with self._session.request(
            method, self.url + path, data=data, headers=headers
        ) as response:
            result: Json = await response.json()
            if response.status >= 400:
                raise ApiError(response.status, result.get("message", str(result)))
            return result

    async def get(self, path: str) -> Json:
        return await self.request("GET", path)

    async def patch(self, path: str, body: Json) -> Json:
        return await self.request("PATCH", path, body, content=_MERGE)

    async def watch(self, path: str, changed: Callable[[str, Json], None]) -> None:
        """Call a function with all objects of a list, then with each change, for ever.

        The first argument is ADDED, MODIFIED or DELETED; or LIST, with the list as the object.
        """
        while True:
            try:
                listed = await self.get(path)
                changed("LIST", listed)
                version = listed["metadata"]["resourceVersion"]
                await self._follow(f"{path}?watch=true&resourceVersion={version}", changed)
            except (aiohttp.ClientError, ApiError) as error:
                _LOG.warning("watch %s: %r", path, error)
            await asyncio.sleep(0.3)

    async def _follow(self, path: str, changed: Callable[[str, Json], None]) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self.url + path, timeout=timeout, read_bufsize=2**24
        ) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                changed(event["type"], event["object"])

    async def post_event(self, pod: Json, reason: str, message: str) -> None:
        """Record a warning about a pod."""
        metadata = pod["metadata"]
        keys = ("name", "namespace", "uid", "resourceVersion")
        await self.request(
            "POST",
            f"/api/v1/namespaces/{metadata['namespace']}/events",
            {
                "metadata": {"generateName": f"{metadata['name']}."},
                "involvedObject": {"kind": "Pod", "apiVersion": "v1"}
                | {key: metadata[key] for key in keys},
                "type": "Warning",
                "reason": reason,
                "message": message,
                "source": {"component": "kubelet"},
                "firstTimestamp": now(),
                "lastTimestamp": now(),
                "count": 1,
            },
        )


async def ignore_missing(request: Awaitable[Json]) -> None:
    """Wait for a request about an object that may have been deleted."""
    try:
        await request
    except ApiError as error:
        if error.code not in (404, 409):
            raise
