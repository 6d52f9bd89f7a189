"""The example of a proxy in HARDENING.md, by nginx itself in front of a service."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from support.service_process import Running, free_port
from support.waiting import wait_for

PAGE = Path(__file__).parents[2] / "deploy" / "HARDENING.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: apt install)"),
]
CLIENT = "127.0.0.2"  # from which the tests connect to the proxy


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """A service behind the proxy, and the address of the proxy."""
    folder = tmp_path_factory.mktemp("proxy")
    port = free_port()
    settings = {"public_url": f"https://localhost:{port}", "trusted_proxies": "127.0.0.1"}
    service = Running(folder, ["--no-runner"], settings=settings)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    (example,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    example = example.replace("/etc/nginx/mgclust/", f"{folder}/").replace(
        "listen 443 ssl", f"listen 127.0.0.1:{port} ssl"
    )
    example = example.replace("127.0.0.1:8700", f"127.0.0.1:{service.port}")
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{example}}}\n"
    )
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen(command) as nginx:
        try:
            yield service, f"https://localhost:{port}", str(folder / "cert.pem")
        finally:
            nginx.terminate()
            service.stop()


@pytest.fixture
def http(behind):
    service, address, certificate = behind
    transport = httpx.HTTPTransport(verify=ssl.create_default_context(cafile=certificate), local_address=CLIENT)
    token = (service.data / "token").read_text().strip()
    with httpx.Client(base_url=address, transport=transport, headers={"Authorization": f"Bearer {token}"}) as client:
        wait_for(lambda: _answers(client), 30)
        yield client


def _answers(client):
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_cookies_are_sent_only_over_tls(http):
    answer = http.post("/api/v1/session")
    assert answer.status_code == 201
    assert "secure" in answer.headers["set-cookie"].lower() and "httponly" in answer.headers["set-cookie"].lower()


def test_large_uploads_and_events_pass_as_they_arrive(http):
    rows = "1,2\n3,4\n" * 400_000  # beyond nginx's own limit of 1 MB
    sent = http.put("/api/v1/uploads/rows.csv", content=rows)
    assert sent.status_code == 201, sent.text
    wanted = {"method": "density-peaks", "sources": [{"upload": sent.json()["id"]}], "parameters": {"n_clusters": 2}}
    job = http.post("/api/v1/jobs", json=wanted)
    assert job.status_code == 201, job.text
    begun = time.monotonic()
    # No runner computes the job, so its stream stays open after the first event.
    with http.stream("GET", f"/api/v1/jobs/{job.json()['id']}/events", timeout=20) as stream:
        assert next(stream.iter_text()).startswith("event: job")
    assert time.monotonic() - begun < 10


def test_the_audit_log_has_the_address_of_the_client(http, behind):
    """Whatever the client itself writes in the header."""
    service, _, _ = behind
    sent = http.put("/api/v1/uploads/audited.csv", content="1,2\n", headers={"X-Forwarded-For": "203.0.113.7"})

    def lines():
        return [
            line for line in (service.data / "audit.log").read_text("utf-8").splitlines() if sent.json()["id"] in line
        ]

    wait_for(lines, 10)
    assert {json.loads(line)["source"] for line in lines()} == {CLIENT}
