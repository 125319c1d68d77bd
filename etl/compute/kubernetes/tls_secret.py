"""`TlsSecret`: the certificates of a cluster, in a Secret or mounted in the pod of a driver."""

import base64
import tempfile
from pathlib import Path

from distributed.security import Security

from etl.compute import certificates
from etl.compute.kubernetes import resources
from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.listener import Listener
from etl.errors import ClusterError


class TlsSecret:
    """The Secret of the certificates, whether it exists or not; a driver has them in a folder instead."""

    def __init__(self, api: Api, settings: ClusterFile) -> None:
        self._api = api
        self._settings = settings
        self._where = f"Secret {resources.TLS_SECRET} in namespace {settings.namespace}"

    @staticmethod
    def is_mounted() -> bool:
        """Return whether the certificates are mounted, as in the pod of a driver."""
        return (Path(resources.TLS_FOLDER) / certificates.AUTHORITY).is_file()

    def exists(self) -> bool:
        """Return whether there are certificates."""
        return self.is_mounted() or self._api.get("Secret", resources.TLS_SECRET) is not None

    def security(self) -> Security:
        """Return the TLS settings of a client.

        Raises ClusterError if there are no certificates, or if they have expired.
        """
        if self.is_mounted():
            return certificates.tls_settings(resources.TLS_FOLDER, ("client",))
        secret = self._api.get("Secret", resources.TLS_SECRET)
        names = (certificates.AUTHORITY, "client.pem")
        data = {} if secret is None else secret.get("data", {})
        if missing := [name for name in names if name not in data]:
            raise ClusterError(
                f"the Secret has no {missing[0]}",
                where=self._where,
                hint="delete the Secret and the cluster: the next start creates both again",
            )
        authority, client = (base64.b64decode(data[name]).decode() for name in names)
        return certificates.client_settings(authority, client, where=self._where)

    def ensure(self, listener: Listener) -> None:
        """Create the certificates, unless they exist; raise ClusterError if these have expired."""
        if self.exists():
            self.security()
            return
        with tempfile.TemporaryDirectory(prefix="tokenlake-tls-") as folder:
            certificates.make_certificates(folder)
            self._api.create(resources.tls_secret(self._settings, Path(folder)))
        listener.note(f"secret     {resources.TLS_SECRET} created")
