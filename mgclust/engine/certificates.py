"""Certificates of a cluster's scheduler, workers and clients, which accept only each other.

::

    folder/scheduler/   ca.pem, cert.pem, key.pem
           worker/      likewise
           client/      likewise: MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY

Each role has its own folder, so that a machine or container gets only the folder of its role. The authority signs only
these certificates: its key is not stored, so nobody can add others. The role of a certificate limits its use:

=================  ============================================================================================
scheduler, worker  both ends of a connection, because they call each other
client             only the calling end: schedulers, workers and clients reject a server with this certificate
=================  ============================================================================================

Each certificate, whatever its role, lets its holder run code on the cluster. Host names are not compared, because Dask
switches this check off. Instead, ranks prove to each other that they know the key of their run, which is a stronger
check than a name.

Dask reads these files when a process starts, and supports no revocation lists. To renew certificates, or to revoke a
lost certificate, make new certificates and restart all processes with them.

A cluster that mgclust starts uses the certificates of `distributed.Security.temporary`, in memory.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mgclust.base.errors import InputError

__all__ = ["make_certificates"]

ROLES = ("scheduler", "worker", "client")
MAX_DAYS = 3650
LATE = datetime.timedelta(days=1)  # certificates are valid from this long ago, for machines with slow clocks


def make_certificates(folder: str | Path, hosts: Sequence[str] = (), days: int = 90) -> datetime.datetime:
    """Make a key and a certificate for each role, all signed by one new authority.

    Parameters
    ----------
    folder : path
        A folder that is empty or does not exist.
    hosts : sequence of str
        Names and addresses to put into the certificates. By default, the names and addresses of this machine.
    days : int
        Days for which the certificates are valid.

    Returns
    -------
    datetime
        Time at which the certificates expire.

    Raises
    ------
    InputError
        The folder is not empty, cannot be read, or can be changed by other accounts; a host is neither a name nor an
        address; or `days` is out of range.
    """
    folder = Path(folder)
    if not 1 <= days <= MAX_DAYS:
        raise InputError(f"days={days} should be from 1 to {MAX_DAYS}.")
    try:
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} should be a folder that can be read: {error.strerror}.") from error
    if used:
        raise InputError(
            f"{folder} is not empty, and keys are never overwritten; give another folder, or remove this one."
        )
    names = _names(hosts or (socket.gethostname(), "localhost", "127.0.0.1", "::1"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # a mode in which a lax umask changes nothing
    if folder.stat().st_mode & 0o022:
        raise InputError(f"{folder} can be changed by other accounts, who could replace keys; set its mode to 0700.")
    authority = _Authority(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days))
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / role / "ca.pem", authority.certificate.public_bytes(Encoding.PEM))
        _write(folder / role / "cert.pem", authority.issue(role, key, names).public_bytes(Encoding.PEM))
        _write(folder / role / "key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return authority.until


class _Authority:
    """An authority whose key exists only as long as this object."""

    def __init__(self, until: datetime.datetime) -> None:
        self.until = until
        self._key = ec.generate_private_key(ec.SECP256R1())
        # The name is unique, so that two authorities are not taken for each other.
        self._name = f"mgclust authority {os.urandom(4).hex()}"
        self.certificate = self._builder(self._name, self._key, signs=True).sign(self._key, SHA256())

    def issue(self, role: str, key: ec.EllipticCurvePrivateKey, names: x509.SubjectAlternativeName) -> x509.Certificate:
        """Sign the certificate for the key of a role."""
        # Schedulers and workers call each other, so they may be either end of a connection; a client only calls.
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([] if role == "client" else [ExtendedKeyUsageOID.SERVER_AUTH])
        return (
            self._builder(f"mgclust {role}", key, signs=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, SHA256())
        )

    def _builder(self, name: str, key: ec.EllipticCurvePrivateKey, signs: bool) -> x509.CertificateBuilder:
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, self._name))
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        # Python 3.13 and newer reject certificates that lack the identifiers of both keys.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime.now(datetime.UTC) - LATE)
            .not_valid_after(self.until)
            .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(signer, critical=False)
        )


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not re.fullmatch(r"[A-Za-z0-9*._-]{1,253}", host):
                raise InputError(f"host={host!r} should be a name such as node1.example or an IP address.") from None
            found.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(found)


def _write(path: Path, content: bytes) -> None:
    """Write a new file that only this account can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
