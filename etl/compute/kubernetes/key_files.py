"""Remove the copies of keys that kr8s leaves in the temporary folder."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def removing_key_files() -> Iterator[Any]:
    """Remove the files at the end; yields what to call with an API."""
    written: set[str] = set()

    def watch(api: Any) -> None:
        authenticate = api.auth.reauthenticate

        async def reauthenticate() -> None:
            await authenticate()
            auth = api.auth
            paths = (auth.client_key_file, auth.client_cert_file, auth.server_ca_file)
            user = getattr(auth, "_user", {}) | getattr(auth, "_cluster", {})
            if any(name.endswith("-data") for name in user):
                written.update(str(path) for path in paths if path)

        api.auth.reauthenticate = reauthenticate

    try:
        yield watch
    finally:
        for path in written:
            if Path(path).parent == Path(tempfile.gettempdir()):
                with suppress(OSError):
                    Path(path).unlink()
