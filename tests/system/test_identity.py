"""Who may ask what: certificates decide, on every service of every process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import dns_of, namesake, role_of
from tests.sockets import dialling, listening
from tests.system.federations import settings
from tests.worlds import PARTIES, spec, world
from treetap import version
from treetap.commands.certs import requests
from treetap.commands.certs.authority import BACKDATED, create_authority, issue
from treetap.commands.certs.requests import install
from treetap.errors import ConfigError, Incompatible, Interrupted, Refused, TreetapError, UnknownJob, Unreachable
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.agreement import job_digest, named
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.certificates import identity, read_certificates
from treetap.wire.frame import filled
from treetap.wire.ports import Address, Role
from treetap.wire.rpc import GrpcDialer
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, control_pb2_grpc, exchange_pb2, growth_pb2, jobs_pb2, setup_pb2

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


def _tls(federation: LocalFederation, name: str) -> TlsFiles:
    certs = federation.folder / "certs"
    return TlsFiles(certs / "ca.crt", certs / f"{name}.crt", certs / f"{name}.key")


def _at(federation: LocalFederation, name: str, called: str = "") -> Address:
    return Address(called or name, federation.addresses[name], role_of(called or name))


def _with(tls: TlsFiles, call: Callable[[GrpcDialer], Awaitable[T]]) -> T:
    async def main() -> T:
        async with dialling(tls) as dialer:
            return await call(dialer)

    return asyncio.run(main())


def _as(federation: LocalFederation, caller: str, call: Callable[[GrpcDialer], Awaitable[T]]) -> T:
    return _with(_tls(federation, caller), call)


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


@pytest.mark.parametrize("caller", [name for name in EVERYBODY if name != "coordinator"])
@pytest.mark.parametrize("party", PARTIES)
def test_only_the_coordinator_controls(caller: str, party: str, federation: LocalFederation) -> None:
    """Steps asked by another party, by the party itself or by an operator are refused, leaving included."""
    leave = filled(control_pb2.StepRequest(job="open", attempt=9), "leave", setup_pb2.Leave(discard=True))
    for request in (_prepare(federation, "stolen"), leave):
        with pytest.raises(Refused, match=f"{caller} is not a coordinator by its certificate"):
            _as(federation, caller, lambda dialer, request=request: _step(dialer, federation, party, request))
    assert not (federation.state(party) / "jobs" / "stolen").exists()


@pytest.mark.parametrize("caller", [*PARTIES, "coordinator"])
@pytest.mark.parametrize("method", ["Submit", "Predict", "Watch", "Status", "Cancel", "Resume"])
def test_only_operators_have_jobs(caller: str, method: str, federation: LocalFederation) -> None:
    """No party, and not the coordinator's own certificate, can hand in, see or end jobs."""
    to = _at(federation, "coordinator")
    error = _as(federation, caller, lambda dialer: _job_call(dialer, to, method))
    assert isinstance(error, Refused)
    assert f"{caller} is not an operator by its certificate" in str(error)


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


CALLS: dict[str, tuple[Role, str]] = {
    "step": (Role.COORDINATOR, "coordinator"),
    "deliver": (Role.PARTY, "feature-c"),
    "jobs": (Role.OPERATOR, "operator"),
}


