"""The files of deploy/: they parse, and what they refer to exists; `test_command_lines.py` has their commands."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mgclust import __version__
from mgclust.engine.transport import handshake, nccl_network
from mgclust.service.settings import PREFIX, Settings
from support import settings_table

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")
YAML = [path for path in FILES if path.suffix == ".yaml"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VARIABLES = {PREFIX + field.name.upper() + end for field in dataclasses.fields(Settings) for end in ("", "_FILE")}
LAB = sorted((ROOT / "tests" / "deploy" / "lab").iterdir())
ROLES = {"scheduler", "worker", "client"}


def name(path):
    return str(path.relative_to(DEPLOY))


def documents(path):
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def test_folders_and_their_contents():
    contents = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert "(HARDENING.md)" in contents
    for folder in (path for path in DEPLOY.iterdir() if path.is_dir()):
        assert f"({folder.name}/README.md)" in contents
        readme = (folder / "README.md").read_text(encoding="utf-8").lower()
        for what in ("what to change", "how to check", "scale", "upgrade", "back up"):
            assert what in readme, (folder.name, what)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".md"], ids=name)
def test_links(path):
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", YAML, ids=name)
def test_yaml_parses_without_repeated_keys(path):
    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader, node):
        keys = [loader.construct_object(key) for key, _ in node.value if key.value != "<<"]
        assert len(keys) == len(set(keys)), f"{path.name}:{node.start_mark.line + 1}: {keys}"
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    assert list(yaml.load_all(path.read_text(encoding="utf-8"), Strict))


# Settings


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".md"], ids=name)
def test_no_fence_is_overlooked(path):
    """All blocks of these pages are commands, which `test_command_lines.py` checks, or say what else they are."""
    fences = re.findall(r"^[ >]*(?:```|~~~).*$", path.read_text(encoding="utf-8"), re.MULTILINE)
    begins = fences[::2]
    assert len(fences) % 2 == 0 and set(fences[1::2]) <= {"```"}
    assert set(begins) <= {"```bash", "```text", "```ini", "```yaml", "```json", "```python", "```toml", "```nginx"}, (
        begins
    )


@pytest.mark.parametrize("path", FILES, ids=name)
def test_variables_are_settings(path):
    text = path.read_text(encoding="utf-8")
    example = (DEPLOY / "compose" / ".env.example").read_text(encoding="utf-8")
    others = {f"MGCLUST_{each}" for each in ("URL", "TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY", "ENV")}
    others |= {*re.findall(r"^(MGCLUST_\w+)=", example, re.MULTILINE), "MGCLUST_TEST_POSTGRES"}
    others |= {nccl_network.PERMISSION, handshake.PORTS}
    assert set(re.findall(r"MGCLUST_[A-Z_]*[A-Z]\b", text)) - {f"{PREFIX}X", PREFIX.rstrip("_")} <= VARIABLES | others


def test_settings_of_the_files_are_taken(monkeypatch):
    """Their values parse, too."""
    given = {key: value for key, value in documents(DEPLOY / "kubernetes" / "settings.yaml")[0]["data"].items()}
    for file in ("compose/settings.env.example", "systemd/README.md"):
        for line in re.findall(r"^MGCLUST_SERVICE_\w+=.*", (DEPLOY / file).read_text("utf-8"), re.MULTILINE):
            key, value = line.split("=", 1)
            given[key] = value
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    settings = Settings.read()
    assert (settings.slots, settings.cpu, settings.lost_after) == (1, False, 30.0)
    assert settings.scheduler.startswith("tls://")


def test_extras_exist():
    extras = set(PROJECT["optional-dependencies"])
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for found in re.findall(r"EXTRAS(?::-|=)([a-z0-9,-]+)|\[([a-z0-9,-]+)\]'|`mgclust\[([a-z0-9,-]+)\]`", text):
            named = next(filter(None, found), "")
            assert set(named.split(",")) <= extras, (path, named)


def test_versions_are_this_one():
    for path in FILES:
        assert set(re.findall(r"mgclust:(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8"))) <= {__version__}
    assert documents(DEPLOY / "kubernetes" / "kustomization.yaml")[0]["images"][0]["newTag"] == __version__


# Docker


def test_requirements_of_the_image():
    def asked(extras):
        command = [sys.executable, str(DEPLOY / "docker" / "requirements.py"), extras]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    default = re.search(r"^ARG EXTRAS=(.*)$", (DEPLOY / "docker/Dockerfile").read_text("utf-8"), re.MULTILINE)[1]
    found = asked(default).stdout.splitlines()
    assert set(PROJECT["dependencies"]) < set(found)
    assert any(line.startswith("dask-cuda[cu13]") for line in found)
    assert any(line.startswith("psycopg[binary]") for line in found)
    assert "should name some of" in asked("nothing").stderr


def test_the_image_copies_what_the_context_lets_in():
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    let_in = re.findall(r"^!(.*)$", (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text("utf-8"), re.MULTILINE)
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert sorted(copied) == sorted(let_in)
    assert all((ROOT / each).exists() for each in copied)
    assert re.search(r"^USER mgclust$", text, re.MULTILINE) and "HEALTHCHECK" in text
    # A frontend would be fetched from a registry; the base is an argument, so that it can be pinned.
    assert "syntax=" not in text and re.search(r"^FROM \$\{BASE\}$", text, re.MULTILINE)
    folders = re.search(r"install -d -o mgclust .*", text)[0].split()
    assert {"/data", "/checkpoints", "/certs", "/var/cache/mgclust"} <= set(folders)
    assert PROJECT["readme"] in copied and set(PROJECT["license-files"]) <= set(copied)


# Compose


def test_compose_refers_to_what_there_is():
    path = DEPLOY / "compose" / "compose.yaml"
    compose = documents(path)[0]
    services = compose["services"]
    assert set(compose) - {key for key in compose if key.startswith("x-")} == {
        "name",
        "services",
        "networks",
        "secrets",
        "volumes",
    }
    assert set(services) == {"certs", "postgres", "scheduler", "workers", "workers-cpu", "runner", "web"}
    for service, given in services.items():
        assert set(given.get("depends_on", {})) <= set(services)
        for other, how in given.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "test" in services[other]["healthcheck"]
        assert set(given.get("networks", [])) <= set(compose["networks"])
        certificates = []
        for mount in given.get("volumes", []):
            assert mount["type"] == "bind" or mount["source"] in compose["volumes"]
            if mount.get("source") == "certs" and service != "certs":
                assert mount["read_only"]
                certificates.append(mount["volume"]["subpath"])
        assert set(certificates) <= ROLES
        assert len(certificates) == (service not in ("certs", "postgres", "web"))
        assert given["cap_drop"] == ["ALL"] and given["security_opt"] == ["no-new-privileges:true"]
        if service != "postgres":
            assert given["read_only"] and all("size=" in each for each in given["tmpfs"])
        assert given["mem_limit"] and given["pids_limit"] > 0 and given["logging"]["options"]["max-size"]
        assert set(given.get("secrets", [])) <= set(compose["secrets"])
        if service != "certs":
            assert "test" in given["healthcheck"], service
    for one, other in (("workers", "scheduler"), ("runner", "scheduler"), ("runner", "postgres"), ("web", "postgres")):
        assert set(services[one]["networks"]) & set(services[other]["networks"]), (one, other)
    # The first start serves its own socket before the database is there.
    assert {"-h", "127.0.0.1"} <= set(services["postgres"]["healthcheck"]["test"])
    address = services["runner"]["environment"]["MGCLUST_SERVICE_SCHEDULER"]
    assert address in services["workers"]["command"] and address in services["workers-cpu"]["command"]
    assert f"--port={address.rpartition(':')[2]}" in services["scheduler"]["command"]
    assert services["web"]["ports"][0].startswith("${MGCLUST_LISTEN:-127.0.0.1}")
    devices = services["workers"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["driver"] == "nvidia" and devices[0]["capabilities"] == ["gpu"]
    # Paths mean the same where jobs are submitted, computed and read.
    for one in ("web", "runner", "workers", "workers-cpu"):
        mounts = {mount["target"]: mount for mount in services[one]["volumes"]}
        assert {"/data", "/inputs", "/checkpoints"} <= set(mounts)
        assert not mounts["/checkpoints"].get("read_only"), "workers write checkpoints"


def test_compose_gives_web_and_runner_all_settings_and_secrets_as_files():
    compose = documents(DEPLOY / "compose" / "compose.yaml")[0]
    ignored = (DEPLOY / "compose" / ".gitignore").read_text(encoding="utf-8").split()
    for one in ("web", "runner"):
        given = compose["services"][one]
        assert [each["path"] for each in given["env_file"]] == ["settings.env"]
        assert given["environment"]["MGCLUST_SERVICE_CHECKPOINTS"] == "/checkpoints"
        assert given["environment"]["MGCLUST_SERVICE_DATABASE_FILE"] == "/run/secrets/database"
        assert given["environment"]["MGCLUST_SERVICE_OIDC_CLIENT_SECRET_FILE"] == "/run/secrets/openid"
        assert given["secrets"] == ["database", "openid"] + ["stores"] * (one == "web")
    assert compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/postgres_password"
    for secret in compose["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    assert {"settings.env", "secrets/", ".env"} <= set(ignored)
    # What the file itself sets would be overridden by nothing, and to no effect, in settings.env.
    example = (DEPLOY / "compose" / "settings.env.example").read_text(encoding="utf-8")
    of_file = {key for one in ("web", "runner") for key in compose["services"][one]["environment"]}
    assert not {line.split("=")[0] for line in example.splitlines() if line.startswith(PREFIX)} & of_file


@pytest.mark.parametrize("path", YAML, ids=name)
def test_no_secret_in_an_environment(path):
    """The environment of a container can be read through Docker and Kubernetes."""
    for document in documents(path):
        for key, value in _environment(document):
            if re.search("PASSWORD|SECRET|TOKEN|DATABASE$", key) or ("://" in str(value) and "@" in str(value)):
                assert key.endswith("_FILE"), (key, value)


def _environment(node):
    """Variables of all containers, as Compose and Kubernetes write them."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "environment":
                yield from value.items()
            elif key == "env":
                yield from ((each["name"], each.get("value", "")) for each in value)
            elif key == "envFrom":
                assert not any("secretRef" in each for each in value)
            else:
                yield from _environment(value)
    elif isinstance(node, list):
        for each in node:
            yield from _environment(each)


