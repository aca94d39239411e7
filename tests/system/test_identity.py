"""Who may ask what: certificates decide, on every service of every process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from tests.campaign.certificates import Certificates
from tests.certificates import role_of
from tests.commands.command import files_in
from tests.sockets import with_dialer
from tests.system.federations import settings
from tests.worlds import PARTIES, spec, world
from treetap.errors import ConfigError, Refused, TreetapError, UnknownJob
from treetap.lab.local_federation import LocalFederation
from treetap.ops.certs import requests
from treetap.ops.certs.requests import install
from treetap.protocols.agreement import job_digest, named
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire import rpc
from treetap.wire.certificates import identity, read_certificates
from treetap.wire.frame import filled
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.rpc import GrpcDialer
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2, jobs_pb2, setup_pb2

pytestmark = pytest.mark.xdist_group("identity")

T = TypeVar("T")
HERE = world(20, (1, 1, 1))
SPEC = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2))
EVERYBODY = [*PARTIES, "coordinator", "operator"]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties and a coordinator; two have been prepared for the job `open`."""
    folder = tmp_path_factory.mktemp("identity")
    with LocalFederation(folder, settings(folder, {"train": HERE})) as running:
        for party in ("label-holder", "feature-b"):
            _as(running, "coordinator", lambda dialer, party=party: _step(dialer, running, party, _prepare(running)))
        yield running


def _at(federation: LocalFederation, name: str, called: str = "") -> Address:
    return Address(called or name, federation.addresses[name], role_of(called or name))


def _as(federation: LocalFederation, caller: str, call: Callable[[GrpcDialer], Awaitable[T]]) -> T:
    return with_dialer(files_in(federation.folder / "certs", caller), call)


def _prepare(federation: LocalFederation, job: str = "open") -> control_pb2.StepRequest:
    return filled(control_pb2.StepRequest(job=job, attempt=1), "prepare", setup_pb2.Prepare(spec=SPEC))


def _children(job: str = "open") -> bytes:
    digest = job_digest(job, setup_pb2.Prepare(spec=SPEC))
    frame = exchange_pb2.PeerMessage(job=job, attempt=1, last=True, job_digest=digest)
    return filled(frame, "children", growth_pb2.Children()).SerializeToString()


async def _step(
    dialer: GrpcDialer, federation: LocalFederation, to: str, request: control_pb2.StepRequest
) -> list[control_pb2.StepEvent]:
    return [event async for event in dialer.step(_at(federation, to), request)]


async def _job_call(dialer: GrpcDialer, to: Address, method: str) -> TreetapError | None:
    """The error with which one method of the Jobs service answers, None for none."""
    requests = {
        "Submit": named(jobs_pb2.SubmitRequest(spec=SPEC)),
        "Predict": named(predict_request(model="m")),
        "Status": jobs_pb2.StatusRequest(),
    }
    request = requests.get(method, jobs_pb2.JobName(job="nobodys"))
    try:
        async with dialer.jobs(to) as stub:
            if method in ("Watch", "Status"):
                async for _ in getattr(stub, method)(request, timeout=10):
                    pass
            else:
                await getattr(stub, method)(request, timeout=10)
    except TreetapError as error:
        return error
    return None


def test_operators_are_heard(federation: LocalFederation) -> None:
    """The same calls of an operator get through to an answer about the job."""
    to = _at(federation, "coordinator")
    assert _as(federation, "operator", lambda dialer: _job_call(dialer, to, "Status")) is None
    for method in ("Predict", "Watch", "Cancel", "Resume"):
        error = _as(federation, "operator", lambda dialer, method=method: _job_call(dialer, to, method))
        assert isinstance(error, UnknownJob)


@pytest.mark.parametrize(
    ("caller", "says"),
    [
        ("coordinator", "coordinator is not a party by its certificate, but a coordinator"),
        ("operator", "operator is not a party by its certificate, but an operator"),
        ("feature-b", "feature-b holds no job 'open'"),
    ],
)
def test_only_peers_exchange(caller: str, says: str, federation: LocalFederation) -> None:
    """Parcels of a job come from its other parties: not from the coordinator, an operator or the party itself."""
    with pytest.raises(Refused if "certificate" in says else UnknownJob, match=says):
        _as(federation, caller, lambda dialer: dialer.deliver(_at(federation, "feature-b"), _children()))


@pytest.mark.parametrize("caller", ["feature-b", "feature-c"])
def test_peers_are_heard(caller: str, federation: LocalFederation) -> None:
    """The parties of the job get a receipt; of a job that is not here they are told so."""
    to = _at(federation, "label-holder")
    assert _as(federation, caller, lambda dialer: dialer.deliver(to, _children())) == exchange_pb2.Receipt()
    with pytest.raises(UnknownJob):
        _as(federation, caller, lambda dialer: dialer.deliver(to, _children("other")))


def test_certificates_that_name_nobody(tmp_path: Path) -> None:
    """Whatever the right authority has signed: no role, two roles, two names, or another's name is no caller.

    That nobody hears such a caller: `tests.campaign.certificate_matrix`, with all others and each method.
    """
    certificates, own = Certificates(tmp_path), Identity("coordinator", Role.COORDINATOR)
    says = {"no role": "has no role; renew it: treetap certs issue ", "no alternative name": "has no role"}
    says |= dict.fromkeys(("two common names", "no common name"), "must have one common name")
    says |= dict.fromkeys(("two roles", "a wildcard", "another's DNS name", "unknown role"), "other names")
    for defect, why in says.items():
        kind = certificates.defective(own, defect)
        assert kind.files is not None
        with pytest.raises(ConfigError, match=why):
            kind.files.check(None)
    with pytest.raises(ConfigError, match="that of coordinator 'coordinator', not of party 'coordinator'"):
        certificates.rightful("coordinator", Role.COORDINATOR).check(None, Role.PARTY)


@pytest.mark.second_tier
def test_a_job_outlasts_its_certificates(
    federation: LocalFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a job runs everybody renews its certificate, who watches it too: it goes on, and nothing is restarted."""
    monkeypatch.setattr(rpc, "LOOK_S", 0.05)  # of the operator; a process's next call comes at once
    certs = federation.folder / "certs"
    params = BoostingParams(n_estimators=5, max_depth=2, max_bin=2)
    federation.operator.submit(jobs_pb2.SubmitRequest(job="long", spec=spec(params)))
    grown: list[int] = []
    breaks: list[str] = []
    left = rpc.Channels.left

    def noting(self: rpc.Channels, to: Address, channel: grpc.aio.Channel) -> bool:
        breaks.append(to.name)
        return left(self, to, channel)

    monkeypatch.setattr(rpc.Channels, "left", noting)

    def renew(status: jobs_pb2.JobStatus) -> None:
        if status.stored_trees and not grown:
            grown.append(status.stored_trees)
            for name in EVERYBODY:
                files = files_in(federation.folder / "certs", name)
                holder = identity(read_certificates(files.certificate)[0])
                made = requests.request(tmp_path, name, holder.role)
                new, _ = requests.sign_request(made.request, holder, certs)
                install(new, files)

    ended = federation.operator.watch("long", renew)
    assert (ended.state, ended.error) == ("finished", "")
    assert grown[0] < 5
    assert breaks == ["coordinator"]
    for name in (*PARTIES, "coordinator"):
        assert "TLS files have changed and are read again" in (federation.folder / name / "log.txt").read_text()
