"""Signing in at an OpenID provider: a conforming provider, and providers and browsers that attack."""

from __future__ import annotations

import html
import re
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import oidc_provider_mock
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.testclient import TestClient

from mgclust.base.errors import InputError
from mgclust.service.queue import access
from mgclust.service.queue.models import User, open_database, writing
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.sign_in import endpoints
from mgclust.service.web.sign_in import provider as provider_module

ISSUER, PUBLIC = "https://login.example", "https://cluster.example"


def settings_of(folder, **more):
    given = {"oidc_issuer": ISSUER, "oidc_client_id": "mgclust", "oidc_client_secret": "hush", "public_url": PUBLIC}
    return Settings(data=folder, cpu=True, **given | {"oidc_admin_groups": "lab-admins, it"} | more)


class FakeProvider:
    """A provider whose tokens can be spoilt."""

    def __init__(self):
        self.key = self.signing = RSAKey.generate_key(2048, {"kid": "1"})
        self.header, self.claims, self.metadata, self.sent = {"alg": "RS256", "kid": "1"}, {}, {}, []
        self.person = {"sub": "248", "preferred_username": "Ada Lovelace", "groups": ["staff"]}

    def __call__(self, request):
        request.read()
        path = request.url.path
        if path.endswith("openid-configuration"):
            places = {name: f"{ISSUER}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
            return httpx.Response(200, json={"issuer": ISSUER} | places | self.metadata)
        if path == "/jwks_uri":
            return httpx.Response(200, json={"keys": [self.key.as_dict(private=False)]})
        self.sent.append(parse_qs(request.content.decode()) | {"authorization": request.headers["authorization"]})
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "mgclust", "exp": now + 300, "iat": now, "nonce": self.nonce}
        claims = {name: value for name, value in (claims | self.person | self.claims).items() if value is not None}
        token = jwt.encode(self.header, claims, self.signing, algorithms=[self.header["alg"]])
        return httpx.Response(200, json={"id_token": token})

    def sign_in(self, http, state=None):
        """Do what a browser does, up to the answer of the service."""
        left = http.get("/sign-in/openid", follow_redirects=False)
        if left.status_code != 303:
            return left
        query = parse_qs(urlsplit(left.headers["location"]).query)
        self.query, self.nonce = query, query["nonce"][0]
        wanted = {"code": "c0de", "state": state or query["state"][0]}
        return http.get("/sign-in/openid/callback", params=wanted, follow_redirects=False)


@pytest.fixture
def fake(monkeypatch):
    made, real = FakeProvider(), httpx.Client
    monkeypatch.setattr(provider_module.httpx, "Client", lambda **how: real(**how, transport=httpx.MockTransport(made)))
    return made


def browser(settings):
    return TestClient(create_app(settings), base_url=PUBLIC, raise_server_exceptions=False)


@pytest.fixture
def http(tmp_path, fake):
    with browser(settings_of(tmp_path)) as made:
        yield made


def problem(answer):
    """What the page says. Its address has no text, because any site may lead to an address."""
    assert answer.status_code == 403 and "location" not in answer.headers
    assert "mgclust-session" not in answer.headers.get("set-cookie", "")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    return html.unescape(re.search('role="alert">([^<]+)</p>', answer.text)[1])


def proof_of(answer):
    place = answer.headers["location"]
    assert place.startswith("/sign-in#proof="), unquote(place)
    return {"X-Mgclust-Proof": place.partition("=")[2]}


