"""TLS certificates for a cluster: a private authority, and a signed certificate for each role.

The authority's key is discarded, so no further certificate can be signed: only holders of the files in the
folder can connect to the cluster. A client's certificate is not valid for a scheduler or worker. Nothing
renews certificates: runs and `etl doctor` warn a month before they expire.
"""

import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etl.errors import ClusterError
from etl.plural import many

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate
    from distributed.security import Security

ROLES: Final = ("scheduler", "worker", "client")
AUTHORITY: Final = "ca.pem"
_CLOCK_SKEW = timedelta(hours=1)  # between the clocks of two machines
_NOTICE: Final = timedelta(days=30)
RENEWAL: Final = (
    "write new ones with `etl certificates DIR` and restart the cluster with them; on Kubernetes, delete the "
    "cluster and the Secret tokenlake-tls, which the next start creates again"
)


def make_certificates(folder: str | os.PathLike[str], *, days: int = 365) -> list[Path]:
    """Write ``ca.pem``, and certificate and key of each role in one file that only its owner can read.

    The keys are P-256, the certificates valid for ``days``. Raises ClusterError if one of the files exists,
    if the folder cannot be written, or if the library ``cryptography`` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ClusterError(
            "the library cryptography is not installed", hint="pip install 'tokenlake[tls]'"
        ) from error
    target = Path(folder).expanduser().absolute()
    names = [AUTHORITY, *(f"{role}.pem" for role in ROLES)]
    if existing := [name for name in names if (target / name).exists()]:
        raise ClusterError(
            f"{existing[0]} already exists", where=str(target), hint="choose another folder"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign("authority", key, issuer=None, issuer_key=key, days=days)
    contents = [_pem(authority)]
    for role in ROLES:
        role_key = ec.generate_private_key(ec.SECP256R1())
        signed = _sign(role, role_key, issuer=authority, issuer_key=key, days=days)
        contents.append(_pem(signed) + _pem_key(role_key))
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in zip(names, contents, strict=True):
            (target / name).touch(mode=0o600, exist_ok=False)  # before the key is written
            (target / name).write_bytes(content)
    except OSError as error:
        raise ClusterError(f"cannot be written ({error})", where=str(target)) from error
    return [target / name for name in names]


def find_certificates(
    folder: str | os.PathLike[str], roles: Sequence[str] = ROLES
) -> dict[str, str]:
    """Return the paths of the certificates of the authority (``ca``) and of some roles.

    Raises ClusterError if one is missing.
    """
    base = Path(folder).expanduser().absolute()
    paths = {"ca": base / AUTHORITY, **{role: base / f"{role}.pem" for role in roles}}
    for path in paths.values():
        if not path.is_file():
            raise ClusterError(
                "certificate not found",
                where=str(path),
                hint="create it with `etl certificates DIR`",
            )
    return {name: str(path) for name, path in paths.items()}


def tls_settings(folder: str | os.PathLike[str], roles: Sequence[str] = ROLES) -> "Security":
    """Return Dask's TLS settings of some roles with the certificates of a folder.

    Raises ClusterError if a certificate is missing or has expired.
    """
    return _settings(find_certificates(folder, roles), roles, where=str(folder))


def client_settings(authority: str, client: str, *, where: str) -> "Security":
    """Return Dask's TLS settings of a client with certificates in memory: the contents of the files.

    Raises ClusterError if a certificate has expired; ``where`` names their origin.
    """
    return _settings({"ca": authority, "client": client}, ("client",), where=where)


def expires_at(security: "Security") -> datetime | None:
    """Return when the first certificate of TLS settings expires.

    None if they have no certificates, or if the library ``cryptography`` is not installed. Dask's
    configuration may name the files of other roles: files that this process cannot read do not count.
    """
    try:
        from cryptography import x509
    except ImportError:
        return None
    names = ("tls_ca_file", *(f"tls_{role}_cert" for role in ROLES))
    values = {getattr(security, name) for name in names}
    contents = [value.encode() for value in values if value and "\n" in value]
    paths = (Path(value) for value in values if value and "\n" not in value)
    contents += [path.read_bytes() for path in paths if os.access(path, os.R_OK)]
    certificates = (each for pem in contents for each in x509.load_pem_x509_certificates(pem))
    return min((each.not_valid_after_utc for each in certificates), default=None)


def expiry_warning(expires: datetime | None) -> str | None:
    """Return a warning if certificates expire within a month.

    >>> print(expiry_warning(datetime.now(UTC) + timedelta(days=31)))
    None
    """
    if expires is None or (left := expires - datetime.now(UTC)) > _NOTICE:
        return None
    return f"the certificates expire on {expires:%Y-%m-%d}, in {many(left.days, 'day')}: {RENEWAL}"


def _settings(certificates: Mapping[str, str], roles: Sequence[str], *, where: str) -> "Security":
    from distributed.security import Security

    certs = {f"tls_{role}_cert": certificates[role] for role in roles}
    keys = {f"tls_{role}_key": certificates[role] for role in roles}
    security = Security(
        require_encryption=True,
        tls_ca_file=certificates["ca"],
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        **certs,
        **keys,
    )
    try:
        expires = expires_at(security)
    except ValueError as error:
        raise ClusterError(f"a certificate cannot be read ({error})", where=where) from error
    if expires is not None and expires <= datetime.now(UTC):
        what = f"the certificates have expired on {expires:%Y-%m-%d}"
        raise ClusterError(what, where=where, hint=RENEWAL)
    return security


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
    builder = (
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
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=True)
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_key(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
