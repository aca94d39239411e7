"""What somebody on the wire sees of a job: packets of the federation's own ports, as a sniffer takes them."""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.needs import needs_library_of
from tests.splitnn.jobs import PARAMS as NETWORK_PARAMS
from tests.system.federations import ended, settings
from tests.worlds import PARTIES, World, spec, world
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import training_name
from treetap.trees.job_params import JobParams
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.second_tier

PARAMS = BoostingParams(objective="reg:squarederror", n_estimators=2, max_depth=2, max_bin=8)
NETWORK = replace(NETWORK_PARAMS, objective="reg:squarederror")
#: Record types of TLS: change of cipher, alert, handshake, data.
TLS_TYPES = {20, 21, 22, 23}
ETH_P_ALL = 0x0003
#: Of linux/socket.h and linux/if_packet.h, which the module `socket` does not have.
SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 33, 263, 6

Flow = tuple[int, int]


class Sniffer:
    """Everything that TCP carries on loopback to or from the given ports, by flow (source port, destination port)."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        except (PermissionError, AttributeError) as failure:
            pytest.skip(f"packets cannot be captured here: {failure}")
        try:  # loopback carries the packets of all other tests that run now, too
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 * 1024 * 1024)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024 * 1024)
        self._socket.bind(("lo", 0))
        self._last = secrets.token_bytes(32)  # content of a packet of our own, after all others
        self._packets: list[bytes] = []
        self._thread = threading.Thread(target=self._take, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Capture while the block runs; a packet that could not be kept is an error."""
        self._thread.start()
        try:
            yield
            self._end()
            _, lost = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
            assert lost == 0, "packets came faster than they could be taken"
        finally:
            self._end()
            self._socket.close()

    def _end(self) -> None:
        """Take all that was sent so far; others may go on sending."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
            for _ in range(60):  # the packet could be lost
                ours.sendto(self._last, ("127.0.0.1", 9))
                self._thread.join(1.0)
                if not self._thread.is_alive():
                    return
        raise AssertionError("our own packet was never captured")

    def _take(self) -> None:
        """Take packets until the last one."""
        while not (packet := self._socket.recv(1 << 17)).endswith(self._last):
            self._packets.append(packet)

    def flows(self, ports: set[int]) -> dict[Flow, dict[int, bytes]]:
        """Flow → sequence number → payload."""
        found: dict[Flow, dict[int, bytes]] = defaultdict(dict)
        for frame in self._packets:
            if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
                continue
            start = 14 + 4 * (frame[14] & 0x0F)
            length = 14 + int.from_bytes(frame[16:18], "big")
            source, target, sequence = struct.unpack_from("!HHI", frame, start)
            payload = frame[start + 4 * (frame[start + 12] >> 4) : length if length > 14 else None]
            if payload and {source, target} & ports:
                found[source, target][sequence] = payload
        return found


def _stream(packets: dict[int, bytes]) -> bytes:
    """The bytes of a flow up to the first gap; a repeated packet counts once."""
    first = min(packets, key=lambda sequence: (sequence - min(packets)) % 2**32)
    expected, parts = first, []
    while expected in packets:
        parts.append(packets[expected])
        expected = (expected + len(packets[expected])) % 2**32
    return b"".join(parts)


def _named(here: World) -> World:
    """The same with ids that do not occur by chance."""
    for _, tables in here.tables.values():
        for name, table in tables.items():
            ids = pa.array([f"patient-{cell}" for cell in table.column("id").to_pylist()])
            tables[name] = table.set_column(0, "id", ids)
    return here


def _secrets(here: World) -> list[bytes]:
    """Ids, and feature values and labels as the wire, a file and a person would write them."""
    found = [b"patient-"]
    for _, tables in here.tables.values():
        for table in tables.values():
            for name in table.column_names[1:]:
                values = np.asarray(table.column(name).to_numpy(), dtype=np.float64)
                for value in values[np.isfinite(values) & (np.abs(values) > 1e-9)].tolist():
                    found += [struct.pack("<d", value), struct.pack(">d", value), repr(value)[:10].encode()]
    return [each for each in found if len(each) >= 8]


@pytest.mark.parametrize(
    ("params", "alignment"), [(PARAMS, "psi"), (PARAMS, "sorted-ids"), (NETWORK, "psi")], ids=["psi", "ids", "network"]
)
def test_only_tls_is_on_the_wire(params: JobParams, alignment: str, tmp_path: Path) -> None:
    """Every flow is a sequence of TLS records from its first byte; no id, feature value or label is among its bytes."""
    job = spec(params, alignment=alignment)
    needs_library_of(training_name(job))
    here = _named(world(60, (2, 1, 1), objective="reg:squarederror", seed=8))
    emits = {name: ["parties"] for name in ("EMBEDDING", "EMBEDDING_GRADIENT")}
    parties = settings(tmp_path, {"train": here}, emits=emits, networks={"reproducible": True})
    sniffer = Sniffer()
    with sniffer.running(), LocalFederation(tmp_path, parties) as federation:
        federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=job))
        assert ended(federation, "job").state == "finished"
        asked = predict_request(job="new", model="job", table="train-new")
        assert federation.operator.watch(federation.operator.predict(asked), lambda _: None).state == "finished"
        ports = {int(address.rpartition(":")[2]) for address in federation.addresses.values()}
    flows = sniffer.flows(ports)
    assert len({port for flow in flows for port in flow} & ports) == len(PARTIES) + 1
    seen = 0
    for packets in flows.values():
        stream = _stream(packets)
        at, records = 0, 0
        while at + 5 <= len(stream):
            assert stream[at] in TLS_TYPES, stream[at : at + 16]
            assert stream[at + 1] == 3
            at += 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
            records += 1
        assert records >= 2
        seen += len(stream)
    assert seen > 100_000
    everything = b"\n".join(payload for packets in flows.values() for payload in packets.values())
    assert [secret for secret in _secrets(here) if secret in everything] == []


def test_the_search_finds_what_is_there() -> None:
    """The same capture of a plain connection shows what was sent over it."""
    sniffer = Sniffer()
    with sniffer.running(), socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as caller, server.accept()[0] as called:
            caller.sendall(b"patient-r00001")
            assert called.recv(100) == b"patient-r00001"
    (packets,) = sniffer.flows({port}).values()
    assert b"patient-" in _stream(packets)
