"""Containers, networks and volumes that killed test runs left in the engine, known by their names."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

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
    containers = client.containers.list(all=True, filters=here, ignore_removed=True)
    found: list[tuple[Any, str, dict[str, bool]]]
    found = [(each, each.attrs["Created"], {"force": True}) for each in containers]
    found += [(each, each.attrs["Created"], {}) for each in client.networks.list(filters=here)]
    found += [(each, each.attrs["CreatedAt"], {}) for each in client.volumes.list(filters=here)]
    before = datetime.now(UTC) - AGE
    for each, created, options in found:
        # the engine writes nanoseconds, which `fromisoformat` of Python 3.11 does not read
        made = datetime.fromisoformat(created[:19]).replace(tzinfo=UTC)
        if each.name.startswith(PREFIX) and made < before:
            with contextlib.suppress(docker.errors.APIError):  # another run removed it, or still uses it
                each.remove(**options)
