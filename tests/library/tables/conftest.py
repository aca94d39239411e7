"""Databases and an object store for the tests of sources, each started once, on a free port, and stopped at the end."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_libraries, postgresql_programs


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URI of a server of our own, with an empty database."""
    needs_libraries("adbc_driver_postgresql", extra="sql")
    programs = postgresql_programs()
    folder = Path(tempfile.mkdtemp(prefix="treetap-pg-"))
    unprivileged = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        unprivileged = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        line = [*unprivileged, str(programs / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(line, check=True, timeout=60, stdout=subprocess.DEVNULL, cwd="/")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    try:
        run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C", "--no-sync")
        hba = folder / "data/pg_hba.conf"  # the first rule that fits holds
        hba.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
        run("pg_ctl", "-o", settings, "-w", "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to `tmp_path / "t.db"`."""
    needs_libraries("adbc_driver_sqlite", extra="sql")
    connection = sqlite3.connect(tmp_path / "t.db")
    yield connection
    connection.close()


class Store:
    """An S3-compatible server: `endpoint`, and its `bucket`, to which files are put by `put`."""

    def __init__(self, port: int) -> None:
        import boto3

        self.endpoint, self.bucket = f"http://127.0.0.1:{port}", "tables"
        self._client: Any = boto3.client("s3", endpoint_url=self.endpoint)
        self._client.create_bucket(Bucket=self.bucket)

    def put(self, key: str, content: bytes) -> str:
        """The address of a new object."""
        self._client.put_object(Bucket=self.bucket, Key=key, Body=content)
        return f"s3://{self.bucket}/{key}"

    def remove(self, key: str) -> None:
        """Delete an object."""
        self._client.delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture(scope="session")
def object_store() -> Iterator[Store]:
    """A server of moto's; the environment has its credentials."""
    needs_libraries("moto", "boto3", extra="dev")
    from moto.server import ThreadedMotoServer

    given = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            yield Store(server.get_host_and_port()[1])
        finally:
            server.stop()
