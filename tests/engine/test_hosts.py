"""Several hosts: network namespaces of one machine behind one switch; scheduler, workers and users with TLS.

::

    scheduler 10.77.0.1    one 10.77.0.2    two 10.77.0.3    user 10.77.0.4    stranger 10.77.0.5
           └───────────────────┴── switch ──────┴────────────────┴─────────────────┘
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mgclust import DensityPeaks, load_result
from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.service.settings import Settings
from support.network_hosts import network_hosts

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = ("scheduler", "one", "two", "user", "stranger")
ADDRESSES = {host: f"10.77.0.{number}" for number, host in enumerate(HOSTS, 1)}
SCHEDULER = "tls://10.77.0.1:8786"
WORKER_PORT = 9000
MGCLUST = [sys.executable, "-m", "mgclust"]
DASK = str(Path(sys.executable).with_name("dask"))

# Until its input ends: of each TCP connection that is opened, and each direction, the first bytes of what is sent.
LISTEN = """
import json, select, socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE: more than the system gives others
print("listening", flush=True)
begins, seen = {}, {}
while sys.stdin not in select.select([wire, sys.stdin], [], [])[0]:
    frame = wire.recv(1 << 17)
    ip = frame[14:]
    if frame[12:14] != b"\\x08\\x00" or ip[9] != 6:
        continue
    tcp = ip[(ip[0] & 15) * 4 : int.from_bytes(ip[2:4], "big")]
    ends = [socket.inet_ntoa(ip[12:16]), int.from_bytes(tcp[:2], "big"),
            socket.inet_ntoa(ip[16:20]), int.from_bytes(tcp[2:4], "big")]
    number, flow = int.from_bytes(tcp[4:8], "big"), tuple(ends)
    if tcp[13] & 2:
        begins[flow] = (number + 1) % 2**32
    content = tcp[(tcp[12] >> 4) * 4 :]
    if content and begins.get(flow) == number:
        seen[flow] = content[:3].hex()
print(json.dumps([[*flow, content] for flow, content in seen.items()]))
"""

# Jobs of so many workers each; what the service tells of them in the end.
SUBMIT = """
import json, sys, time
from pathlib import Path
import httpx
from mgclust import Service
token = Path(sys.argv[1]) / "token"
for _ in range(1200):
    try:
        if httpx.get("http://127.0.0.1:8700/healthz").status_code == 200:
            break
    except httpx.TransportError:
        pass
    time.sleep(0.1)
service = Service("http://127.0.0.1:8700", token.read_text().strip())
jobs = [
    service.submit("density-peaks", sys.argv[2], report=False, resources={"workers": int(size)}, n_clusters=4)
    for size in sys.argv[3:]
]
print(json.dumps([job.wait().info for job in jobs]))
"""


@pytest.fixture(scope="module")
def hosts():
    """A function that starts a command on a host; it ends with the hosts."""
    with network_hosts(ADDRESSES) as start:
        yield start


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """The cluster's certificates, and beside them those of another authority."""
    folder = tmp_path_factory.mktemp("certs")
    for name in ("ours", "others"):
        assert run_command(["certs", str(folder / name), "--host", "10.77.0.1"]) == 0
    return folder


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.save(path, np.random.default_rng(5).normal(size=(3000, 2)))
    return path


@pytest.fixture(scope="module")
def expected(points):
    return DensityPeaks(4, client=None, device="cpu").fit(np.load(points)).labels_


@pytest.fixture(scope="module")
def cluster(hosts, certs, tmp_path_factory):
    """A scheduler and two workers, each on its own host, started as the files of deploy/ do."""
    folder = tmp_path_factory.mktemp("dask")

    def start(host, *command):
        role = "scheduler" if host == "scheduler" else "worker"
        of_role = certs / "ours" / role
        tls = [f"--tls-ca-file={of_role / 'ca.pem'}", f"--tls-cert={of_role / 'cert.pem'}"]
        command = [DASK, *command, "--no-dashboard", *tls, f"--tls-key={of_role / 'key.pem'}"]
        # A pipe that is not read would fill.
        hosts(host, command, output=subprocess.DEVNULL, DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION="true")

    start("scheduler", "scheduler", "--protocol=tls", "--host=10.77.0.1", "--dashboard-address=127.0.0.1:0")
    for host in ("one", "two"):
        address = f"--host={ADDRESSES[host]}"
        start(host, "worker", SCHEDULER, address, f"--worker-port={WORKER_PORT}", f"--local-directory={folder}")