def test_a_sign_in(http, fake):
    answer = fake.sign_in(http)
    told = http.get("/api/v1/session", headers=proof_of(answer)).json()
    assert (told["user"], told["role"], told["kind"]) == ("ada-lovelace", "user", "session")
    assert told["expires"] <= time.time() + 43_200
    cookies = answer.headers.get_list("set-cookie")
    assert all("HttpOnly" in each and "Secure" in each for each in cookies) and len(cookies) == 2
    assert all(each.startswith("__Host-") and "Path=/;" in each and "Domain" not in each for each in cookies)
    assert answer.headers["cache-control"] == "no-store"  # its address has the proof
    # PKCE: the challenge went to the provider's page, and the verifier to its token endpoint.
    sent = fake.sent[0]
    assert fake.query["code_challenge_method"] == ["S256"] and fake.query["response_type"] == ["code"]
    challenge = provider_module.create_s256_code_challenge(sent["code_verifier"][0])
    assert fake.query["code_challenge"] == [challenge]
    assert sent["redirect_uri"] == fake.query["redirect_uri"] == [f"{PUBLIC}/sign-in/openid/callback"]
    assert sent["authorization"] == httpx.BasicAuth("mgclust", "hush")._auth_header


def test_groups_decide_the_role_at_each_sign_in(http, fake):
    for groups, role in ((["it"], "admin"), (["staff"], "user"), ("it", "admin"), (None, "user"), ([["it"]], "user")):
        fake.person["groups"] = groups
        told = http.get("/api/v1/session", headers=proof_of(fake.sign_in(http))).json()
        assert (told["user"], told["role"]) == ("ada-lovelace", role)


def test_only_members_of_the_groups(tmp_path, fake):
    with browser(settings_of(tmp_path, oidc_user_groups="cluster")) as http:
        assert "none of your groups" in problem(fake.sign_in(http))
        fake.person["groups"] = ["cluster"]
        proof_of(fake.sign_in(http))


def test_a_name_does_not_take_over_a_user(http, fake, tmp_path):
    engine = open_database(Settings(data=tmp_path).database)
    access.first_token(engine, tmp_path)
    fake.person["preferred_username"] = "ADMIN"
    assert "belongs to another user" in problem(fake.sign_in(http))
    fake.person["preferred_username"] = "ada"
    proof_of(fake.sign_in(http))
    fake.person["sub"] = "another person"
    assert "belongs to another user" in problem(fake.sign_in(http))


def test_a_changed_name_is_the_same_user(http, fake):
    proof_of(fake.sign_in(http))
    fake.person["preferred_username"] = "ada.king"
    assert http.get("/api/v1/session", headers=proof_of(fake.sign_in(http))).json()["user"] == "ada-lovelace"


@pytest.mark.parametrize(
    ("verified", "name"), [(True, "carl@lab.example"), (False, "248"), ("true", "248"), (None, "248")]
)
def test_an_address_that_is_not_verified_is_no_name(http, fake, verified, name):
    fake.person = {"sub": "248", "email": "carl@lab.example", "email_verified": verified}
    assert http.get("/api/v1/session", headers=proof_of(fake.sign_in(http))).json()["user"] == name


def test_one_address_does_not_keep_others_from_signing_in(tmp_path, fake, monkeypatch):
    asked, go_on, claims = threading.Semaphore(0), threading.Event(), provider_module.Provider.claims

    def slow(self, code, attempt):
        asked.release()
        assert go_on.wait(30)
        return claims(self, code, attempt)

    app = create_app(settings_of(tmp_path, trusted_proxies="192.0.2.9"))
    with TestClient(app, base_url=PUBLIC, client=("192.0.2.9", 1)) as http:
        fake.sign_in(http)  # from now on, the service knows the provider
        monkeypatch.setattr(provider_module.Provider, "claims", slow)

        def come_back(address):
            headers = {"X-Forwarded-For": address, "Cookie": "__Host-mgclust-sign-in-8700=a.b.c"}
            return http.get("/sign-in/openid/callback?code=x&state=a", headers=headers, follow_redirects=False)

        answers = []
        first = threading.Thread(target=lambda: answers.append(come_back("192.0.2.1")))
        first.start()
        assert asked.acquire(timeout=30)
        assert come_back("192.0.2.1").status_code == 429
        assert http.get("/sign-in/openid", follow_redirects=False).status_code == 303
        other = threading.Thread(target=lambda: answers.append(come_back("192.0.2.2")))
        other.start()
        assert asked.acquire(timeout=30)
        go_on.set()
        first.join(), other.join()
        assert len(answers) == 2 and all("ID token is not valid" in problem(answer) for answer in answers)


