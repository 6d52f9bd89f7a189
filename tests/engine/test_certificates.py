"""`mgclust certs`: a scheduler and workers that trust each other, and nobody else."""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import distributed
import numpy as np
import pytest
from cryptography import x509

from mgclust import DensityPeaks
from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.engine.certificates import make_certificates
from mgclust.engine.dask import cluster as cluster_module
from mgclust.engine.dask.cluster import connect
from mgclust.engine.dask.scheduler import workers_of
from support.waiting import wait_for

DASK = str(Path(sys.executable).with_name("dask"))


def tls(folder: Path) -> list[str]:
    """Options of Dask's commands, as the files of deploy/ have them."""
    return [
        f"--tls-ca-file={folder / 'ca.pem'}", f"--tls-cert={folder / 'cert.pem'}", f"--tls-key={folder / 'key.pem'}"
    ]  # fmt: skip


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    assert run_command(["certs", str(folder), "--host", "localhost", "--host", "127.0.0.1"]) == 0
    return folder


@pytest.fixture(scope="module")
def scheduler(certs, tmp_path_factory):
    """The address of a scheduler with two workers, started as deploy/ does."""
    folder = tmp_path_factory.mktemp("dask")
    common = {
        "env": os.environ | {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"},
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    with contextlib.ExitStack() as stack:

        def start(*command):
            process = stack.enter_context(subprocess.Popen([DASK, *command], **common))
            stack.callback(process.terminate)

        found = folder / "scheduler.json"
        start(
            "scheduler", "--protocol=tls", "--host=127.0.0.1", "--port=0", f"--scheduler-file={found}",
            "--preload=mgclust.engine.tls", "--no-dashboard", "--dashboard-address=127.0.0.1:0",
            *tls(certs / "scheduler"),
        )  # fmt: skip
        wait_for(lambda: found.exists() and found.stat().st_size)
        address = found.read_text().split('"address": "')[1].split('"')[0]
        start(
            "worker", address, "--nworkers=2", "--nthreads=1", "--no-dashboard", f"--local-directory={folder}",
            "--preload=mgclust.engine.tls", "--preload-nanny=mgclust.engine.tls", *tls(certs / "worker"),
        )  # fmt: skip
        yield address


@pytest.fixture
def trusted(certs, monkeypatch):
    trust(monkeypatch, certs)


def trust(monkeypatch, certs):
    for name, file in (("CA", "ca.pem"), ("CERT", "cert.pem"), ("KEY", "key.pem")):
        monkeypatch.setenv(f"MGCLUST_TLS_{name}", str(certs / "client" / file))


@pytest.mark.slow
def test_a_run_on_a_cluster_with_these_certificates(scheduler, trusted):
    assert scheduler.startswith("tls://")
    x = np.random.default_rng(5).normal(size=(3000, 2))
    with connect(scheduler, "cpu", n_workers=2) as found:
        assert found.size == 2
    there = DensityPeaks(4, client=scheduler, n_workers=2, device="cpu").fit(x)
    assert there.result_.hardware["ranks"] == 2
    here = DensityPeaks(4, client=None, device="cpu").fit(x)
    np.testing.assert_array_equal(there.labels_, here.labels_)


@pytest.mark.slow
def test_all_processes_are_guarded(scheduler, trusted, monkeypatch):
    """See `mgclust.engine.tls`; workers and nannies of a cluster that mgclust starts are, too."""

    def guarded():
        return ssl.SSLContext.sslsocket_class.__module__ == "mgclust.engine.tls"

    monkeypatch.setattr(ssl.SSLContext, "sslsocket_class", ssl.SSLSocket)
    with connect(scheduler, "cpu", n_workers=2) as found:
        client = found.client
        assert guarded() and client.run_on_scheduler(guarded)
        assert list(client.run(guarded).values()) == [True, True] == list(client.run(guarded, nanny=True).values())
    ssl.SSLContext.sslsocket_class = ssl.SSLSocket
    with connect("local", "cpu", n_workers=1) as found:
        assert guarded() and list(found.client.run(guarded).values()) == [True]


def test_another_authority_is_refused(scheduler, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", 2.0)
    make_certificates(tmp_path / "others")
    trust(monkeypatch, tmp_path / "others")
    with pytest.raises(InputError, match="no Dask scheduler answered"):
        connect(scheduler, "cpu").__enter__()


@pytest.mark.slow
def test_a_worker_of_another_authority_is_refused(scheduler, trusted, tmp_path):
    make_certificates(tmp_path / "others")
    command = [DASK, "worker", scheduler, "--death-timeout=4", "--no-nanny", *tls(tmp_path / "others" / "worker")]
    subprocess.run(command, timeout=120, capture_output=True, cwd=tmp_path)
    with connect(scheduler, "cpu", n_workers=2) as found:
        assert len(workers_of(found.client)) == 2


def test_files(certs):
    files = sorted(path for path in certs.rglob("*") if path.is_file())
    assert [str(path.relative_to(certs)) for path in files] == [
        f"{role}/{name}" for role in ("client", "scheduler", "worker") for name in ("ca.pem", "cert.pem", "key.pem")
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    names = x509.SubjectAlternativeName
    for role in ("client", "scheduler", "worker"):
        certificate = x509.load_pem_x509_certificate((certs / role / "cert.pem").read_bytes())
        hosts = certificate.extensions.get_extension_for_class(names).value
        assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
        assert [str(each) for each in hosts.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_strict_checks_of_names_and_chains_pass(certs, role):
    """Newer Pythons are strict by default, and programs other than Dask compare names."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certs / role / "cert.pem", certs / role / "key.pem")
    server.load_verify_locations(certs / role / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certs / "client" / "ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_cert_chain(certs / "client" / "cert.pem", certs / "client" / "key.pem")
    here, there = (ssl.MemoryBIO(), ssl.MemoryBIO()), None
    there = client.wrap_bio(here[0], here[1], server_hostname="localhost")
    accepts = server.wrap_bio(here[1], here[0], server_side=True)
    for _ in range(6):
        for side in (there, accepts):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert there.version() == accepts.version() == "TLSv1.3"


def shake(client, server):
    """The two ends of a handshake, or the error of the one that refuses the other."""
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(here, there), server.wrap_bio(there, here, server_side=True)
    for _ in range(6):
        for side in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return ends


def security(certs, role):
    files = {"ca_file": "ca.pem", "client_cert": "cert.pem", "client_key": "key.pem"}
    files |= {"worker_cert": "cert.pem", "worker_key": "key.pem"}
    return distributed.Security(
        require_encryption=True, **{f"tls_{name}": str(certs / role / file) for name, file in files.items()}
    )


@pytest.mark.parametrize(("caller", "called", "trusted"), [
    ("client", "scheduler", True), ("client", "worker", True), ("worker", "worker", True), ("worker", "client", False),
    ("client", "client", False),
])  # fmt: skip
def test_a_clients_certificate_serves_nothing(certs, caller, called, trusted):
    """In the contexts that Dask makes of them, which the ranks' links use, too."""
    client = security(certs, caller).get_connection_args("client")["ssl_context"]
    server = security(certs, called).get_listen_args("worker")["ssl_context"]
    with contextlib.nullcontext() if trusted else pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake(client, server)


def test_roles_and_days(certs):
    usage = x509.oid.ExtendedKeyUsageOID
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=90)
    for role in ("client", "scheduler", "worker"):
        certificate = x509.load_pem_x509_certificate((certs / role / "cert.pem").read_bytes())
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert uses.critical
        assert set(uses.value) == {usage.CLIENT_AUTH} | (set() if role == "client" else {usage.SERVER_AUTH})
        assert abs(certificate.not_valid_after_utc - until) < datetime.timedelta(hours=1)


def test_what_cannot_be(certs, tmp_path, capsys):
    before = {path: path.read_bytes() for path in certs.rglob("*") if path.is_file()}
    assert run_command(["certs", str(certs)]) == 2
    assert "is not empty, and keys are never overwritten" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in certs.rglob("*") if path.is_file()}
    (tmp_path / "file").touch()
    for arguments, message in (
        ({"hosts": ["a/b"]}, "host='a/b' should be a name"),
        ({"hosts": [""]}, "host='' should be a name"),
        ({"hosts": ["a\nb"]}, r"host='a\\nb' should be a name"),
        ({"days": 9999}, "days=9999 should be from 1 to 3650"),
        ({"folder": tmp_path / "file"}, "should be a folder"),
    ):
        with pytest.raises(InputError, match=message):
            make_certificates(**({"folder": tmp_path / "new"} | arguments))
        assert not (tmp_path / "new").exists()


def test_a_lax_umask_opens_nothing(tmp_path):
    before = os.umask(0)
    try:
        make_certificates(tmp_path / "certs")
    finally:
        os.umask(before)
    found = [tmp_path / "certs", *(tmp_path / "certs").rglob("*")]
    assert len(found) == 13
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="can be changed by other accounts"):
        make_certificates(tmp_path / "open")
