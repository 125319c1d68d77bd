"""Serve the metrics of a scheduler on their own port: Dask's other port can also retire workers.

Dask loads the module with ``dask scheduler --preload``. The port has the metrics for Prometheus and the
health check, and nothing else.
"""

import click
from distributed import Scheduler
from distributed.http.routing import RoutingApplication
from distributed.http.utils import get_handlers
from tornado.httpserver import HTTPServer

_ROUTES = ["distributed.http.scheduler.prometheus", "distributed.http.health"]


@click.command()
@click.option("--metrics-port", type=int, required=True)
def dask_setup(scheduler: Scheduler, metrics_port: int) -> None:
    """Start the server, which ends with the process of the scheduler."""
    server = HTTPServer(RoutingApplication(get_handlers(scheduler, _ROUTES)))
    server.listen(metrics_port, address="0.0.0.0")  # noqa: S104 - a network policy says who may connect
