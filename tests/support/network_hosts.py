"""Hosts that are network namespaces of this machine behind one switch; it takes root and the program ip."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping

import pytest


@contextlib.contextmanager
def network_hosts(addresses: Mapping[str, str]) -> Iterator[Callable[..., subprocess.Popen]]:
    """A function that starts a command on a host; it ends with the hosts. Skips where there can be none.

    Parameters
    ----------
    addresses : mapping of str to str
        IPv4 address by name, all of one network of 24 bits.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take root and the program ip")
    prefix = f"mgclust-{secrets.token_hex(4)}"
    names = {host: f"{prefix}-{host}" for host in ("switch", *addresses)}
    running = []

    def ip(*words):
        return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def start(host, command, certificates=None, output=subprocess.PIPE, **environment):
        if certificates is not None:
            environment |= {
                f"MGCLUST_TLS_{name}": str(certificates / file)
                for name, file in (("CA", "ca.pem"), ("CERT", "cert.pem"), ("KEY", "key.pem"))
            }
        process = subprocess.Popen(
            ["ip", "netns", "exec", names[host], *map(str, command)],
            env={**os.environ, "NUMBA_NUM_THREADS": "2", **environment},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
        )
        running.append(process)
        return process

    try:
        try:
            ip("netns", "add", names["switch"])
            ip("-n", names["switch"], "link", "add", "bridge", "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        ip("-n", names["switch"], "link", "set", "bridge", "up")
        for host, address in addresses.items():
            ip("netns", "add", names[host])
            ip("-n", names[host], "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", names["switch"])
            ip("-n", names["switch"], "link", "set", host, "master", "bridge", "up")
            ip("-n", names[host], "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", names[host], "link", "set", device, "up")
        yield start
    finally:
        for process in running:
            process.terminate()
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.communicate()
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
