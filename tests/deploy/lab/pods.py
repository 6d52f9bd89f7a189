"""Run the pods of a namespace by Docker, as a kubelet would: ``pods.py OBJECTS FOLDER SEEN_AS``.

OBJECTS is JSON of ``kubectl get deployments,services,configmaps,secrets``. In FOLDER, which containers see as SEEN_AS,
it makes their volumes, with a kubelet's owners, modes and links, and two scripts for each deployment: ``NAME.run``
starts its container, ``NAME.probe`` asks its probes. A worker of GPUs has the command that README.md gives for the CPU.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]
CPU = ["--preload-nanny=mgclust.engine.tls", "--nworkers=1", "--nthreads=1", "--no-dashboard"]


def folder(path: Path, mode: int, group: int) -> None:
    """Make a folder of root's and of this group."""
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, 0, group)
    path.chmod(mode)


def secret(path: Path, given: Json, mode: int, group: int) -> None:
    """Write files as a kubelet does: each is a link into a folder, which is a link itself."""
    folder(path, 0o2777, group)
    folder(path / "..1", 0o2755, group)
    for name, value in given.items():
        file = path / "..1" / name
        file.write_bytes(base64.b64decode(value))
        os.chown(file, 0, group)
        file.chmod(mode)
        (path / name).symlink_to(f"..data/{name}")
    (path / "..data").symlink_to("..1")


class Pod:
    """A pod of one container."""

    def __init__(self, deployment: Json, objects: dict[tuple[str, str], Json], here: Path, seen_as: str) -> None:
        self.name, template = deployment["metadata"]["name"], deployment["spec"]["template"]
        self._labels, self._spec = template["metadata"]["labels"], template["spec"]
        (self._container,) = self._spec["containers"]
        self._objects, self._here, self._seen_as = objects, here, seen_as

    def run(self) -> list[str]:
        """Make its volumes; return the command that starts it."""
        account, rights = self._spec["securityContext"], self._container["securityContext"]
        assert account["runAsNonRoot"] and account["seccompProfile"] == {"type": "RuntimeDefault"}
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        words = ["docker", "run", "--detach", "--name", self.name, "--network", "pods", "--read-only"]
        words += ["--user", f"{account['runAsUser']}:{account['runAsGroup']}", "--group-add", str(account["fsGroup"])]
        words += ["--security-opt", "no-new-privileges"]
        words += [f"--cap-drop={each}" for each in rights["capabilities"]["drop"]]
        words += ["--memory", self._container["resources"]["limits"]["memory"].removesuffix("i").lower()]
        for (kind, name), service in self._objects.items():
            if kind == "Service" and (service["spec"].get("selector") or {"": ""}).items() <= self._labels.items():
                words += ["--network-alias", name]
        environment = self._environment()
        words += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        volumes = {each["name"]: each for each in self._spec["volumes"]}
        for mount in self._container["volumeMounts"]:
            words += self._mount(volumes[mount["name"]], mount, account["fsGroup"])
        arguments = [
            re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], each) for each in self._container["args"]
        ]
        if arguments[:3] == ["dask", "cuda", "worker"]:
            arguments = ["dask", *arguments[2:], *CPU]
        return [*words, self._container["image"], *arguments]

    def probes(self) -> list[list[str]]:
        """The commands that ask its probes."""
        ports = {each["name"]: each["containerPort"] for each in self._container.get("ports", [])}
        found = []
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = self._container.get(kind, {})
            if "exec" in probe:
                found.append(probe["exec"]["command"])
            elif "httpGet" in probe:
                place = f":{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
                ask = "r.urlopen('http://' + socket.gethostname() + sys.argv[1], timeout=4)"
                found.append(["python", "-c", f"import socket, sys, urllib.request as r; {ask}", place])
        assert found, self.name
        return [["docker", "exec", self.name, *each] for each in found]

    def _environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in self._container.get("envFrom", []):
            found |= self._objects["ConfigMap", each["configMapRef"]["name"]]["data"]
        return found | {each["name"]: each["value"] for each in self._container.get("env", [])}

    def _mount(self, volume: Json, mount: Json, group: int) -> list[str]:
        name = Path(self.name, volume["name"])
        if "persistentVolumeClaim" in volume:
            name = Path("claims", volume["persistentVolumeClaim"]["claimName"])
        place, end = self._here / name, ":ro" if mount.get("readOnly") else ""
        if "secret" in volume:
            content = self._objects["Secret", volume["secret"]["secretName"]]["data"]
            secret(place, content, volume["secret"]["defaultMode"], group)
        elif volume.get("emptyDir", {}).get("medium") == "Memory":
            return ["--mount", f"type=tmpfs,destination={mount['mountPath']},tmpfs-mode=1777"]
        else:
            folder(place, 0o2777 if "emptyDir" in volume else 0o2775, group)
        return ["--volume", f"{self._seen_as}/{name}:{mount['mountPath']}{end}"]


def main(objects: str, here: str, seen_as: str) -> None:
    """Write volumes and scripts; print the names of the deployments."""
    items = json.loads(Path(objects).read_text(encoding="utf-8"))["items"]
    known = {(each["kind"], each["metadata"]["name"]): each for each in items}
    for (kind, _), each in known.items():
        if kind == "Deployment":
            pod = Pod(each, known, Path(here), seen_as)
            Path(here).mkdir(parents=True, exist_ok=True)
            Path(here, f"{pod.name}.run").write_text(f"exec {shlex.join(pod.run())}\n", encoding="utf-8")
            lines = [f"{shlex.join(each)}\n" for each in pod.probes()]
            Path(here, f"{pod.name}.probe").write_text("set -ex\n" + "".join(lines), encoding="utf-8")
            print(pod.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