def test_cpu_workers_listen_on_their_loopback_alone_beside_dask():
    """Without an address of its own, a worker answers /metrics and /health on every interface, without TLS."""
    texts = [(DEPLOY / file).read_text("utf-8") for file in ("compose/compose.yaml", "slurm/mgclust.sbatch")]
    texts += [(DEPLOY / file).read_text("utf-8") for file in ("README.md", "kubernetes/README.md")]
    for text in texts:
        assert re.search(r"--dashboard-address[= ]127\.0\.0\.1:0", text)
        assert text.count("--nworkers") <= len(re.findall(r"--dashboard-address[= ]127\.0\.0\.1:0", text))


def test_variables_of_compose_are_those_of_the_example():
    used = dict(re.findall(r"\$\{(\w+)(?::-([^}]*))?", (DEPLOY / "compose" / "compose.yaml").read_text("utf-8")))
    example = (DEPLOY / "compose" / ".env.example").read_text(encoding="utf-8")
    given = dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE))
    script = (DEPLOY / "compose" / "limit-web.sh").read_text("utf-8")
    used |= dict(re.findall(r"\(setting (\w+) (\S+)\)", script))
    assert set(used) == set(given) - {"COMPOSE_PROFILES"}
    assert used == {key: given[key] for key in used}


def test_web_of_compose_has_a_way_out_by_one_line_only():
    compose = documents(DEPLOY / "compose" / "compose.yaml")[0]
    inside = {name for name, given in compose["networks"].items() if given.get("internal")}
    users = {name for name, given in compose["services"].items() if set(given.get("networks", [])) - inside}
    assert users == {"web"}
    example = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "compose" / ".env.example").read_text("utf-8"), re.MULTILINE))
    options = compose["networks"]["outside"]["driver_opts"]
    assert options == {"com.docker.network.bridge.enable_ip_masquerade": "${MGCLUST_WEB_OUTGOING:-false}"}
    assert example["MGCLUST_WEB_OUTGOING"] == "false"
    # The proxy on the same machine has the first address of the network.
    assert str(ipaddress.ip_network(example["MGCLUST_SUBNET"])[1]) == example["MGCLUST_TRUSTED_PROXIES"]


