"""`open_session`: connect kr8s to the API server of a kubeconfig, and leave no files behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from etl.compute.kubernetes.key_files import removing_key_files
from etl.compute.kubernetes.loop_thread import LoopThread
from etl.errors import ClusterError, error_line

if TYPE_CHECKING:
    import kr8s

_TIMEOUT_SECONDS: Final = 10.0  # of one request


@contextmanager
def open_session(
    namespace: str, context: str | None
) -> Iterator[tuple["kr8s.asyncio.Api", LoopThread]]:
    """Yield kr8s with credentials, and the thread in which it runs; see ``Api.connect``."""
    try:
        import kr8s.asyncio
    except ImportError as error:
        raise ClusterError(
            "the library kr8s is not installed", hint="pip install 'tokenlake[k8s]'"
        ) from error
    with LoopThread() as loop, removing_key_files() as watch:
        # Without the factory, nothing is sent before the time limit is set.
        api = kr8s.asyncio.Api(bypass_factory=True, namespace=namespace, context=context)
        api.timeout = _TIMEOUT_SECONDS
        watch(api)
        try:
            loop.run(_authenticate(api))
        except Exception as error:
            raise ClusterError(
                f"no credentials for an API server ({error_line(error)})",
                where=None if context is None else f"context {context}",
                hint="check KUBECONFIG and `kubectl config get-contexts`",
            ) from error
        try:
            yield api, loop
        finally:
            loop.run(_close(api))


async def _close(api: "kr8s.asyncio.Api") -> None:
    session = api._session  # noqa: SLF001 - kr8s cannot close it
    if session is not None:
        await session.aclose()


async def _authenticate(api: "kr8s.asyncio.Api") -> None:
    await api.auth
