"""`etl certificates`: create TLS certificates for a Dask scheduler, its workers and its clients."""

from typing import Annotated, Any

import typer

from etl.cli import options, output

app = typer.Typer()


def _days() -> Any:
    from etl.compute.certificates import make_certificates

    return options.keyword_default(make_certificates, "days")


@app.command(
    epilog=options.examples(
        "etl certificates certs",
        "etl run web.yaml --tls certs",
        "dask scheduler --tls-ca-file certs/ca.pem --tls-cert certs/scheduler.pem "
        "--tls-key certs/scheduler.pem --protocol tls",
    )
)
def certificates(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder to write to.")],
    *,
    days: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many days the certificates are valid.",
            default_factory=options.LibraryDefault(_days),
        ),
    ],
) -> None:
    """Create TLS certificates for a cluster.

    Writes a certificate authority, and a certificate with its key for each role. Every machine of the
    cluster needs the folder; keep it secret.
    """
    from etl.compute.certificates import make_certificates

    for path in make_certificates(folder, days=days):
        output.echo(str(path))
