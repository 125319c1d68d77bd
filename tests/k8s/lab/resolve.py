"""What a container gets from the API server: its environment and the files of its volumes."""

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.lab.api import Api, ApiError, Json


class NotAvailableError(Exception):
    """An object that a container needs does not exist; the message is that of a kubelet."""


@dataclass(frozen=True)
class PodFacts:
    """What pods may ask about themselves."""

    namespace: str
    fields: Mapping[str, str]


def facts(pod: Json, address: str) -> PodFacts:
    metadata = pod["metadata"]
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"]["nodeName"],
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.hostIP": "127.0.0.1",
    }
    values |= {f"metadata.labels['{k}']": v for k, v in metadata.get("labels", {}).items()}
    return PodFacts(metadata["namespace"], values)


@dataclass
class Resolver:
    """Reads ConfigMaps and Secrets for the containers of one pod."""

    api: Api
    pod: PodFacts
    _cache: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)

    async def environment(self, container: Json, image: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a container, from its image, envFrom and env."""
        result = dict(image)
        for source in container.get("envFrom", []):
            kind = "secret" if "secretRef" in source else "configmap"
            reference = source.get("secretRef") or source["configMapRef"]
            data = await self._data(kind, reference["name"], optional=reference.get("optional"))
            prefix = source.get("prefix", "")
            result |= {prefix + name: value.decode() for name, value in data.items()}
        for variable in container.get("env", []):
            value = await self._value(variable, result)
            if value is not None:
                result[variable["name"]] = value
        return result

    async def _value(self, variable: Json, known: Mapping[str, str]) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return expand(variable.get("value", ""), known)
        if "fieldRef" in source:
            return self.pod.fields[source["fieldRef"]["fieldPath"]]
        kind = "secret" if "secretKeyRef" in source else "configmap"
        reference = source.get("secretKeyRef") or source["configMapKeyRef"]
        optional = reference.get("optional")
        data = await self._data(kind, reference["name"], optional=optional)
        if reference["key"] in data:
            return data[reference["key"]].decode()
        if optional:
            return None
        raise NotAvailableError(f"couldn't find key {reference['key']} in {kind}")

    async def files(self, volume: Json) -> dict[str, tuple[bytes, int]]:
        """Return the content and mode of the files of a volume, by path."""
        if "projected" in volume:
            sources = volume["projected"]["sources"]
            default = volume["projected"].get("defaultMode", 0o644)
        else:
            sources, default = [volume], 0o644
        result: dict[str, tuple[bytes, int]] = {}
        for source in sources:
            for kind in ("secret", "configMap"):
                if kind in source:
                    result |= await self._items(kind, source[kind], default)
        return result

    async def _items(self, kind: str, source: Json, default: int) -> dict[str, tuple[bytes, int]]:
        name = source.get("secretName") or source["name"]
        mode = source.get("defaultMode", default)
        data = await self._data(kind.lower(), name, optional=source.get("optional"))
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing and not source.get("optional"):
            raise NotAvailableError(f"references non-existent {kind.lower()} key: {missing[0]}")
        present = [item for item in items if item["key"] in data]
        return {item["path"]: (data[item["key"]], item.get("mode", mode)) for item in present}

    async def _data(self, kind: str, name: str, *, optional: bool | None) -> dict[str, bytes]:
        """Return the data of a ConfigMap or Secret; empty if it is optional and does not exist."""
        if (kind, name) in self._cache:
            return self._cache[kind, name]
        try:
            found = await self.api.get(
                f"/api/v1/namespaces/{self.pod.namespace}/{kind}s/{name}",
            )
        except ApiError as error:
            if error.code != 404:
                raise
            if optional:
                return {}
            raise NotAvailableError(f'{kind} "{name}" not found') from error
        if kind == "secret":
            data = {k: base64.b64decode(v) for k, v in found.get("data", {}).items()}
        else:
            data = {k: v.encode() for k, v in found.get("data", {}).items()}
            data |= {k: base64.b64decode(v) for k, v in found.get("binaryData", {}).items()}
        self._cache[kind, name] = data
        return data


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` where the variable exists.

    >>> expand("$(A)/$(B)", {"A": "a"})
    'a/$(B)'
    """
    return re.sub(r"\$\(([\w.-]+)\)", lambda match: environment.get(match[1], match[0]), text)


def write_files(folder: Path, files: Mapping[str, tuple[bytes, int]], group: int | None) -> None:
    """Write the files of a volume behind links, as a kubelet does, readable by the pod's group."""
    version = folder / "..version"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, (content, mode) in files.items():
        path = version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode if group is None else mode | 0o440)
        os.chown(path, 0, -1 if group is None else group)
        top = name.split("/")[0]
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(f"..data/{top}")