def test_a_cookie_that_another_host_has_set_begins_no_sign_in(http, fake):
    """A host of the same domain can set cookies for it, but none with the prefix ``__Host-``."""
    fake.sign_in(http)
    fake.nonce = "b"
    tossed = {"Cookie": "mgclust-sign-in-8700=a.b.c"}
    http.cookies.clear()
    answer = http.get("/sign-in/openid/callback?code=x&state=a", headers=tossed, follow_redirects=False)
    assert "did not begin in this browser" in problem(answer)


def test_a_network_waits_after_failed_sign_ins(tmp_path, fake, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(endpoints.time, "monotonic", lambda: now)
    app = create_app(settings_of(tmp_path, trusted_proxies="192.0.2.9"))
    with TestClient(app, base_url=PUBLIC, client=("192.0.2.9", 1)) as http:
        fake.sign_in(http)

        def come_back(address):
            headers = {"X-Forwarded-For": address, "Cookie": "__Host-mgclust-sign-in-8700=a.b.c"}
            return http.get("/sign-in/openid/callback?code=x&state=a", headers=headers, follow_redirects=False)

        for pause in (1, 2, 4, 8, 10, 10):
            assert "ID token is not valid" in problem(come_back("2001:db8:1:2::1"))
            sent = len(fake.sent)
            for address in ("2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1"):  # one customer has all of them
                answer = come_back(address)
                assert answer.status_code == 429 and f"try again in {pause} s" in answer.text
                assert answer.headers["retry-after"] == str(pause)
            assert len(fake.sent) == sent
            assert "ID token is not valid" in problem(come_back(f"2001:db8:{pause + 1}:{sent}::1"))
            now += pause
        fake.nonce = "b"
        now += 10
        assert come_back("2001:db8:1:2::1").status_code == 303
        fake.nonce = "x"
        problem(come_back("2001:db8:1:2::1"))  # the success has ended the pauses
        assert "try again in 1 s" in come_back("2001:db8:1:2::1").text


def test_a_disabled_user(http, fake, tmp_path):
    proof_of(fake.sign_in(http))
    with writing(open_database(Settings(data=tmp_path).database)) as session:
        session.get(User, "ada-lovelace").disabled = time.time()
    assert "disabled" in problem(fake.sign_in(http))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"iss": f"{ISSUER}/"},
        {"aud": "another"},
        {"aud": None},
        {"aud": ["mgclust", "another"]},
        {"aud": ["mgclust", "another"], "azp": "another"},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_sign_in(claims, http, fake):
    fake.claims = claims
    assert "ID token is" in problem(fake.sign_in(http))


def test_a_token_of_another_key(http, fake):
    fake.signing = RSAKey.generate_key(2048, {"kid": "1"})
    assert "BadSignatureError" in problem(fake.sign_in(http))


def test_a_token_signed_with_a_shared_key(http, fake):
    """The public key of the provider as a shared key, and no signature at all."""
    fake.header, fake.signing = {"alg": "HS256", "kid": "1"}, OctKey.import_key(fake.key.as_pem(private=False)[:64])
    assert "ID token is not valid" in problem(fake.sign_in(http))


def test_an_unsigned_token(http, fake):
    fake.header, fake.signing = {"alg": "none"}, OctKey.generate_key(256)
    assert "ID token is not valid" in problem(fake.sign_in(http))


def test_another_issuer_in_the_description(http, fake):
    fake.metadata = {"issuer": "https://evil.example"}
    assert "another issuer" in problem(fake.sign_in(http))


