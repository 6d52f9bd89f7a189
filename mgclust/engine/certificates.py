"""A private authority, and certificates of a cluster's scheduler, workers and clients.

::

    folder/authority/   ca.pem, ca.key         the key makes more certificates; keep it off the cluster
           scheduler/   ca.pem, cert.pem, key.pem
           worker/      likewise
           client/      likewise: MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY

A folder a role, so that each machine or container is given its own and nothing else. Whoever has a certificate of the
authority may talk to the cluster, and run code on it: Dask compares no names.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgclust.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["ROLES", "make_certificates"]

ROLES = ("scheduler", "worker", "client")
AUTHORITY_DAYS = 3650
EARLIER = datetime.timedelta(hours=1)  # for machines whose clocks are late


def make_certificates(
    folder: str | Path, hosts: Sequence[str] = (), days: int = 825, authority: str | Path | None = None
) -> datetime.datetime:
    """Make an authority and a certificate for each role.

    Parameters
    ----------
    folder : path
        A folder that is empty or not there yet.
    hosts : sequence of str
        Names and addresses to put into the certificates; by default those of this machine.
    days : int
        How long the certificates are good.
    authority : path, optional
        Folder of an authority made earlier, to use in place of a new one: what has its certificates trusts the new
        ones, too.

    Returns
    -------
    datetime
        When the certificates expire.

    Raises
    ------
    InputError
        The folder holds something, the authority cannot be read or ends earlier, a host that is none, too many days.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError as error:
        raise InputError("cryptography is not installed; certificates need pip install 'mgclust[service]'.") from error
    folder = Path(folder)
    if not 1 <= days <= AUTHORITY_DAYS:
        raise InputError(f"days={days} should be from 1 to {AUTHORITY_DAYS}.")
    try:
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} should be a folder that can be read: {error.strerror}.") from error
    if used:
        raise InputError(f"{folder} is not empty; keys are never overwritten: give another folder, or remove it.")
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    names = _names(hosts)
    if authority is None:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca = _authority(ca_key)
    else:
        ca, ca_key = _read_authority(Path(authority))
        if ca.not_valid_after_utc < until:
            raise InputError(f"days={days} is longer than the authority is good: {ca.not_valid_after_utc:%Y-%m-%d}.")
    files = {} if authority is not None else {"authority/ca.pem": _pem(ca), "authority/ca.key": _key_pem(ca_key)}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        files[f"{role}/ca.pem"] = _pem(ca)
        files[f"{role}/cert.pem"] = _pem(_certificate(role, key, names, until, ca, ca_key))
        files[f"{role}/key.pem"] = _key_pem(key)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return until


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts or (socket.gethostname(), "localhost", "127.0.0.1", "::1")):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not host.isascii() or any(c in host for c in "/: \t") or not host:
                raise InputError(f"host={host!r} should be a name such as node1.example or an IP address.") from None
            found.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(found)


def _builder(
    name: str, issuer: str, key: EllipticCurvePrivateKey, until: datetime.datetime, signs: bool
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - EARLIER)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        # Python 3.13 and newer refuse certificates without the two identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _authority(key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=AUTHORITY_DAYS + 1)
    # A name of its own, so that two authorities are not taken for each other.
    name = f"mgclust authority {os.urandom(4).hex()}"
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return _builder(name, name, key, until, True).add_extension(identifier, critical=False).sign(key, SHA256())


def _certificate(
    role: str,
    key: EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName,
    until: datetime.datetime,
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    # Schedulers and workers call each other, so they are both ends; a client only calls.
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([] if role == "client" else [ExtendedKeyUsageOID.SERVER_AUTH])
    issuer = str(ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(f"mgclust {role}", issuer, key, until, False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(names, critical=False)
        .add_extension(identifier, critical=False)
        .sign(ca_key, SHA256())
    )


def _read_authority(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"authority={str(folder)!r} should hold ca.pem and ca.key of mgclust certs: {error}."
        ) from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
        raise InputError(f"authority={str(folder)!r}: ca.key does not belong to ca.pem; take both from one folder.")
    return ca, key


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
