"""The federation of docker-compose.yml, driven with the compose command and looked into through the engine."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.containers.subnets import write_subnets

if TYPE_CHECKING:
    import docker

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "treetap:test"
AUDIT_IMAGE = "treetap-audit:test"
JOB = "breast-cancer"
SERVERS = ("certs", "coordinator", "label-holder", "feature-b", "feature-c")
PARTIES = ("label-holder", "feature-b", "feature-c")


class Answer(NamedTuple):
    """The output of a command, both streams together, and its status."""

    status: int
    text: str


def compose_command() -> list[str] | None:
    """Compose v2, v1, or nothing."""
    for command in (["docker", "compose"], ["docker-compose"]):
        try:
            if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            continue
    return None


class Composed:
    """One project of the compose file; `close` removes its containers, networks and volumes."""

    def __init__(self, client: docker.DockerClient, command: list[str], project: str, folder: Path) -> None:
        self.client = client
        self.project = project
        self.command = command
        files = (
            ROOT / "docker-compose.yml",
            write_subnets(client, ROOT / "docker-compose.yml", folder / f"{project}.yml"),
        )
        self._files = os.pathsep.join(map(str, files))

    def compose(self, *words: str, seconds: float = 600.0, **variables: str) -> Answer:
        """`docker compose …` on this project; what it printed, with status 124, where it has not ended in time."""
        environment = {
            **os.environ,
            "TREETAP_IMAGE": IMAGE,
            "TREETAP_AUDIT_IMAGE": AUDIT_IMAGE,
            "COMPOSE_FILE": self._files,
        }
        environment |= variables
        limited = ["timeout", "--kill-after=20", str(seconds)]  # what was printed until then remains
        command = [*limited, *self.command, "-p", self.project, *words]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, stdin=-3, stdout=-1, stderr=-2, text=True, check=False
        )
        return Answer(ended.returncode, ended.stdout)

    def container(self, service: str) -> Any:
        """A service's container, running or not, as the engine sees it now."""
        labels = {"project": self.project, "service": service, "oneoff": "False"}
        wanted = [f"com.docker.compose.{key}={value}" for key, value in labels.items()]
        (found,) = self.client.containers.list(all=True, filters={"label": wanted})
        return found

    def networks(self, service: str) -> dict[str, str]:
        """The service's networks, by their names in the compose file, and its address in each."""
        networks: Mapping[str, Any] = self.container(service).attrs["NetworkSettings"]["Networks"]
        return {name.removeprefix(f"{self.project}_"): each["IPAddress"] for name, each in networks.items()}

    def volumes(self, service: str) -> set[str]:
        """The named volumes that a service mounts."""
        mounts = self.container(service).attrs["Mounts"]
        return {each["Name"].removeprefix(f"{self.project}_") for each in mounts if each["Type"] == "volume"}

    def folders(self, service: str) -> set[str]:
        """The folders and files of this machine that a service mounts, from the compose file's folder on."""
        mounts = self.container(service).attrs["Mounts"]
        return {str(Path(each["Source"]).relative_to(ROOT)) for each in mounts if each["Type"] == "bind"}

    def await_health(self, service: str, seconds: float = 180.0) -> None:
        """Wait until the container's own check passes."""
        deadline = time.monotonic() + seconds
        while (health := self.container(service).attrs["State"]["Health"])["Status"] != "healthy":
            assert time.monotonic() < deadline, f"{service} is {health}"
            time.sleep(0.5)

    def python(self, service: str, program: str) -> Answer:
        """Run a Python program in a running container, as its own user."""
        status, output = self.container(service).exec_run(["python", "-c", program])
        return Answer(status, output.decode())

    def fetch(self, service: str, folder: str, to: Path) -> Path:
        """Copy a folder out of a container, which may have ended; returns where it lies."""
        chunks, _ = self.container(service).get_archive(folder)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            # of an image of our own; Python before 3.11.4 has no filter
            archive.extractall(to, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
        return to / Path(folder).name

    def close(self) -> None:
        """Leave nothing behind but the image."""
        self.compose("down", "--volumes", "--timeout", "5")