@pytest.mark.parametrize("state", ["x", "é", "a.b.c"])
def test_a_state_of_another_browser(state, http, fake):
    assert "did not begin in this browser" in problem(fake.sign_in(http, state))
    assert not fake.sent


def test_a_callback_without_a_beginning(http, fake):
    for wanted in ({}, {"code": "c0de", "state": ""}, {"code": "c0de", "state": "x"}):
        answer = http.get("/sign-in/openid/callback", params=wanted, follow_redirects=False)
        assert "did not begin in this browser" in problem(answer)
    assert not fake.sent


def test_a_callback_works_once(http, fake):
    proof_of(fake.sign_in(http))
    wanted = {"code": "c0de", "state": fake.query["state"][0]}
    answer = http.get("/sign-in/openid/callback", params=wanted, follow_redirects=False)
    assert "did not begin in this browser" in problem(answer)
    assert len(fake.sent) == 1


def test_sign_ins_are_audited_without_secrets(http, fake, tmp_path):
    proof = proof_of(fake.sign_in(http))["X-Mgclust-Proof"]
    fake.claims = {"aud": "another"}
    problem(fake.sign_in(http))
    path, end = tmp_path / "audit.log", time.monotonic() + 10
    while "openid_refused" not in (text := path.read_text() if path.exists() else "") and time.monotonic() < end:
        time.sleep(0.05)
    assert '"openid_sign_in", "user": "ada-lovelace"' in text and "openid_refused" in text
    assert not any(secret in text for secret in (proof, "hush", "c0de", fake.query["state"][0]))


def test_strangers_do_not_displace_the_lines_of_the_audit_log(http, fake, tmp_path, monkeypatch):
    app = create_app(settings_of(tmp_path / "other", rate_per_address=1e6))
    with TestClient(app, base_url=PUBLIC) as stranger:
        for _ in range(200):
            problem(stranger.get("/sign-in/openid/callback?code=x&state=a", follow_redirects=False))
    assert 40 < (tmp_path / "other" / "audit.log").read_text().count("openid_refused") < 80


def test_a_real_provider(tmp_path):
    """The whole way, at a provider that is written with Authlib's server."""
    person = oidc_provider_mock.User(sub="ada", claims={"preferred_username": "ada", "groups": ["it"]})
    with oidc_provider_mock.run_server_in_thread(user_claims=[person], require_nonce=True) as server:
        issuer = f"http://localhost:{server.server_port}"
        with browser(settings_of(tmp_path, oidc_issuer=issuer)) as http:
            page = http.get("/sign-in/openid", follow_redirects=False).headers["location"]
            assert page.startswith(issuer)
            back = httpx.post(page, data={"sub": "ada"}).headers["location"]
            assert back.startswith(f"{PUBLIC}/sign-in/openid/callback?")
            cookies = dict(http.cookies)
            answer = http.get(back, follow_redirects=False)
            told = http.get("/api/v1/session", headers=proof_of(answer)).json()
            assert (told["user"], told["role"]) == ("ada", "admin")
            copied = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
            again = http.get(back, follow_redirects=False, headers=copied)  # the provider rejects the used code
            assert "rejected the sign-in" in problem(again)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"public_url": ""}, "needs public_url"),
        ({"oidc_client_secret": ""}, "oidc_client_secret"),
        ({"oidc_issuer": "http://login.example"}, "should begin with https://"),
        ({"public_url": "cluster.example"}, "public_url='cluster.example' should be like"),
        ({"public_url": "https://x.example/path"}, "without a path"),
    ],
)
def test_settings_that_cannot_work(given, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        settings_of(tmp_path, **given)


def test_the_form_knows_whether_there_is_a_provider(tmp_path, http):
    assert http.get("/sign-in/ways").json() == {"openid": True, "asks": False}
    with TestClient(create_app(Settings(data=tmp_path / "other", cpu=True))) as other:
        assert other.get("/sign-in/ways").json() == {"openid": False, "asks": True}
        assert other.get("/sign-in/openid").status_code == 404
