"""Data that jobs name by URL: what is refused, whatever it looks like, and what arrives."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import socket
import ssl
import threading

import pytest

from mgclust.engine.certificates import make_certificates
from mgclust.errors import InputError, RunFailed
from mgclust.service.fetch import check_url, fetch, file_name, is_public
from mgclust.service.settings import Settings

CONTENT = b"a,b\n" + b"1,2\n" * 5000


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers for paths that say how."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path[len("/to?") :])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response({"/gone.csv": 404, "/ill.csv": 503}.get(self.path, 200))
        if self.path == "/chunked.csv":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(CONTENT), CONTENT))
            return
        length = {"/cut.csv": len(CONTENT) + 1, "/vast.csv": 10**12}.get(self.path, len(CONTENT))
        if self.path != "/endless.csv":
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(CONTENT)
        self.close_connection = True

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server():
    with serving() as each:
        yield each


def local(host, port, **_):
    """A resolver for which every name is this machine."""
    return socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)


def get(server, path, folder, limit=1 << 20, scheme="http", **how):
    base = f"{scheme}://data.example:{server.server_port}"
    given = {"resolve": local, "public": lambda address: address == "127.0.0.1"} | how
    return fetch(f"{base}{path}", folder / "0" / "x.csv", [f"{base}/"], limit, lambda event: None, **given)


def test_a_file_arrives_whole_and_once(server, tmp_path):
    told = get(server, "/x.csv?key=secret", tmp_path)
    assert (tmp_path / "0" / "x.csv").read_bytes() == CONTENT
    assert told["sha256"] == hashlib.sha256(CONTENT).hexdigest() and told["size"] == len(CONTENT)
    assert "secret" not in json.dumps(told)
    path, headers = server.asked[0]
    assert path == "/x.csv?key=secret" and headers["Host"] == f"data.example:{server.server_port}"
    assert get(server, "/x.csv", tmp_path) == told and len(server.asked) == 1
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == ["fetched.json", "x.csv"]
    assert get(server, "/chunked.csv", tmp_path / "again")["sha256"] == told["sha256"]


@pytest.mark.parametrize(
    ("path", "limit", "kind", "says"),
    [
        ("/gone.csv", 1 << 20, InputError, "answered by 404"),
        ("/ill.csv", 1 << 20, RunFailed, "answered by 503"),
        ("/cut.csv", 1 << 20, RunFailed, "could not be fetched"),
        ("/endless.csv", 1 << 20, InputError, "does not send the length"),
        ("/vast.csv", 1 << 20, InputError, "at most upload_limit=1048576 bytes"),
        ("/chunked.csv", 1000, InputError, "at most upload_limit=1000 bytes"),
        ("/to?http://data.example:1/x.csv", 1 << 20, InputError, "not below what this service may fetch"),
        ("/to?http://127.0.0.1/x.csv", 1 << 20, InputError, "not below what this service may fetch"),
        ("/to?file:///etc/passwd", 1 << 20, InputError, "should be http"),
        ("/to?http://169.254.169.254/latest/meta-data", 1 << 20, InputError, "internal address"),
        ("/to?http://[::1", 1 << 20, InputError, "invalid URL"),
        ("/to?//[::1]/x.csv", 1 << 20, InputError, "internal address"),
    ],
)
def test_what_does_not_arrive_leaves_nothing(server, tmp_path, path, limit, kind, says):
    with pytest.raises(kind, match=says):
        get(server, path, tmp_path, limit)
    assert list((tmp_path / "0").iterdir()) == []


def test_redirections_are_followed_where_they_may_lead_but_not_for_ever(server, tmp_path):
    get(server, "/to?/x.csv", tmp_path)
    assert (tmp_path / "0" / "x.csv").read_bytes() == CONTENT
    with pytest.raises(InputError, match="redirected more than 5 times"):
        get(server, "/to?/to?/to?/to?/to?/to?/to?/x.csv", tmp_path / "more")


def test_the_connection_goes_to_the_address_that_was_looked_at(server, tmp_path):
    asked = []

    def rebinding(host, port, **_):
        """The first answer is good, all others are not."""
        asked.append(host)
        return local(host, port) if len(asked) == 1 else local(host, port)[:0]

    get(server, "/x.csv", tmp_path, resolve=rebinding)
    assert asked == ["data.example"]


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fe80::1%lo"])
def test_a_name_of_an_internal_address_is_refused(tmp_path, inside):
    def resolve(host, port, **_):
        return [(0, 0, 0, "", (address, port)) for address in ("93.184.215.14", inside)]

    with pytest.raises(InputError, match="leads to an internal address"):
        fetch("https://a.example/x.csv", tmp_path / "x.csv", ["https://a.example/"], 10, print, resolve=resolve)


def test_proxies_of_the_environment_are_not_used(server, tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    get(server, "/x.csv", tmp_path)


def test_the_certificate_has_to_be_that_of_the_name(tmp_path):
    make_certificates(tmp_path / "tls", ["data.example"])
    mine = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    mine.load_cert_chain(tmp_path / "tls/scheduler/cert.pem", tmp_path / "tls/scheduler/key.pem")
    trusting = ssl.create_default_context(cafile=tmp_path / "tls/scheduler/ca.pem")
    with serving(mine) as server:
        get(server, "/x.csv", tmp_path, scheme="https", context=trusting)
        with pytest.raises(RunFailed, match=r"could not be fetched: .*certificate"):
            get(server, "/x.csv", tmp_path / "unknown", scheme="https")


ALLOWED = ["https://allowed.example/data/", "http://allowed.example:8080", "https://allowed.example/one.csv"]


@pytest.mark.parametrize(
    "url",
    [
        "https://allowed.example/data/x.csv", "https://ALLOWED.example:443/data/a/b/x.csv?v=1",
        "http://allowed.example:8080/x.csv", "https://allowed.example/one.csv",
    ],
)  # fmt: skip
def test_what_is_allowed(url):
    check_url(url, ALLOWED)
    assert file_name(url).endswith(".csv")


@pytest.mark.parametrize(
    "url",
    [
        "https://allowed.example.evil.com/data/x.csv", "https://allowed.example@evil.com/data/x.csv",
        "https://user:word@allowed.example/data/x.csv", "https://evil.com/https://allowed.example/data/x.csv",
        "https://evil.com#@allowed.example/data/x.csv", "https://evil.com\\@allowed.example/data/x.csv",
        "https://allowed.example/data/../x.csv", "https://allowed.example/data/%2e%2e/x.csv",
        "https://allowed.example/data/%2E%2e%2Fx.csv", "https://allowed.example/data/%252e%252e/x.csv",
        "https://allowed.example/data/..\\x.csv", "https://allowed.example/data/./x.csv",
        "https://allowed.example/datax.csv",
        "https://allowed.example/one.csv/x.csv/..", "https://allowed.example:444/data/x.csv",
        "http://allowed.example/data/x.csv", "http://allowed.example:80800/x.csv",
        "https://allowed.example./data/x.csv",
        "https://xallowed.example/data/x.csv", "ftp://allowed.example/data/x.csv", "file:///data/x.csv",
        "//allowed.example/data/x",
        "https:///data/x.csv", "https://allowed.example/data/x .csv", "https://allowed.example/data/\nx.csv",
        "https://allowed.example/data/x\0.csv", "https://allowed.example/data/%00.csv",
        "https://аllowed.example/data/x.csv",
        "https://[::1/data/x.csv", "gopher://allowed.example", "",
    ],
)  # fmt: skip
def test_what_only_looks_allowed(url):
    with pytest.raises(InputError, match="url="):
        check_url(url, ALLOWED)


INTERNAL = [
    "127.0.0.1", "localhost", "a.localhost", "[::1]", "[::]", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1", "224.0.0.1", "255.255.255.255", "2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "127.1",
    "0",
    "[::ffff:127.0.0.1]", "[::ffff:a00:1]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[ff02::1]",
    "[2002:7f00:1::]",
    "[64:ff9b::7f00:1]", "[::127.0.0.1]",
]  # fmt: skip


@pytest.mark.parametrize("host", INTERNAL)
def test_internal_addresses_are_refused_even_where_they_are_allowed(host):
    for prefixes in ([f"http://{host}/"], []):
        with pytest.raises(InputError, match=r"internal address|should be http"):
            check_url(f"http://{host}/x.csv", prefixes)


def test_public_addresses():
    assert all(map(is_public, ("93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")))


@pytest.mark.parametrize("name", ["", ".hidden", "a%20b.csv", "x" * 300, "%00"])
def test_names_of_files(name):
    with pytest.raises(InputError, match="end with a file's name"):
        file_name(f"https://allowed.example/data/{name}")


@pytest.mark.parametrize(
    "urls", ["https://a.example/", "[", '"x"', "[1]", '["ftp://a/"]', '["https://u@a/"]', '["https://a/?x"]', "{}"]
)
def test_settings_that_are_no_prefixes(urls, tmp_path):
    with pytest.raises(InputError, match="MGCLUST_SERVICE_URLS="):
        Settings(data=tmp_path, urls=urls)
    assert Settings(data=tmp_path, urls='["https://a.example/x/"]').prefixes == ["https://a.example/x/"]
    assert Settings(data=tmp_path).prefixes == []
