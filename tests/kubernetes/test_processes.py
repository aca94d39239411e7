"""The manifests fit treetap: its files parse, name what is mounted, and listen where services and probes expect it."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.certificates import role_of
from tests.kubernetes.manifests import FOLDER, ORGANISATIONS, PARTIES, ROOT, SETTINGS, Manifests, Object, Pod
from treetap.commands.cli import app
from treetap.commands.jobs.client import OperatorConfig
from treetap.commands.jobs.job_file import JobFile
from treetap.coordinator.config import CoordinatorConfig
from treetap.party.config import PartyConfig
from treetap.party.config import read as read_party
from treetap.process.config import Process
from treetap.strict import load
from treetap.wire.tls import TlsFiles

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("kubernetes")]


def kind_of(organisation: str) -> str:
    """The organisation's process."""
    return "coordinator" if organisation == "coordinator" else "party"


def process_of(manifests: Manifests, organisation: str, setting: str = "overlays") -> tuple[Pod, Object]:
    """The pod of an organisation's process, and the process's container."""
    (pod,) = (each for each in manifests.pods(organisation, setting) if each.kind == "StatefulSet")
    return pod, pod.container(kind_of(organisation))


def files_of(manifests: Manifests, organisation: str, folder: Path, setting: str = "overlays") -> Path:
    """The files of the ConfigMap that the pod mounts, in a folder as they are at /etc/treetap; the process's own."""
    pod, _ = process_of(manifests, organisation, setting)
    (name,) = (each["configMap"]["name"] for each in pod.spec["volumes"] if "configMap" in each)
    for file, text in manifests.one(organisation, "ConfigMap", name, setting)["data"].items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder / f"{kind_of(organisation)}.toml"


def config_of(manifests: Manifests, organisation: str, folder: Path, setting: str = "overlays") -> Any:
    """The configuration as the process reads it."""
    read = CoordinatorConfig.from_file if organisation == "coordinator" else read_party
    return read(files_of(manifests, organisation, folder, setting))


def mounted(pod: Pod, container: Object, path: Path) -> tuple[Object, bool]:
    """The volume that has a path in a container, and whether it is mounted to be read only."""
    places = {Path(each["mountPath"]): each for each in container["volumeMounts"]}
    (mount,) = (places[each] for each in (path, *path.parents) if each in places)
    (volume,) = (each for each in pod.spec["volumes"] if each["name"] == mount["name"])
    return volume, mount.get("readOnly", False)


@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_the_process_finds_its_files_where_its_configuration_says(
    manifests: Manifests, tmp_path: Path, organisation: str
) -> None:
    """Certificates in the Secret, state on its own volume to be written, tables on one that is only read."""
    config: Process = config_of(manifests, organisation, tmp_path)
    pod, container = process_of(manifests, organisation)
    assert config.name == organisation
    secret = manifests.one(organisation, "Secret", "tls")["data"]
    assert config.tls is not None
    for file in (config.tls.ca, config.tls.certificate, config.tls.key, config.tls.revoked):
        assert file is not None
        volume, read_only = mounted(pod, container, file)
        assert (volume["secret"]["secretName"], read_only) == ("tls", True)
        assert file.name in secret
    assert len(secret) == 4
    volume, read_only = mounted(pod, container, config.state)  # type: ignore[attr-defined]
    assert (volume["persistentVolumeClaim"]["claimName"], read_only) == ("state", False)
    tables = config.tables.values() if isinstance(config, PartyConfig) else []
    for file in [file for table in tables for file in table.local()]:
        volume, read_only = mounted(pod, container, file)
        assert (volume["persistentVolumeClaim"]["claimName"], read_only) == ("data", True)
    claims = {
        each["metadata"]["name"] for each in manifests.of(organisation) if each["kind"] == "PersistentVolumeClaim"
    }
    assert claims == ({"state", "data"} if tables else {"state"})


@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_the_secret_is_the_certificate_of_the_process(manifests: Manifests, tmp_path: Path, organisation: str) -> None:
    """What `treetap certs` made, as the pod mounts it, is accepted for the name and the role of the process."""
    for file, text in manifests.one(organisation, "Secret", "tls")["data"].items():
        (tmp_path / file).write_bytes(base64.b64decode(text))
    names = ("ca.crt", f"{organisation}.crt", f"{organisation}.key", "crl.pem")
    assert TlsFiles(*(tmp_path / name for name in names)).inspect(organisation, role_of(organisation)) == organisation


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_services_and_probes_ask_where_the_process_listens(
    manifests: Manifests, tmp_path: Path, organisation: str, setting: str
) -> None:
    """One port in the configuration, in the container, behind the service; probes are the image's own health check."""
    config = config_of(manifests, organisation, tmp_path, setting)
    host, _, port = config.listen.rpartition(":")
    pod, container = process_of(manifests, organisation, setting)
    assert host == "0.0.0.0"
    (own,) = container["ports"]
    service = manifests.one(organisation, "Service", kind_of(organisation), setting)["spec"]
    (offered,) = service["ports"]
    assert (own["containerPort"], offered["port"], offered["targetPort"]) == (int(port), int(port), own["name"])
    assert service["selector"].items() <= pod.labels.items()
    assert container["args"][:2] == [kind_of(organisation), "--config"]
    file = Path(container["args"][2])
    volume, read_only = mounted(pod, container, file)
    assert ("configMap" in volume, read_only) == (True, True)
    assert (tmp_path / file.name).is_file()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"] == ["treetap", "health", "--config", str(file)]
        assert container[probe]["timeoutSeconds"] >= 15
    commands: Any = get_command(app)
    for command in (kind_of(organisation), "health"):
        words = ["--config", str(tmp_path / file.name)]
        assert commands.load(command).make_context(command, words).params["config"] == tmp_path / file.name


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_coordinator_dials_the_parties_services(manifests: Manifests, tmp_path: Path, setting: str) -> None:
    """Within one cluster by the service's name in the party's namespace, across clusters by a name of its balancer."""
    config: CoordinatorConfig = config_of(manifests, "coordinator", tmp_path, setting)
    assert set(config.parties) == set(PARTIES)
    for party, address in config.parties.items():
        service = manifests.one(party, "Service", "party", setting)
        (port,) = service["spec"]["ports"]
        inside = setting == "overlays"
        host = f"party.{service['metadata']['namespace']}.svc.cluster.local" if inside else f"{party}.example.org"
        assert address == f"{host}:{port['port']}"
        assert service["spec"].get("type", "ClusterIP") == ("ClusterIP" if inside else "LoadBalancer")