async def _error_of(dialer: GrpcDialer, federation: LocalFederation, call: str) -> Exception | None:
    """The error with which a service answers a call that its rightful caller may make; None for none."""
    try:
        if call == "step":
            await _step(dialer, federation, "feature-b", _prepare(federation))
        elif call == "deliver":
            await dialer.deliver(_at(federation, "label-holder"), _children())
        else:
            return await _job_call(dialer, _at(federation, "coordinator"), "Status")
    except TreetapError as error:
        return error
    return None


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("call", CALLS)
def test_a_name_without_its_role_is_nobody(call: str, role: Role, tmp_path: Path, federation: LocalFederation) -> None:
    """Under the rightful caller's own name, each service answers the certificate of one role and no other."""
    rightful, name = CALLS[call]
    files = namesake(tmp_path, name, role, federation.folder / "certs")
    error = _with(files, lambda dialer: _error_of(dialer, federation, call))
    if role is rightful:
        assert error is None
    else:
        assert isinstance(error, Refused)
        assert str(error).startswith(f"{name} is not {rightful.one} by its certificate, but {role.one}")


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.CLIENT, Role.COORDINATOR])
def test_a_server_in_another_role(role: Role, tmp_path: Path, federation: LocalFederation) -> None:
    """A process with a party's name and address, but the certificate of another role, gets no answer but a refusal."""
    mine = namesake(tmp_path, "feature-c", role, federation.folder / "certs")

    async def main() -> None:
        async with (
            listening(Callers("feature-c", mine)) as address,
            dialling(_tls(federation, "label-holder")) as dialer,
        ):
            await dialer.deliver(Address("feature-c", address), _children())

    with pytest.raises(Incompatible, match=f"that of {role} 'feature-c', not of party 'feature-c'"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("names", "alternatives", "says"),
    [
        (["coordinator"], ["coordinator"], "has no role; renew it: treetap certs issue "),
        (["coordinator"], [], "has no role"),
        (["coordinator", "feature-b"], ["coordinator.coordinator.treetap.internal"], "must have one common name"),
        ([], ["coordinator.coordinator.treetap.internal"], "must have one common name"),
        (["Coordinator"], ["coordinator.coordinator.treetap.internal"], "must have one common name"),
        (
            ["coordinator"],
            ["coordinator.party.treetap.internal", "coordinator.coordinator.treetap.internal"],
            "other names",
        ),
        (["coordinator"], ["coordinator.coordinator.treetap.internal", "*.PARTY.treetap.internal"], "other names"),
        (["coordinator"], ["other.coordinator.treetap.internal"], "other names"),
        (["coordinator"], ["coordinator.king.treetap.internal"], "other names"),
    ],
)
def test_certificates_that_name_nobody(
    names: list[str], alternatives: list[str], says: str, tmp_path: Path, federation: LocalFederation
) -> None:
    """Whatever the right authority has signed: no role, two roles, two names, or another's name is no caller."""
    files = _signed(tmp_path, federation, names, alternatives)

    async def call() -> str:
        ca, certificate, key = files.read()
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        named = [("grpc.ssl_target_name_override", dns_of("feature-b"))]
        async with grpc.aio.secure_channel(federation.addresses["feature-b"], credentials, options=named) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in control_pb2_grpc.ControlStub(channel).Step(
                    _prepare(federation), metadata=version.told()
                ):
                    pass
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            return caught.value.details() or ""

    assert says in asyncio.run(call())
    with pytest.raises(ConfigError, match=says):
        files.check(None)


def _signed(folder: Path, federation: LocalFederation, names: list[str], alternatives: list[str]) -> TlsFiles:
    """A certificate of the federation's authority with these names."""
    certs = federation.folder / "certs"
    files = issue(folder, "coordinator", Role.COORDINATOR, ca_folder=certs)
    valid = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    today = datetime.now(UTC)
    # from before now: the clock that TLS reads ticks, and a second that has just begun may not have begun there
    builder = x509.CertificateBuilder(
        valid.issuer,
        subject,
        valid.public_key(),
        x509.random_serial_number(),
        today - BACKDATED,
        today + timedelta(days=1),
    )
    if alternatives:
        hosts = [x509.DNSName(name) for name in alternatives]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    signer = serialization.load_pem_private_key((certs / "ca.key").read_bytes(), None)
    signed = builder.sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    files.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return files


def test_services_live_where_they_belong(federation: LocalFederation) -> None:
    """The coordinator takes no steps and no parcels, and a party no jobs."""
    step = _prepare(federation)
    with pytest.raises(TreetapError, match="UNIMPLEMENTED"):
        _as(federation, "coordinator", lambda dialer: _step(dialer, federation, "coordinator", step))
    with pytest.raises(TreetapError, match="UNIMPLEMENTED"):
        _as(federation, "feature-b", lambda dialer: dialer.deliver(_at(federation, "coordinator"), _children()))
    to = _at(federation, "feature-b")
    assert "UNIMPLEMENTED" in str(_as(federation, "operator", lambda dialer: _job_call(dialer, to, "Status")))


