"""Certificates for a cluster: one authority of its own, and what it has signed for each role.

The authority's key is thrown away, so that nobody can sign a further one: who holds no file of the folder
cannot speak to the cluster. A client's certificate cannot stand for a scheduler or worker.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etl.errors import ClusterError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

ROLES: Final = ("scheduler", "worker", "client")
AUTHORITY: Final = "ca.pem"
_CLOCK_SKEW = timedelta(hours=1)  # between machines, forward or back


def make(folder: str | os.PathLike[str], *, days: int = 365) -> list[Path]:
    """Write ``ca.pem`` and, for each role, certificate and key in one file that only its owner can read.

    P-256 keys, valid for so many days. Raises ClusterError if the folder holds any of them already, cannot
    be written, or the library ``cryptography`` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ClusterError(
            "certificates need the library cryptography", hint="pip install 'tokenlake[tls]'"
        ) from error
    place = Path(folder).expanduser().absolute()
    names = [AUTHORITY, *(f"{role}.pem" for role in ROLES)]
    if standing := [name for name in names if (place / name).exists()]:
        raise ClusterError(
            f"{standing[0]} is there already", where=str(place), hint="name another folder"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign("authority", key, issuer=None, issuer_key=key, days=days)
    contents = [_pem(authority)]
    for role in ROLES:
        own = ec.generate_private_key(ec.SECP256R1())
        signed = _sign(role, own, issuer=authority, issuer_key=key, days=days)
        contents.append(_pem(signed) + _pem_key(own))
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in zip(names, contents, strict=True):
            (place / name).touch(mode=0o600, exist_ok=False)  # before there is anything to read
            (place / name).write_bytes(content)
    except OSError as error:
        raise ClusterError(f"cannot be written ({error})", where=str(place)) from error
    return [place / name for name in names]


def files(folder: str | os.PathLike[str]) -> dict[str, str]:
    """The path of the authority's certificate (``ca``) and of each role's; ClusterError if one is missing."""
    place = Path(folder).expanduser().absolute()
    found = {"ca": place / AUTHORITY, **{role: place / f"{role}.pem" for role in ROLES}}
    for path in found.values():
        if not path.is_file():
            raise ClusterError(
                "there is no such certificate",
                where=str(path),
                hint="`etl certificates DIR` makes it",
            )
    return {name: str(path) for name, path in found.items()}


def _sign(
    role: str,
    key: "EllipticCurvePrivateKey",
    *,
    issuer: "Certificate | None",
    issuer_key: "EllipticCurvePrivateKey",
    days: int,
) -> "Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tokenlake {role}")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        usages += [ExtendedKeyUsageOID.SERVER_AUTH] if role != "client" else []
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=True)
    return made.sign(issuer_key, hashes.SHA256())


def _pem(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_key(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
