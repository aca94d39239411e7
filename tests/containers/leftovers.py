"""What test runs that were killed left in the engine: containers, networks and volumes, known by their names."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

#: The names of the tests' projects and networks begin with it.
PREFIX = "treetap-test-"

#: No run of the container tests takes as long; what is younger may be another run's.
AGE = timedelta(hours=1)


def remove_leftovers(client: docker.DockerClient) -> None:
    """Remove the tests' containers, networks and volumes older than `AGE`, running or not, and nothing else."""
    import docker

    here = {"name": PREFIX}
    outlived = datetime.now(UTC) - AGE
    for container in client.containers.list(all=True, filters=here, ignore_removed=True):
        if _is_older(container.name, container.attrs["Created"], outlived):
            with contextlib.suppress(docker.errors.APIError):  # another run removed it
                container.remove(force=True)
    for network in client.networks.list(filters=here):
        if _is_older(network.name, network.attrs["Created"], outlived):
            with contextlib.suppress(docker.errors.APIError):
                network.remove()
    for volume in client.volumes.list(filters=here):
        if _is_older(volume.name, volume.attrs["CreatedAt"], outlived):
            with contextlib.suppress(docker.errors.APIError):
                volume.remove()


def _is_older(name: str, created: str, than: datetime) -> bool:
    # the engine writes nanoseconds, which `fromisoformat` of Python 3.11 does not read
    return name.startswith(PREFIX) and datetime.fromisoformat(created[:19]).replace(tzinfo=UTC) < than