@pytest.mark.parametrize(
    ("lines", "subnet", "ports"),
    [
        ("", "172.30.187.0/24", "443"),
        ("MGCLUST_SUBNET=10.9.0.0/24\nMGCLUST_WEB_PORTS=443,9000\n", "10.9.0.0/24", "443,9000"),
    ],
)
def test_the_ports_of_web_are_one_setting(tmp_path, lines, subnet, ports):
    """And only the rules of this service are replaced if the command is repeated."""
    shutil.copy(DEPLOY / "compose" / "limit-web.sh", tmp_path)
    (tmp_path / ".env").write_text(f"MGCLUST_PORT=8700\n{lines}")
    (tmp_path / "iptables").write_text('#!/bin/sh\necho "$@" >> called\n[ "$1" != -N ] && [ "$1" != -C ]\n')
    (tmp_path / "iptables").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([str(tmp_path / "limit-web.sh")], env={"PATH": path}, check=True)
    called = (tmp_path / "called").read_text().splitlines()
    assert called[:2] == ["-N MGCLUST-WEB", "-F MGCLUST-WEB"]
    assert f"-A MGCLUST-WEB -p tcp -m multiport --dports {ports} -j RETURN" in called
    assert called[-3:] == [
        "-A MGCLUST-WEB -j DROP",
        *(f"{what} DOCKER-USER -s {subnet} -j MGCLUST-WEB" for what in ("-C", "-I")),
    ]