@pytest.fixture(scope="module", autouse=True)
def strangers(hosts, cluster, certs):
    """Whom the cluster should refuse: they try for 15 s, while other tests run."""
    info = [*MGCLUST, "info", "--scheduler"]
    return {
        "another authority": hosts("stranger", [*info, SCHEDULER], certs / "others" / "client"),
        "no certificate": hosts("stranger", [*info, SCHEDULER]),
        "no encryption": hosts("stranger", [*info, SCHEDULER.replace("tls", "tcp")]),
    }


def succeed(process):
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    return out


def test_a_run_on_two_hosts_and_all_of_it_encrypted(hosts, certs, points, expected, tmp_path):
    listener = hosts("switch", [sys.executable, "-c", LISTEN])
    assert listener.stdout.readline() == "listening\n"
    command = [*MGCLUST, "run", "density-peaks", points, "-o", tmp_path / "out", "--n-clusters", 4, "--no-report"]
    succeed(hosts("user", [*command, "--scheduler", SCHEDULER, "--workers", 2], certs / "ours" / "client"))
    result = load_result(tmp_path / "out")
    assert result.hardware["ranks"] == 2
    np.testing.assert_array_equal(result.labels, expected)
    flows = [each for each in json.loads(succeed(listener)) if ADDRESSES["stranger"] not in each]
    # What the ranks tell each other goes neither to the scheduler's nor to a worker's port of Dask.
    workers = {ADDRESSES["one"], ADDRESSES["two"]}
    links = [each for each in flows if {each[0], each[2]} == workers and WORKER_PORT not in (each[1], each[3])]
    assert len(links) == 2  # one connection, seen from both ends
    greeting = "1603"  # a TLS handshake
    assert {source for source, *_ in flows} >= {ADDRESSES["user"], *workers}
    plain = [each for each in flows if not each[4].startswith(greeting)]
    assert not plain


def test_a_service_whose_cluster_is_elsewhere(hosts, certs, points, expected, tmp_path):
    """Two jobs of one worker each, at once, and one of two."""
    data = tmp_path / "data"
    serve = [*MGCLUST, "serve", "--data", data, "--scheduler", SCHEDULER, "--cpu", "--slots", 2]
    hosts("user", serve, certs / "ours" / "client")
    sizes = (1, 1, 2)
    user = hosts("user", [sys.executable, "-c", SUBMIT, data, points, *sizes])
    for told, size in zip(json.loads(succeed(user)), sizes, strict=True):
        assert told["state"] == "SUCCEEDED", told["error"]
        result = load_result(data / "jobs" / told["id"] / f"attempt-{told['attempt']}" / "result")
        assert result.hardware["ranks"] == size
        np.testing.assert_array_equal(result.labels, expected)


@pytest.mark.parametrize("who", ["another authority", "no certificate", "no encryption"])
def test_strangers_are_refused(strangers, who):
    out, error = strangers[who].communicate(timeout=120)
    assert (strangers[who].returncode, out) == (2, "")
    assert "no Dask scheduler answered there within 15 s" in error
    assert len(error.strip().splitlines()) == 1
    if who != "no encryption":
        assert (
            "Set MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY to PEM files that the scheduler trusts." in error
        )


@pytest.mark.parametrize(
    "scheduler", ["tcp://10.77.0.1:8786", "10.77.0.1:8786", "tcp://host:8786", "ws://[fe80::1]:80"]
)
def test_a_service_without_encryption_is_refused(scheduler):
    with pytest.raises(InputError, match=r"scheduler='.*' should begin with tls://: others on the network"):
        Settings(scheduler=scheduler, allow_plain_scheduler=True)


@pytest.mark.parametrize("scheduler", [SCHEDULER, ""])
def test_a_service_with_encryption_or_without_a_cluster(scheduler):
    assert Settings(scheduler=scheduler).scheduler == scheduler


@pytest.mark.parametrize("scheduler", ["tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:8786"])
def test_a_service_without_encryption_on_one_machine(scheduler):
    """Every account of the machine could run code as the workers: only where the administrator says so."""
    with pytest.raises(InputError, match=r"every account of this machine could run code .*_ALLOW_PLAIN_SCHEDULER=true"):
        Settings(scheduler=scheduler)
    assert Settings(scheduler=scheduler, allow_plain_scheduler=True).scheduler == scheduler
