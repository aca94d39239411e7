"""A dealer as a process: its certificate's organisation decides, on the connections of every party by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.commands.command import files_in, treetap
from tests.replay import PARAMS
from tests.runtime.test_dealer import JOB
from tests.sockets import with_dialer
from tests.system.federations import settings
from tests.worlds import PARTIES, spec, world
from treetap.commands.certs.authority import issue
from treetap.errors import Refused
from treetap.lab.local_federation import DEALER, LocalFederation
from treetap.party.dealer.dealer import DEALT
from treetap.protocols.agreement import job_digest
from treetap.protocols.key_options import LATTICE
from treetap.wire.frame import filled
from treetap.wire.ports import Address, Role
from treetap.wire.rpc import GrpcDialer
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2, jobs_pb2, setup_pb2, types_pb2

pytestmark = pytest.mark.xdist_group("dealer")

T = TypeVar("T")
HOLDER, FEATURE, _ = PARTIES
POLICY = {
    "keys": {"schemes": ["lattice"]},
    "columns": {"withheld_spaces": True},
    "labels": {"min_evaluated_records": 2},
}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties, a coordinator and a dealer, which all but one have been prepared for a job."""
    folder = tmp_path_factory.mktemp("dealer")
    own = settings(folder, {"train": world(20, (1, 1, 1))}, **POLICY)
    with LocalFederation(folder, own, dealer=True) as running:
        for name in (HOLDER, FEATURE, DEALER):
            with_dialer(files_in(folder / "certs", "coordinator"), lambda to, name=name: _prepared(to, running, name))
        yield running


async def _prepared(dialer: GrpcDialer, federation: LocalFederation, name: str) -> None:
    peers = [types_pb2.Peer(name=it, address=federation.addresses[it]) for it in (*PARTIES, DEALER)]
    body = setup_pb2.Prepare(spec=JOB, peers=peers)
    request = filled(control_pb2.StepRequest(job="dealt", attempt=1), "prepare", body)
    async for _ in dialer.step(Address(name, federation.addresses[name]), request):
        pass


def _deliver(federation: LocalFederation, tls: TlsFiles, kind: str, body: Any, part: int = 0) -> None:
    """Have a process send a message to the feature party."""
    digest = job_digest("dealt", setup_pb2.Prepare(spec=JOB))
    frame = exchange_pb2.PeerMessage(job="dealt", attempt=1, part=part, job_digest=digest)
    message = filled(frame, kind, body).SerializeToString()
    to = Address(FEATURE, federation.addresses[FEATURE])
    with_dialer(tls, lambda dialer: dialer.deliver(to, message))


def test_a_certificates_organisation_decides(federation: LocalFederation, tmp_path: Path) -> None:
    """That of another than the pair's parties; not without one, nor the label holder's, nor the party's own."""
    certs = federation.folder / "certs"
    dealt = growth_pb2.Correlations(pair=FEATURE, seed=bytes(32))
    with pytest.raises(Refused, match=f"names the organisation .O. of {HOLDER}"):  # of which nothing has come yet
        _deliver(federation, files_in(certs, DEALER), "correlations", dealt)
    _deliver(federation, files_in(certs, HOLDER), "public_key", setup_pb2.PublicKeyMessage())
    _deliver(federation, files_in(certs, DEALER), "correlations", dealt)
    for number, (organisation, says) in enumerate(
        {"": f"of {DEALER}", "Label-Holder": f"of {HOLDER}", f" {FEATURE}": f"of {FEATURE}"}.items()
    ):
        folder = tmp_path / str(number)
        tls = issue(folder, DEALER, Role.PARTY, ca_folder=certs, organisation=organisation)
        with pytest.raises(Refused, match=f"{FEATURE} takes nothing that {DEALER} deals: .*{says}"):
            _deliver(federation, tls, "correlations", dealt, part=1)


def test_a_dealer_that_dies_ends_the_attempt_by_name_and_the_next_one_goes_on(federation: LocalFederation) -> None:
    """Started again it deals for a new attempt; once the job has ended it keeps nothing of it. A check asks it too."""
    params = replace(PARAMS, n_estimators=12, instance_spaces="withheld")
    job = spec(params, scheme=LATTICE, key_bits=0, obfuscation="", sums="shared", dealer=DEALER)
    request = jobs_pb2.SubmitRequest(job="long", spec=job)
    answers = {answer.party: answer.error for answer in federation.operator.check(request)}
    assert answers == dict.fromkeys((*PARTIES, DEALER), "")
    federation.operator.submit(request)

    def look(status: jobs_pb2.JobStatus) -> None:
        if status.stored_trees >= 2 and federation.alive:
            federation.kill(DEALER)

    stopped = federation.operator.watch("long", look)
    assert stopped.state == "interrupted", stopped.error
    assert DEALER in stopped.error
    assert (federation.state(DEALER) / "jobs" / "long" / DEALT).is_file()
    federation.restart(DEALER)
    federation.operator.resume("long")
    ended = federation.operator.watch("long", lambda _: None)
    assert (ended.state, ended.error, ended.used_trees) == ("finished", "", 12)
    assert not (federation.state(DEALER) / "jobs" / "long").exists()


def test_doctor_knows_a_dealers_file(federation: LocalFederation) -> None:
    """It has an organisation, and no table is asked for; one that only its own host can call is a stand-in."""
    said = treetap("doctor", "--config", str(federation.folder / DEALER / "config.toml"))
    assert said.status == 0, said
    assert "warning  organisation: 127.0.0.1" in said.out
    assert "stand-in" in said.out
    assert "folders" not in said.out
    assert "stand-in" in (federation.folder / DEALER / "log.txt").read_text()


def test_a_dealers_file_has_no_data(federation: LocalFederation, tmp_path: Path) -> None:
    """A party's file is none, and a dealer's none with tables."""
    party = treetap("dealer", "--config", str(federation.folder / FEATURE / "config.toml"))
    assert party.status == 2
    assert "organisation" in party.err
    file = tmp_path / "dealer.toml"
    text = (federation.folder / DEALER / "config.toml").read_text()
    file.write_text(f'data = "."\n{text}')
    held = treetap("dealer", "--config", str(file))
    assert (held.status, "data: a dealer has no data of its own" in held.err) == (2, True)
