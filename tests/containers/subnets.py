"""Small subnets for the test projects' networks.

An engine's own pools hold about thirty networks of 4,096 addresses and more. A project of docker-compose.yml has 12:
four projects, or what four killed runs left behind, exhaust them. The subnets here have 16 addresses each and lie in
198.18.0.0/15, the range for tests of RFC 2544.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

RANGE = ipaddress.ip_network("198.18.0.0/15")


def free_subnets(client: docker.DockerClient, count: int) -> list[str]:
    """Subnets that no network of the engine has.

    Raises:
        RuntimeError: Fewer than `count` are free.
    """
    taken = []
    for network in client.networks.list():
        try:
            configured = network.attrs["IPAM"]["Config"] or []
        except KeyError:  # removed since it was listed
            continue
        taken += [ipaddress.ip_network(each["Subnet"]) for each in configured if "Subnet" in each]
    taken = [each for each in taken if each.version == 4 and each.overlaps(RANGE)]
    free = [each for each in RANGE.subnets(new_prefix=28) if not any(each.overlaps(other) for other in taken)]
    if len(free) < count:
        raise RuntimeError(f"{len(free)} subnets of {RANGE} are free and {count} are needed: docker network prune")
    return [str(each) for each in secrets.SystemRandom().sample(free, count)]


def write_subnets(client: docker.DockerClient, compose_file: Path, override: Path) -> Path:
    """Write a compose file that repeats the networks of another with a subnet for each; returns its path."""
    section = compose_file.read_text().partition("\nnetworks:\n")[2].partition("\n\n")[0]
    # repeated whole: docker-compose 1.29 replaces a network of the first file and does not merge the two
    networks = re.findall(r"^  ([\w-]+): \{(.*)\}$", section, re.MULTILINE)
    assert len(networks) == len(section.splitlines()), section
    subnets = free_subnets(client, len(networks))
    lines = [
        f"  {name}: {{{settings}, ipam: {{config: [{{subnet: {subnet}}}]}}}}"
        for (name, settings), subnet in zip(networks, subnets, strict=True)
    ]
    override.write_text("\n".join(["networks:", *lines]) + "\n")
    return override
