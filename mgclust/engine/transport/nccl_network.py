"""Network of NCCL: the interface that it takes, and why several hosts with TLS may not use it.

NCCL has no encryption, and what it sends are rows of the data. A cluster that asks for TLS asks for it between its
hosts, so GPUs of several are refused, unless the workers' administrator says that their network is private or encrypted
beneath NCCL. On one host nothing leaves the machine.
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
    """The sentence for GPUs of several hosts of a cluster with TLS."""
    return (
        "this cluster encrypts with TLS, but NCCL would send rows between GPUs of several hosts unencrypted; ask for "
        "as many workers as one host has (n_workers=, --workers), use device='cpu' (--cpu), or set "
        f"{PERMISSION}=true for all workers where their network is private or encrypted beneath, such as by WireGuard."
    )


def choose_interface(hosts: Iterable[str]) -> None:
    """Have NCCL take the interface that Dask uses, and open no port that answers any client.

    NCCL reads the variables once in a process, before it first connects. What the administrator has set stays.

    Parameters
    ----------
    hosts : iterable of str
        Addresses of this rank, of which the first counts that an interface of this machine has.
    """
    # By default each process lists its communicators to every connection to its port 28028.
    os.environ.setdefault("NCCL_RAS_ENABLE", "0")
    for host in hosts:
        interface = _interface_of(host)
        if interface:
            # Workers on a loopback address have all their peers here, for good: nothing of NCCL is open to others then.
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
            return


def _interface_of(host: str) -> str:
    """Name of this machine's interface with an address; empty for others, and for names."""
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