def test_policies_and_the_operators_files_name_the_federation(manifests: Manifests, tmp_path: Path) -> None:
    """Every party's policy permits the job that is there, by the coordinator's name; the operator calls its service."""
    job = load(FOLDER / "operator" / "job.toml", JobFile).job
    for party in PARTIES:
        (tmp_path / party).mkdir()
        config: PartyConfig = config_of(manifests, party, tmp_path / party)
        assert job.label_holder in config.policy.people.label_holders
        assert set(job.feature_parties) <= set(config.policy.people.peers)
        assert config.policy.people.coordinators == ["coordinator"]
        assert (config.tables["train"].label is not None) == (party == job.label_holder)
    assert {job.label_holder, *job.feature_parties} == set(PARTIES)
    service = manifests.one("coordinator", "Service", "coordinator")
    operator = OperatorConfig.from_file(FOLDER / "operator" / "operator.toml")
    assert operator.coordinator == f"127.0.0.1:{service['spec']['ports'][0]['port']}"


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_objects_are_in_the_namespace_and_select_its_pods(
    manifests: Manifests, organisation: str, setting: str
) -> None:
    """An organisation's objects are in its one namespace, and each selector finds pods of it."""
    namespace = f"treetap-{organisation}"
    pods = manifests.pods(organisation, setting)
    for each in manifests.of(organisation, setting):
        if each["kind"] == "Namespace":
            assert each["metadata"]["name"] == namespace
            assert each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
            continue
        assert each["metadata"]["namespace"] == namespace, each["metadata"]
        selector = each["spec"].get("podSelector", each["spec"].get("selector")) if "spec" in each else None
        labels = None if selector is None else selector.get("matchLabels", selector)
        if labels is not None:
            assert any(labels.items() <= pod.labels.items() for pod in pods), each["metadata"]


@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_references_are_to_objects_that_are_there(manifests: Manifests, organisation: str) -> None:
    """Volumes name ConfigMaps, Secrets and claims of the overlay; images are one, with a tag of the organisation's."""
    objects = {(each["kind"], each["metadata"]["name"]) for each in manifests.of(organisation)}
    images = set()
    for pod in manifests.pods(organisation):
        for volume in pod.spec["volumes"]:
            named = {
                ("ConfigMap", volume.get("configMap", {}).get("name")),
                ("Secret", volume.get("secret", {}).get("secretName")),
                ("PersistentVolumeClaim", volume.get("persistentVolumeClaim", {}).get("claimName")),
            }
            assert {each for each in named if each[1] is not None} <= objects
        mounts = {each["name"] for container in pod.containers() for each in container["volumeMounts"]}
        assert mounts == {each["name"] for each in pod.spec["volumes"]}
        images |= {container["image"] for container in pod.containers()}
    (image,) = images
    assert re.fullmatch(rf"registry\.example\.org/{organisation}/treetap:[0-9][\w.-]*", image)


def test_pods_may_do_nothing_that_they_need_not(manifests: Manifests) -> None:
    """The image's user without privileges, files that are only read, no account of Kubernetes, bounded memory."""
    user = int(re.findall(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))[0])
    for pod in [pod for organisation in ORGANISATIONS for pod in manifests.pods(organisation)]:
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["terminationGracePeriodSeconds"] >= 30
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        context = pod.spec["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (user, user, user)
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod.containers():
            confined = dict(container["securityContext"])
            # In one pod with the party, Ray's node must be another user, whom Linux keeps from its memory and files.
            beside = container["name"] == "ray-node"
            assert (confined.pop("runAsUser", user) != user) == beside
            assert confined == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
    accounts = [each for o in ORGANISATIONS for each in manifests.of(o) if each["kind"] == "ServiceAccount"]
    assert len(accounts) == len(ORGANISATIONS)
    assert all(each["automountServiceAccountToken"] is False for each in accounts)


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_has_the_processors_for_its_workers(manifests: Manifests, tmp_path: Path, party: str) -> None:
    """A party's pod requests a processor for each of the workers that it starts itself."""
    config: PartyConfig = config_of(manifests, party, tmp_path)
    _, container = process_of(manifests, party)
    assert config.threads == int(container["resources"]["requests"]["cpu"])