def _foreign(folder: Path, federation: LocalFederation) -> TlsFiles:
    """A certificate for the coordinator's name from an authority that only its bearer trusts, beside the right one."""
    create_authority(folder / "foreign")
    files = issue(folder / "foreign", "coordinator", Role.COORDINATOR)
    both = folder / "both.crt"
    both.write_bytes(files.ca.read_bytes() + (federation.folder / "certs" / "ca.crt").read_bytes())
    return TlsFiles(both, files.certificate, files.key)


def _expired(folder: Path, federation: LocalFederation) -> TlsFiles:
    """The coordinator's own certificate as it would be signed by the right authority, but for last month."""
    certs = federation.folder / "certs"
    valid = x509.load_pem_x509_certificate((certs / "coordinator.crt").read_bytes())
    signer = serialization.load_pem_private_key((certs / "ca.key").read_bytes(), None)
    today = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        valid.issuer, valid.subject, valid.public_key(), x509.random_serial_number(),
        today - timedelta(days=60), today - timedelta(days=30), list(valid.extensions),
    )  # fmt: skip
    path = folder / "expired.crt"
    path.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))  # type: ignore[arg-type]
    return TlsFiles(certs / "ca.crt", path, certs / "coordinator.key")


@pytest.mark.parametrize(
    ("make", "error", "cause"),
    [
        (_foreign, Unreachable, "it seems to refuse our certificate, that of 'coordinator'"),
        (_expired, Incompatible, "the certificate expired on"),
    ],
)
def test_certificates_that_nobody_signed_today(
    make: Callable[[Path, LocalFederation], TlsFiles],
    error: type[Interrupted],
    cause: str,
    tmp_path: Path,
    federation: LocalFederation,
) -> None:
    """The right name from a foreign authority, or from last month, gets no answer of any service, and learns why."""
    tls = make(tmp_path, federation)
    step = _prepare(federation)
    with pytest.raises(error, match=cause):
        _with(tls, lambda dialer: _step(dialer, federation, "feature-b", step))
    to = _at(federation, "coordinator")
    assert isinstance(_with(tls, lambda dialer: _job_call(dialer, to, "Status")), error)


@pytest.mark.parametrize("process", [*PARTIES, "coordinator"])
def test_callers_without_a_certificate(process: str, federation: LocalFederation) -> None:
    """Neither TLS without a client certificate nor plain text reaches any service, the health check included."""
    ca = (federation.folder / "certs" / "ca.crt").read_bytes()
    target, named = federation.addresses[process], (("grpc.ssl_target_name_override", dns_of(process)),)
    channels = (
        grpc.secure_channel(target, grpc.ssl_channel_credentials(ca), named),
        grpc.insecure_channel(target),
    )
    for channel in channels:
        with channel, pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_with_another_name(federation: LocalFederation) -> None:
    """Whoever answers at feature-c's address with feature-b's certificate is not spoken to."""
    swapped = _at(federation, "feature-b", called="feature-c")
    with pytest.raises(Incompatible, match="the certificate is that of 'feature-b', not of 'feature-c'"):
        _as(federation, "label-holder", lambda dialer: dialer.deliver(swapped, _children()))


def test_a_server_of_another_authority(tmp_path: Path, federation: LocalFederation) -> None:
    """A dialer that trusts another authority refuses the server before it says anything."""
    create_authority(tmp_path / "other")
    own = issue(tmp_path / "other", "label-holder", Role.PARTY)
    with pytest.raises(Incompatible, match="is not signed by the authority trusted here"):
        _with(own, lambda dialer: dialer.deliver(_at(federation, "feature-b"), _children()))


@pytest.mark.parametrize("process", [*PARTIES, "coordinator"])
def test_the_health_service(process: str, federation: LocalFederation) -> None:
    """Over mutual TLS every process says that it is serving, as orchestrators ask it."""
    tls = _tls(federation, "operator")
    ca, certificate, key = tls.read()
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    named = (("grpc.ssl_target_name_override", dns_of(process)),)
    with grpc.secure_channel(federation.addresses[process], credentials, named) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


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
                files = _tls(federation, name)
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
