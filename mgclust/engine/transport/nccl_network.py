"""Network of NCCL: the interface that NCCL uses, and why several hosts with TLS may not use NCCL.

NCCL sends rows of the data unencrypted. A cluster with TLS requires encryption between its hosts. So GPUs of several
hosts are rejected, unless the administrator of the workers declares that their network is private or encrypted below
NCCL. On one host, nothing leaves the machine.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable

import psutil

__all__ = ["PERMISSION", "choose_interface", "is_permitted", "refusal"]

PERMISSION = "MGCLUST_PLAIN_NCCL"


def is_permitted() -> bool:
    """Return whether this process may use NCCL between hosts of a cluster with TLS."""
    return os.environ.get(PERMISSION, "").strip().lower() in ("1", "true", "yes", "on")


def refusal() -> str:
    """Return the message for GPUs of several hosts of a cluster with TLS."""
    return (
        "this cluster encrypts with TLS, but NCCL would send rows between GPUs of several hosts unencrypted; request "
        "at most the workers of one host (n_workers=, --workers), use device='cpu' (--cpu), or set "
        f"{PERMISSION}=true for all workers if their network is private or encrypted below NCCL."
    )


def choose_interface(hosts: Iterable[str]) -> None:
    """Make NCCL use the interface that Dask uses, and open no port that answers arbitrary clients.

    NCCL reads its variables once in a process, before it first connects. Variables that the administrator has set are
    kept.

    Parameters
    ----------
    hosts : iterable of str
        Addresses of this rank. The first address that belongs to an interface of this machine is used.
    """
    # By default, each process with NCCL lists its communicators to anybody who connects to its port 28028.
    os.environ.setdefault("NCCL_RAS_ENABLE", "0")
    for host in hosts:
        interface = _interface_of(host)
        if interface:
            # All peers of a worker on a loopback address are on this machine: keep NCCL closed to other machines.
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
            return


def _interface_of(host: str) -> str:
    """Return the name of this machine's interface with an address; empty for other addresses, and for names."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if address.is_loopback:
        return "lo"
    for name, ends in psutil.net_if_addrs().items():
        for end in ends:
            if end.family in (socket.AF_INET, socket.AF_INET6) and _same(end.address, address):
                return name
    return ""


def _same(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ipaddress.ip_address(text.split("%")[0]) == ipaddress.ip_address(str(address).split("%")[0])
