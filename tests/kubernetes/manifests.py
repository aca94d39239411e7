"""The manifests of examples/kubernetes as Kustomize renders them, and the pods in them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.certificates import role_of
from treetap.commands.certs.authority import create_authority, issue
from treetap.ops.certs.requests import revoke

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
PARTIES = ("bank", "telco", "shop")
ORGANISATIONS = (*PARTIES, "coordinator")
#: In one cluster, in a namespace each; and in a cluster each.
SETTINGS = ("overlays", "across-clusters")

Object = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A pod template: of a StatefulSet, or of a group of a RayCluster, of which KubeRay makes `replicas` pods."""

    namespace: str
    kind: str
    name: str
    template: Object
    replicas: int

    @property
    def spec(self) -> Object:
        """The pod's own specification."""
        return self.template["spec"]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of each of its pods, without those that KubeRay adds."""
        return dict(self.template["metadata"]["labels"])

    def containers(self) -> list[Object]:
        """Containers that run beside each other or before."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> Object:
        """The container of that name."""
        (found,) = (each for each in self.containers() if each["name"] == name)
        return found


class Manifests:
    """The objects of every organisation, in both settings, rendered once."""

    def __init__(self, objects: dict[tuple[str, str], list[Object]]) -> None:
        self.objects = objects

    def of(self, organisation: str, setting: str = "overlays") -> list[Object]:
        """What `kubectl apply -k` would send for an organisation."""
        return self.objects[setting, organisation]

    def one(self, organisation: str, kind: str, name: str, setting: str = "overlays") -> Object:
        """The one object of that kind and name; of a ConfigMap's name Kustomize's suffix is ignored."""
        found = [each for each in self.of(organisation, setting) if each["kind"] == kind]
        (wanted,) = (each for each in found if each["metadata"]["name"] in (name, *_hashed(name, each)))
        return wanted

    def pods(self, organisation: str, setting: str = "overlays") -> list[Pod]:
        """Its pods."""
        return [pod for each in self.of(organisation, setting) for pod in pods_of(each)]

    def distinct(self) -> list[Object]:
        """All objects, those that two organisations or settings share once."""
        texts = {json.dumps(each, sort_keys=True) for found in self.objects.values() for each in found}
        return [json.loads(text) for text in sorted(texts)]


def pods_of(each: Object) -> Iterator[Pod]:
    """The pod templates of an object."""
    where = each["metadata"].get("namespace", ""), each["kind"]
    if each["kind"] == "StatefulSet":
        yield Pod(*where, each["metadata"]["name"], each["spec"]["template"], each["spec"]["replicas"])
    if each["kind"] == "RayCluster":
        yield Pod(*where, "head", each["spec"]["headGroupSpec"]["template"], 1)
        for group in each["spec"]["workerGroupSpecs"]:
            yield Pod(*where, group["groupName"], group["template"], group["replicas"])


def render(command: Sequence[str], folder: Path) -> Manifests:
    """Every overlay of a copy of the examples, with the certificates of a new federation."""
    copy = folder / "kubernetes"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("*.key", "*.crt", "*.pem", "*.csr"))
    certify(copy, folder / "authority")
    wanted = [(setting, organisation) for setting in SETTINGS for organisation in ORGANISATIONS]
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda each: build(command, copy.joinpath(*each)).stdout, wanted))
    return Manifests({each: list(yaml.load_all(texts[n], yaml.CSafeLoader)) for n, each in enumerate(wanted)})


def build(command: Sequence[str], folder: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Kustomize on one folder."""
    return subprocess.run([*command, str(folder)], capture_output=True, text=True, check=check, timeout=60)


def certify(copy: Path, authority: Path) -> None:
    """Make the files that each organisation makes with `treetap certs`, where the manifests expect them."""
    create_authority(authority)
    revoke(authority)
    for name in ORGANISATIONS:
        tls = copy / "overlays" / name / "tls"
        issue(tls, name, role_of(name), ca_folder=authority)
        for file in ("ca.crt", "crl.pem"):
            shutil.copy(authority / file, tls)
    create_authority(copy / "overlays" / "telco" / "ray-authority", "Ray of telco")


def _hashed(name: str, each: Object) -> list[str]:
    full = each["metadata"]["name"]
    return [full] if each["kind"] == "ConfigMap" and full.rpartition("-")[0] == name else []