def test_the_image_can_do_what_the_service_offers():
    extras = re.search(r"^ARG EXTRAS=(.*)$", (DEPLOY / "docker/Dockerfile").read_text("utf-8"), re.MULTILINE)[1]
    assert {"service", "sso", "postgres", "s3"} <= set(extras.split(","))
    compose = documents(DEPLOY / "compose" / "compose.yaml")[0]
    lines = (DEPLOY / "docker" / "README.md").read_text("utf-8")
    locks = {path.stem for path in (DEPLOY / "docker" / "locks").iterdir()}
    assert compose["services"]["certs"]["build"]["args"]["EXTRAS"] == f"${{MGCLUST_EXTRAS:-{extras}}}"
    assert locks == {extras, extras.partition(",")[2]}
    assert f"for extras in {extras} {extras.partition(',')[2]}; do" in lines


# Kubernetes


OPTIONAL = "web-outgoing.yaml"


def test_web_of_kubernetes_has_a_way_out_by_one_line_only(kubernetes):
    _, objects = kubernetes
    text = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8")
    assert f"\n  # - {OPTIONAL}\n" in text
    web = _named(objects, "NetworkPolicy")["mgclust-web"]["spec"]
    assert {port["port"] for rule in web["egress"] for port in rule["ports"]} == {53, 5432}
    (outgoing,) = documents(DEPLOY / "kubernetes" / OPTIONAL)
    assert outgoing["spec"]["podSelector"] == web["podSelector"] and outgoing["spec"]["policyTypes"] == ["Egress"]
    (rule,) = outgoing["spec"]["egress"]
    assert rule["ports"] == [{"port": 443, "protocol": "TCP"}]
    closed = [ipaddress.ip_network(each) for to in rule["to"] for each in to["ipBlock"]["except"]]
    for address in ("10.96.0.1", "169.254.169.254", "192.168.1.1", "172.31.0.1", "fd00::1", "fe80::1"):
        found = ipaddress.ip_address(address)
        assert any(found in each for each in closed if each.version == found.version), address
    host = _named(objects, "Ingress")["mgclust"]["spec"]["rules"][0]["host"]
    settings = _named(objects, "ConfigMap")["mgclust-settings"]["data"]
    assert settings["MGCLUST_SERVICE_PUBLIC_URL"] == f"https://{host}"


@pytest.fixture(scope="module")
def kubernetes():
    folder = DEPLOY / "kubernetes"
    list_ = documents(folder / "kustomization.yaml")[0]
    others = {"kustomization.yaml", "kustomizeconfig.yaml", OPTIONAL}
    assert sorted(list_["resources"]) == sorted(path.name for path in folder.glob("*.yaml") if path.name not in others)
    return list_, [each for file in list_["resources"] for each in documents(folder / file)]


