"""One federation in containers for all tests of this folder that want it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.containers.composed import IMAGE, JOB, ROOT, SERVERS, Answer, Composed, compose_command
from tests.containers.leftovers import PREFIX, remove_leftovers


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The image built, and a project that is removed at the end."""
    docker = pytest.importorskip("docker", reason="the package `docker` is not installed")
    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except docker.errors.DockerException as failure:
        pytest.skip(f"no Docker engine runs here: {failure}")
    command = compose_command()
    if command is None:
        pytest.skip("neither `docker compose` nor `docker-compose` is installed")
    # the host's network, since a resolver on the host's loopback cannot be reached from the engine's own
    client.images.build(path=str(ROOT), tag=IMAGE, network_mode="host", rm=True, forcerm=True)
    remove_leftovers(client)
    name = f"{PREFIX}{secrets.token_hex(3)}"
    project = Composed(client, command, name, tmp_path_factory.mktemp(name))
    try:
        yield project
    finally:
        project.close()
        client.close()


@pytest.fixture(scope="session")
def finished(composed: Composed) -> Answer:
    """`up --exit-code-from job`, to its end: every container has stopped, their volumes remain."""
    answer = composed.compose("up", "--no-build", "--no-color", "--exit-code-from", "job", JOB=JOB)
    if answer.status == 0:
        return answer
    # what a server said that ended before the job could begin is not in the output of `up`
    return Answer(answer.status, answer.text + composed.compose("logs", "--no-color").text)


@pytest.fixture(scope="session")
def serving(composed: Composed, finished: Answer) -> Composed:
    """The servers of the same project, started again on what they kept."""
    started = composed.compose("up", "--no-build", "--detach", *SERVERS)
    assert started.status == 0, started.text
    for service in SERVERS:
        composed.await_health(service)
    return composed
