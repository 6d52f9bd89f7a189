"""A private authority, and certificates of a cluster's scheduler, workers and clients.

::

    folder/authority/   ca.pem, ca.key         the key makes more certificates; keep it off the cluster
           scheduler/   ca.pem, cert.pem, key.pem
           worker/      likewise
           client/      likewise: MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY

A folder a role, so that each machine or container is given its own and nothing else. What a certificate is good for:

=================  ========================================================================================
scheduler, worker  both ends of a connection: they call each other
client             the calling end only; a server that shows one is refused by schedulers, workers and clients
=================  ========================================================================================

A certificate of the authority, whatever its role, lets its holder run code on the cluster. Names are not compared: Dask
switches that check off, and ranks prove to each other that they know the key of their run instead, which tells more
than a name.

Dask reads these files when a process starts, and knows no lists of revoked certificates. To renew, make new ones of the
same authority (`make_certificates` with ``authority=``) and restart one process after the other: old and new trust each
other. To revoke one that was lost, make a new authority, and restart all processes with certificates of it.

A cluster that mgclust starts itself has certificates of its own, in memory, which end with it (`throwaway`).
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mgclust.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["DAYS", "ROLES", "Credentials", "Expiry", "make_certificates", "read_expiries", "throwaway"]

ROLES = ("scheduler", "worker", "client")
DAYS = 90
AUTHORITY_DAYS = 3650
EARLIER = datetime.timedelta(days=1)  # for machines whose clocks are late


@dataclass(frozen=True)
class Credentials:
    """Certificates and key of one end of a connection with TLS, as PEM text.

    Attributes
    ----------
    ca : str
        Certificate of the authority that both ends trust.
    cert, key : str
        Of this end. Nothing of it is shown where the object is printed.
    """

    ca: str = field(repr=False)
    cert: str = field(repr=False)
    key: str = field(repr=False)


@dataclass(frozen=True)
class Expiry:
    """End of a certificate's validity."""

    path: Path  # of the file
    until: datetime.datetime  # its last moment

    @property
    def days(self) -> int:
        """Whole days that are left; negative once it has expired."""
        return (self.until - datetime.datetime.now(datetime.UTC)).days


def make_certificates(
    folder: str | Path, hosts: Sequence[str] = (), days: int = DAYS, authority: str | Path | None = None
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
    from cryptography.hazmat.primitives.asymmetric import ec

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
    names = _names(hosts or (socket.gethostname(), "localhost", "127.0.0.1", "::1"))
    if authority is None:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca = _authority(ca_key)
    else:
        ca, ca_key = _read_authority(Path(authority))
        if ca.not_valid_after_utc < until:
            raise InputError(f"days={days} is longer than the authority is good: {ca.not_valid_after_utc:%Y-%m-%d}.")
    files = {} if authority is not None else {"authority/ca.pem": _pem(ca), "authority/ca.key": _key_pem(ca_key)}
    for role, made in _of_roles(ca, ca_key, names, until, EARLIER).items():
        files |= {f"{role}/ca.pem": made.ca, f"{role}/cert.pem": made.cert, f"{role}/key.pem": made.key}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(content)
    return until


def throwaway() -> dict[str, Credentials]:
    """Credentials by role for one cluster of this machine; the key of their authority is forgotten.

    They are good for as long as memory holds them. Their dates leave years on both sides, so that a machine whose clock
    is set keeps its cluster.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    years = datetime.timedelta(days=AUTHORITY_DAYS)
    key = ec.generate_private_key(ec.SECP256R1())
    until = datetime.datetime.now(datetime.UTC) + years
    return _of_roles(_authority(key, years), key, _names(("localhost",)), until, years)


def read_expiries(folder: str | Path) -> list[Expiry]:
    """Read when the certificates in a folder expire, those of its roles or of one role; the next to expire first.

    Parameters
    ----------
    folder : path
        What `make_certificates` has made, or the folder of one role of it.

    Raises
    ------
    InputError
        There are none, one cannot be read, was not made by the authority beside it, or has another's key.
    """
    folder = Path(folder)
    places = [folder, *(folder / name for name in ("authority", *ROLES))]
    paths = [place / name for place in places for name in ("ca.pem", "cert.pem") if (place / name).is_file()]
    if not paths:
        raise InputError(
            f"{folder} holds no certificates; give a folder that mgclust certs has made, or a role's in it."
        )
    expiries = [Expiry(path, _read_certificate(path).not_valid_after_utc) for path in paths]
    for path in paths:
        if path.name == "cert.pem":
            _check_pair(path.parent)
    return sorted(expiries, key=lambda each: each.until)


def _of_roles(
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName,
    until: datetime.datetime,
    earlier: datetime.timedelta,
) -> dict[str, Credentials]:
    from cryptography.hazmat.primitives.asymmetric import ec

    made = {}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        made[role] = Credentials(
            _pem(ca), _pem(_certificate(role, key, names, until, earlier, ca, ca_key)), _key_pem(key)
        )
    return made


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not re.fullmatch(r"[A-Za-z0-9*._-]{1,253}", host):
                raise InputError(f"host={host!r} should be a name such as node1.example or an IP address.") from None
            found.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(found)


def _builder(
    name: str,
    issuer: str,
    key: EllipticCurvePrivateKey,
    until: datetime.datetime,
    earlier: datetime.timedelta,
    signs: bool,
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
        .not_valid_before(datetime.datetime.now(datetime.UTC) - earlier)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        # Python 3.13 and newer refuse certificates without the two identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _authority(key: EllipticCurvePrivateKey, earlier: datetime.timedelta = EARLIER) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=AUTHORITY_DAYS + 1)
    # A name of its own, so that two authorities are not taken for each other.
    name = f"mgclust authority {os.urandom(4).hex()}"
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return _builder(name, name, key, until, earlier, True).add_extension(identifier, critical=False).sign(key, SHA256())


def _certificate(
    role: str,
    key: EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName,
    until: datetime.datetime,
    earlier: datetime.timedelta,
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
        _builder(f"mgclust {role}", issuer, key, until, earlier, False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
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


def _read_certificate(path: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} should be a certificate in PEM; make new ones with mgclust certs.") from error


def _check_pair(folder: Path) -> None:
    """Refuse a role's folder whose files do not belong together."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate, ca = _read_certificate(folder / "cert.pem"), _read_certificate(folder / "ca.pem")
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise InputError(
            f"{folder / 'cert.pem'} was not made by {folder / 'ca.pem'}; take both from one folder."
        ) from error
    try:
        key = load_pem_private_key((folder / "key.pem").read_bytes(), None)
    except OSError as error:
        raise InputError(f"{folder / 'key.pem'} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{folder / 'key.pem'} should be a key in PEM; make new ones with mgclust certs.") from error
    if key.public_key() != certificate.public_key():
        raise InputError(f"{folder / 'key.pem'} does not belong to cert.pem beside it; take both from one folder.")


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