def _named(objects, kind):
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def _pods(objects):
    """Name, labels and specification of every pod."""
    for each in objects:
        if each["kind"] == "Deployment":
            template = each["spec"]["template"]
            assert each["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
            yield each["metadata"]["name"], template["metadata"]["labels"], template["spec"]
        elif each["kind"] == "DaskCluster":
            cluster = each["metadata"]["name"]
            for part in ("scheduler", "worker"):
                labels = {"dask.org/cluster-name": cluster, "dask.org/component": part}
                yield f"{cluster}-{part}", labels, each["spec"][part]["spec"]


def test_kubernetes_refers_to_what_there_is(kubernetes):
    list_, objects = kubernetes
    # Those of secrets.sh: kustomize's would be taken for changed at every apply.
    assert "secretGenerator" not in list_
    script = (DEPLOY / "kubernetes" / "secrets.sh").read_text(encoding="utf-8")
    assert "for role in scheduler worker client;" in script
    secrets = {"mgclust-database"} | {f"mgclust-tls-{role}" for role in ROLES}
    claims, settings = _named(objects, "PersistentVolumeClaim"), _named(objects, "ConfigMap")
    for pod, _, spec in _pods(objects):
        volumes = {each["name"]: each for each in spec["volumes"]}
        for volume in volumes.values():
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets
                # YAML 1.1's octal: 0440 without quotes.
                assert volume["secret"]["defaultMode"] == 0o440
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
        assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"], pod
        assert all("sizeLimit" in volume["emptyDir"] for volume in volumes.values() if "emptyDir" in volume)
        if pod != "mgclust-scheduler":  # it needs none
            mounts = {each["mountPath"]: each for each in spec["containers"][0]["volumeMounts"]}
            assert not mounts["/checkpoints"].get("readOnly"), "workers write checkpoints"
        for container in spec["containers"]:
            mounts = {each["name"] for each in container["volumeMounts"]}
            assert mounts == set(volumes), pod
            assert container["image"] == list_["images"][0]["name"]
            assert {"requests", "limits"} <= set(container["resources"])
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert "livenessProbe" in container
            if pod in ("mgclust-scheduler", "mgclust-worker"):
                # The operator's schema fills it in, and kubectl then takes the cluster for changed.
                assert all(port["protocol"] == "TCP" for port in container.get("ports", []))
            ports = {each["name"] for each in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                how = container.get(probe, {})
                for kind in ("httpGet", "tcpSocket"):
                    assert kind not in how or how[kind]["port"] in ports
            for source in container.get("envFrom", []):
                assert "secretRef" not in source
                assert "configMapRef" not in source or source["configMapRef"]["name"] in settings
    ignored = (DEPLOY / "kubernetes" / ".gitignore").read_text(encoding="utf-8").split()
    for file in re.findall(r"--from-file=(?:\w+=)?\"?([^\s\"]+)", script):
        if file.startswith("certs/"):
            assert file.startswith("certs/$role/") and "certs*/" in ignored
            assert file.rpartition("/")[2] in ("ca.pem", "cert.pem", "key.pem")
        else:
            assert (DEPLOY / "kubernetes" / f"{file}.example").exists() and file in ignored
    assert list_["namespace"] in _named(objects, "Namespace")


def test_kubernetes_services_reach_pods(kubernetes):
    _, objects = kubernetes
    pods = list(_pods(objects))
    cluster = _named(objects, "DaskCluster")["mgclust"]
    services = [(each["metadata"]["name"], each["spec"]) for each in objects if each["kind"] == "Service"]
    services.append(("mgclust-scheduler", cluster["spec"]["scheduler"]["service"]))
    for service, spec in services:
        reached = [pod for pod in pods if spec["selector"].items() <= pod[1].items()]
        assert len(reached) == 1, service
        ports = {port["name"] for container in reached[0][2]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in spec["ports"]} <= ports
    address = _named(objects, "ConfigMap")["mgclust-settings"]["data"]["MGCLUST_SERVICE_SCHEDULER"]
    assert address == "tls://mgclust-scheduler:8786"
    assert address in cluster["spec"]["worker"]["spec"]["containers"][0]["args"]
    assert "--port=8786" in cluster["spec"]["scheduler"]["spec"]["containers"][0]["args"]
    backend = _named(objects, "Ingress")["mgclust"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend["port"]["name"] in {port["name"] for port in dict(services)[backend["name"]]["ports"]}
    for policy in _named(objects, "NetworkPolicy").values():
        chosen = [policy["spec"]["podSelector"]["matchLabels"]]
        others = [each for rule in policy["spec"].get("ingress", []) for each in rule.get("from", [])]
        others += [each for rule in policy["spec"]["egress"] for each in rule.get("to", [])]
        chosen += [each["podSelector"]["matchLabels"] for each in others if "podSelector" in each]
        for labels in chosen:
            assert any(labels.items() <= pod[1].items() for pod in pods)
        # What the server fills in is written out, so that a second apply changes nothing; each says what goes out.
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert policy["spec"].get("ingress", True), "an empty list is left out by the server, and written again"
        rules = policy["spec"].get("ingress", []) + policy["spec"]["egress"]
        assert all("protocol" in port for rule in rules for port in rule.get("ports", []))
    for budget in _named(objects, "PodDisruptionBudget").values():
        labels = budget["spec"]["selector"]["matchLabels"]
        assert any(labels.items() <= pod[1].items() for pod in pods)
    assert set(_named(objects, "ResourceQuota")) == {"mgclust"}
    # The operator's cluster is gone before the new one comes, which else would share its scheduler.
    for line in (DEPLOY / "kubernetes" / "README.md").read_text(encoding="utf-8").splitlines():
        assert "delete daskcluster" not in line or "--cascade=foreground" in line
    runner = _named(objects, "Deployment")["mgclust-runner"]["spec"]
    assert (runner["replicas"], runner["strategy"]["type"]) == (1, "Recreate")


# Slurm and systemd


SCRIPTS = [*DEPLOY.rglob("*.sbatch"), *DEPLOY.rglob("*.sh"), DEPLOY / "lab"]
SCRIPTS += [path for path in LAB if path.suffix == ".sh"]
SCRIPTS += sorted((ROOT / ".ci").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (Debian: apt install)")
def test_shellcheck_finds_nothing():
    command = ["shellcheck", "--severity=warning", "--external-sources", f"--source-path={ROOT}", *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_scripts_parse():
    assert len(SCRIPTS) > 5
    for script in SCRIPTS:
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # In a step, `! command` ends nothing: such a check could not fail.
        assert script.parent.name != "lab" or not re.search(r"^\s*! ", script.read_text("utf-8"), re.MULTILINE), script
    for path in DEPLOY.rglob("*.py"):
        compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_the_unit():
    lines = (DEPLOY / "systemd" / "mgclust.service").read_text(encoding="utf-8").splitlines()
    sections = [line for line in lines if line.startswith("[")]
    assert sections == ["[Unit]", "[Service]", "[Install]"]
    assert all(re.match(r"(\[|#|$|[A-Za-z]+=)", line) for line in lines)
    given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "Environment")))
    assert given["User"] != "root" and given["NoNewPrivileges"] == "yes" and given["ProtectSystem"] == "strict"
    data = next(line for line in lines if "MGCLUST_SERVICE_DATA=" in line).rpartition("=")[2]
    assert data == f"/var/lib/{given['StateDirectory']}"


# The lab


def test_the_lab_has_its_targets_and_names_no_host():
    for target in ("compose", "slurm", "systemd", "kubernetes"):
        assert ROOT / "tests" / "deploy" / "lab" / f"{target}.sh" in LAB
    for path in (DEPLOY / "lab", *LAB):
        if path.is_file():
            hosts = set(re.findall(r"https?://([^/:\s\"']+)", path.read_text(encoding="utf-8")))
            assert hosts <= {"127.0.0.1", "localhost", "$address", "n1", "$OUTSIDE"}, (
                path
            )  # those of its own namespaces


def test_the_lab_says_which_packages_it_needs():
    """The programs that a target looks for at its start, by the packages that have them."""
    package = {"ip": "iproute2", "pgrep": "procps", "systemd-nspawn": "systemd-container"}
    package |= dict.fromkeys(("nsenter", "unshare", "pivot_root"), "util-linux")
    rows = re.findall(r"^#   (\w+) +(mmdeb.*|[a-z0-9-]+(?:, .*)?)$", (DEPLOY / "lab").read_text("utf-8"), re.MULTILINE)
    told = {target: set(packages.split(", ")) for target, packages in rows}
    for path in LAB:
        needed = re.findall(r"^need (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.is_file() else []
        for line in needed:
            packages = {package.get(each, each) for each in line.split()} - {"tar", "apt-get"}  # every Debian has these
            assert packages <= told["all"] | told[path.stem], path


def test_the_readme_tells_of_the_last_runs_of_the_lab():
    runs = json.loads((ROOT / "benchmarks" / "results" / "deploy" / "lab.json").read_text(encoding="utf-8"))
    told = re.findall(r"^\| `(\w+)` \| (\d+) \|", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {target: int(seconds) for target, seconds in told} == {
        target: sum(step["seconds"] for step in run["steps"]) for target, run in runs.items()
    }
    assert all(step["result"] == "ok" for run in runs.values() for step in run["steps"])


@pytest.mark.parametrize("words", [[], ["run"], ["run", "elsewhere"], ["run", "compose", "--json"], ["other"]])
def test_wrong_use_of_the_lab(words):
    done = subprocess.run([str(DEPLOY / "lab"), *words], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: deploy/lab run")


@pytest.mark.slow
def test_steps_of_the_lab_fail_and_are_ended(tmp_path):
    """A step that fails ends the run with its log; one that hangs does so at its deadline."""
    (tmp_path / "trial" / "logs").mkdir(parents=True)
    (tmp_path / "trial" / "steps.tsv").touch()

    def told(lines):
        # As the targets begin: bash takes no notice of failures within `if`, `||` and the like.
        begin = f"set -euo pipefail; LAB={tmp_path} target=trial; . {ROOT}/tests/deploy/lab/common.sh\n"
        return subprocess.run(["bash", "-c", begin + lines], capture_output=True, text=True, timeout=150)

    assert told("works() { echo well; }; step 60 'it works' works").returncode == 0
    failed = told("fails() { false; echo not reached; }; step 60 'it fails' fails; echo not reached")
    assert failed.returncode == 1 and "not reached" not in failed.stdout + failed.stderr
    hung = told("hangs() { sleep 600; }; step 1 'it hangs' hangs")
    assert hung.returncode == 1 and "not done within 1 s" in hung.stderr
    assert told("fails() { never true; echo on; }; step 60 'never' fails").returncode == 1
    assert told("fails() { echo a secret | has_not secret; echo on; }; step 60 'has not' fails").returncode == 1
    steps = [line.split("\t") for line in (tmp_path / "trial" / "steps.tsv").read_text().splitlines()]
    assert [(what, result) for what, _, result in steps] == [
        ("it works", "ok"), ("it fails", "failed"), ("it hangs", "failed"), ("never", "failed"), ("has not", "failed"),
    ]  # fmt: skip


def test_the_table_of_settings_is_that_of_the_fields():
    """`python tests/support/settings_table.py` writes it."""
    page = settings_table.PAGE.read_text(encoding="utf-8")
    assert page == settings_table.with_table(page)
    assert set(settings_table.meanings()) == {field.name for field in dataclasses.fields(Settings)}


@pytest.mark.parametrize("lock", sorted((DEPLOY / "docker" / "locks").iterdir()), ids=lambda path: path.stem)
def test_locks_pin_what_the_project_needs(lock):
    """Every requirement has a pinned version that the project accepts, with hashes and no index."""
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    entries = [each for each in re.split(r"\n(?=\S)", text) if not each.startswith("#")]
    assert all(
        re.match(r"[\w.\[\],-]+==\S+( ; .*)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n?)+$", each) for each in entries
    )
    pinned = {re.sub(r"\[.*", "", each.split("==")[0]): each.split("==")[1].split()[0] for each in entries}
    command = [sys.executable, str(DEPLOY / "docker" / "requirements.py"), lock.stem]
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        requirement = Requirement(line)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)], prereleases=True), line
