"""Ask the API server which requests the roles of an account allow."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from etl.compute.kubernetes.resources import TLS_SECRET

if TYPE_CHECKING:
    import kr8s

_GROUPS: Final = {
    "daskclusters": "kubernetes.dask.org",
    "daskworkergroups": "kubernetes.dask.org",
    "deployments": "apps",
    "jobs": "batch",
    "localsubjectaccessreviews": "authorization.k8s.io",
    "replicasets": "apps",
}
_VERSION: Final = "authorization.k8s.io/v1"


async def review_access(
    api: "kr8s.asyncio.Api", namespace: str, asked: Sequence[tuple[str, str]], account: str | None
) -> list[bool]:
    """Return for each verb and resource whether a service account is allowed it; None: the own account."""

    async def ask(verb: str, resource: str) -> bool:
        spec: dict[str, Any] = {"resourceAttributes": _attributes(namespace, verb, resource)}
        kind, within = "SelfSubjectAccessReview", None
        if account is not None:
            kind, within = "LocalSubjectAccessReview", namespace
            accounts = "system:serviceaccounts"
            spec["user"] = f"system:serviceaccount:{namespace}:{account}"
            spec["groups"] = [accounts, f"{accounts}:{namespace}", "system:authenticated"]
        review = {"apiVersion": _VERSION, "kind": kind, "spec": spec}
        async with api.call_api(
            "POST",
            version=_VERSION,
            namespace=within,
            url=f"{kind.lower()}s",
            content=json.dumps(review | {"metadata": {"namespace": within}}),
        ) as response:
            return bool(response.json()["status"]["allowed"])

    return [await ask(*each) for each in asked]  # kr8s opens a session for each of concurrent ones


def _attributes(namespace: str, verb: str, resource: str) -> dict[str, str]:
    name, _, subresource = resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": _GROUPS.get(name, ""),
        "resource": name,
        "subresource": subresource,
    }
    if name == "secrets" and verb == "get":
        attributes["name"] = TLS_SECRET
    return attributes
