"""The files of deploy/: they parse, what they refer to exists, and their commands are commands."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from mgclust import __version__
from mgclust.cli import commands
from mgclust.service.settings import PREFIX, Settings

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")
YAML = [path for path in FILES if path.suffix == ".yaml"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VARIABLES = {PREFIX + field.name.upper() for field in dataclasses.fields(Settings)}
ROLES = {"scheduler", "worker", "client"}


def name(path):
    return str(path.relative_to(DEPLOY))


def documents(path):
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def test_folders_and_their_contents():
    contents = (DEPLOY / "README.md").read_text(encoding="utf-8")
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


# Commands and settings


def _lines(path):
    """Shell-like lines of a file: those of code blocks, scripts and comments, continued ones joined."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        text += "".join(f"\n{each}" for each in re.findall(r"`(mgclust [^`]+)`", path.read_text(encoding="utf-8")))
    return text.splitlines()


def _mgclust_commands():
    """Every `mgclust ...`, as (file, arguments)."""
    for path in FILES:
        if path.suffix == ".yaml":
            for document in documents(path):
                for words in _lists(document):
                    if words[0] == "mgclust":
                        yield path, words[1:]
            continue
        for line in _lines(path):
            # CMD ["mgclust", "serve"] of a Dockerfile
            if (words := re.match(r'(?:CMD|ENTRYPOINT) \[(".*")\]', line)) is not None:
                line = words[1].replace('", "', " ").strip('"')
            line = re.sub(r"^#\s*|^ExecStart=\S*/", "", line.strip())
            for part in re.split(r"&&|\||;|\$\(| -- | mgclust:\S+ | -T runner ", line):
                part = re.sub(r"\)\"?$", "", part.strip())
                part = re.sub(r"^sbatch .*?mgclust\.sbatch( --cpu)? ", "mgclust ", part)
                if re.match(r"mgclust (?!job |on )[a-z\"]", part) and "@" not in part.split()[1]:
                    yield path, shlex.split(part.removesuffix(" &"), comments=True)[1:]


def _lists(node):
    if isinstance(node, dict):
        for each in node.values():
            yield from _lists(each)
    elif isinstance(node, list):
        if node and all(isinstance(each, str) for each in node):
            yield node
        for each in node:
            yield from _lists(each)


COMMANDS = [(path, words) for path, words in _mgclust_commands() if words[0] != "$@"]


@pytest.mark.parametrize(("path", "words"), [pytest.param(p, w, id=f"{name(p)}: {' '.join(w)}") for p, w in COMMANDS])
def test_commands_of_mgclust(path, words):
    words = [word for word in words if word not in ("...", ">", "/dev/null")]
    context, command = None, commands
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        first, *words = words
        command = command.get_command(context, first)
        assert command is not None, first
        if not words and isinstance(command, click.Group):
            return  # named in passing
    if path.suffix == ".md" and not words and any(p.required for p in command.params):
        return
    command.make_context(command.name, list(words), parent=context)


def test_the_commands_are_found():
    found = {(name(path), words[0]) for path, words in COMMANDS}
    assert found >= {
        ("docker/Dockerfile", "serve"), ("compose/compose.yaml", "serve"), ("compose/compose.yaml", "runner"),
        ("compose/compose.yaml", "certs"), ("compose/README.md", "info"), ("compose/README.md", "submit"),
        ("kubernetes/web.yaml", "serve"), ("kubernetes/runner.yaml", "runner"), ("kubernetes/README.md", "certs"),
        ("slurm/mgclust.sbatch", "certs"), ("slurm/mgclust.sbatch", "run"), ("slurm/README.md", "serve"),
        ("slurm/README.md", "runner"), ("systemd/mgclust.service", "serve"), ("README.md", "certs"),
    }  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=name)
def test_variables_are_settings(path):
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", text)) <= VARIABLES
    assert set(re.findall(r"MGCLUST_TLS_[A-Z]+", text)) <= {"MGCLUST_TLS_CA", "MGCLUST_TLS_CERT", "MGCLUST_TLS_KEY"}


def test_settings_of_the_files_are_taken(monkeypatch):
    """Their values parse, too."""
    given = {key: value for key, value in documents(DEPLOY / "kubernetes" / "settings.yaml")[0]["data"].items()}
    for line in re.findall(r"^MGCLUST_SERVICE_\w+=.*", (DEPLOY / "systemd/README.md").read_text("utf-8"), re.MULTILINE):
        key, value = line.split("=", 1)
        given[key] = value
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    settings = Settings.read()
    assert (settings.slots, settings.cpu, settings.lost_after) == (1, False, 60.0)
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
        if service != "postgres":
            assert given["read_only"] and given["cap_drop"] == ["ALL"]
    for one, other in (("workers", "scheduler"), ("runner", "scheduler"), ("runner", "postgres"), ("web", "postgres")):
        assert set(services[one]["networks"]) & set(services[other]["networks"]), (one, other)
    address = services["runner"]["environment"]["MGCLUST_SERVICE_SCHEDULER"]
    assert address in services["workers"]["command"] and address in services["workers-cpu"]["command"]
    assert f"--port={address.rpartition(':')[2]}" in services["scheduler"]["command"]
    assert services["web"]["ports"][0].startswith("${MGCLUST_LISTEN:-127.0.0.1}")
    devices = services["workers"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["driver"] == "nvidia" and devices[0]["capabilities"] == ["gpu"]
    # Paths mean the same to who submits, who computes and who reads.
    for one in ("web", "runner", "workers", "workers-cpu"):
        assert {"/data", "/inputs"} <= {mount["target"] for mount in services[one]["volumes"]}


def test_variables_of_compose_are_those_of_the_example():
    used = dict(re.findall(r"\$\{(\w+)(?::-([^}]*))?", (DEPLOY / "compose" / "compose.yaml").read_text("utf-8")))
    example = (DEPLOY / "compose" / ".env.example").read_text(encoding="utf-8")
    given = dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE))
    assert set(used) == set(given) - {"COMPOSE_PROFILES"}
    assert {key: value for key, value in used.items() if key != "POSTGRES_PASSWORD"} == {
        key: given[key] for key in used if key != "POSTGRES_PASSWORD"
    }
    assert given["POSTGRES_PASSWORD"] == ""


# Kubernetes


@pytest.fixture(scope="module")
def kubernetes():
    folder = DEPLOY / "kubernetes"
    list_ = documents(folder / "kustomization.yaml")[0]
    others = {"kustomization.yaml", "kustomizeconfig.yaml"}
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
    secrets = {each["name"] for each in list_["secretGenerator"]}
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
        for container in spec["containers"]:
            mounts = {each["name"] for each in container["volumeMounts"]}
            assert mounts == set(volumes), pod
            assert container["image"] == list_["images"][0]["name"]
            assert {"requests", "limits"} <= set(container["resources"])
            assert container["securityContext"]["readOnlyRootFilesystem"]
            ports = {each["name"] for each in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                how = container.get(probe, {})
                for kind in ("httpGet", "tcpSocket"):
                    assert kind not in how or how[kind]["port"] in ports
            for source in container.get("envFrom", []):
                assert "secretRef" not in source or source["secretRef"]["name"] in secrets
                assert "configMapRef" not in source or source["configMapRef"]["name"] in settings
    for each in list_["secretGenerator"]:
        for file in each.get("files", []):
            folder, role, pem = file.split("/")
            assert folder == "certs" and role in ROLES and each["name"].endswith(role)
            assert pem in ("ca.pem", "cert.pem", "key.pem")
        for file in each.get("envs", []):
            assert (DEPLOY / "kubernetes" / f"{file}.example").exists()
            assert file in (DEPLOY / "kubernetes" / ".gitignore").read_text(encoding="utf-8").split()
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
        chosen += [s["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for s in rule.get("from", [])]
        for labels in chosen:
            assert any(labels.items() <= pod[1].items() for pod in pods)
    runner = _named(objects, "Deployment")["mgclust-runner"]["spec"]
    assert (runner["replicas"], runner["strategy"]["type"]) == (1, "Recreate")


# Slurm and systemd


def test_scripts_parse():
    scripts = sorted(DEPLOY.rglob("*.sbatch")) + sorted(DEPLOY.rglob("*.sh"))
    assert scripts
    for script in scripts:
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
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
