"""`Failure`: why the API server did not do what it was asked, as an error with a remedy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from etl.errors import ClusterError, error_line

if TYPE_CHECKING:
    import httpx

OPERATOR_HINT: Final = (
    "an administrator installs the operator once: helm install dask-operator "
    "dask-kubernetes-operator --repo https://helm.dask.org -n dask-operator --create-namespace"
)

_OVERLOADED: Final = (429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Failure:
    """A request that failed: the status and message of the response, or that there was none."""

    status: int | None
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Self | None:
        """Return the failure that an error of kr8s means; None for other errors."""
        import httpx
        import httpx_ws
        import kr8s

        if isinstance(error, kr8s.ServerError):
            return cls(
                error.response.status_code if error.response is not None else 0, error_line(error)
            )
        if isinstance(error, httpx_ws.WebSocketUpgradeError):
            return cls(error.response.status_code, _message_of(error.response))
        of_network = (httpx.HTTPError, httpx_ws.HTTPXWSException, kr8s.APITimeoutError, OSError)
        return cls(None, error_line(error)) if isinstance(error, of_network) else None

    def kind(self) -> str:
        """Return what is wrong with an object: `missing`, `conflict` or `expired`; empty: something else."""
        if self._is_unknown_kind():
            return ""
        return {404: "missing", 409: "conflict", 410: "expired"}.get(self.status or 0, "")

    def may_pass(self, *, has_settled: bool) -> bool:
        """Return whether the same request may succeed later.

        A server that has started a moment ago does not know all roles and kinds yet.
        """
        if self.status is None or self.status in _OVERLOADED:
            return True
        starts = self.status in (401, 403) or self._is_unknown_kind()
        return starts and not has_settled

    def explain(self, verb: str, resource: str, *, namespace: str, server: str) -> ClusterError:
        """Return the error for a verb and a resource."""
        where, hint = f"namespace {namespace}", None
        if self.status is None:
            what = f"the API server of Kubernetes does not respond ({self.text})"
            where, hint = server, "check the network and `kubectl cluster-info`"
        elif self.status == 401:
            what = f"the API server does not accept the credentials ({self.text})"
            where, hint = server, "log in again, or renew the token of the kubeconfig"
        elif self.status == 403 and "exceeded quota" in self.text:
            what = f"the quota does not allow to {verb} {resource}: {self.text}"
            hint = "ask for a larger ResourceQuota, or lower workers, cpu and memory"
        elif self.status == 403:
            what = f"no permission to {verb} {resource} ({self.text})"
            hint = "bind the role tokenlake-user of k8s/base/roles.yaml to your account"
        elif resource.startswith("dask") and self._is_unknown_kind():
            what = f"Dask's operator is not installed: the API server does not know {resource}"
            where, hint = server, OPERATOR_HINT
        elif self.status == 404 and f'namespaces "{namespace}" not found' in self.text:
            what, hint = "the namespace does not exist", "create it: kubectl apply -k k8s/base"
        else:
            what = f"the API server refused to {verb} {resource} ({self.status}: {self.text})"
        return ClusterError(what, where=where, hint=hint)

    def _is_unknown_kind(self) -> bool:
        """Return whether a response 404 is about the kind of a resource, not about its name."""
        is_of_kind = "404" in self.text or "could not find the requested resource" in self.text
        return self.status == 404 and is_of_kind


def _message_of(response: "httpx.Response") -> str:
    """Return the message of a status of the API server."""
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, RuntimeError):
        return f"status {response.status_code}"
