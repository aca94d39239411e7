"""Callers that a party admits, and addresses that it calls.

Who may ask what of which job: strangers, other coordinators, unknown jobs and attempts, words of another role.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, Conducted, Replay, ask, with_word
from tests.simulator import COORDINATOR, Federation, failed
from tests.virtual_time import run
from tests.worlds import PARTIES
from treetap import logs
from treetap.errors import (
    ConfigError,
    DataError,
    Incompatible,
    Interrupted,
    Malformed,
    OutOfOrder,
    Refused,
    Unanswered,
    UnknownJob,
    Unreachable,
)
from treetap.names import is_location, permits
from treetap.party.opening import KINDS
from treetap.party.policy import Policy
from treetap.party.runtime.context import Outbox
from treetap.party.runtime.metrics import CostAccount
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.strict import load
from treetap.wire import frame
from treetap.wire.ports import Address, Timeouts
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2

FEATURE = PARTIES[1]
WORDS = sorted(frame.PATHS[control_pb2.StepRequest])


@pytest.mark.second_tier(but=10)
@pytest.mark.parametrize("name", WORDS)
async def test_who_asks_for_which_job_is_checked_for_every_word(
    name: str, jobs: tuple[Conducted, Conducted], tmp_path: Path
) -> None:
    """Strangers, other coordinators, unknown jobs, attempts that are over or to come, names that are no names."""

    policy = {"people": {"coordinators": [COORDINATOR, "second"]}}
    federation = Federation(tmp_path, HERE.tables, policies=dict.fromkeys(PARTIES, policy))
    await Replay(federation, jobs[0]).to(before="bin")
    for number, party in enumerate(PARTIES):
        request = with_word(name)
        for stranger in (PARTIES[number - 1], "operator", ""):
            with pytest.raises(Refused, match=f"{stranger} is not a coordinator that {party} obeys"):
                await ask(federation, party, request, caller=stranger)
        with pytest.raises(Malformed, match="not a name of a job: names have lower-case letters"):
            await ask(federation, party, with_word(name, job="../up"))
        if name == "check_job":  # which needs no attempt: it is refused as the opening would be
            with pytest.raises(Refused, match="job job belongs to coordinator coordinator, not to second"):
                await ask(federation, party, request, caller="second")
            with pytest.raises(Refused, match=f"{party} is not a party of job other"):
                await ask(federation, party, with_word(name, job="other"), caller="second")
            continue
        for attempt in (1, 2):
            request = with_word(name, attempt=attempt)
            if name in (*KINDS, "leave"):  # the latter of the same submission
                with pytest.raises(Refused, match="job job belongs to coordinator coordinator, not to second"):
                    await ask(federation, party, request, caller="second")
            else:  # as of a job that is not there
                with pytest.raises(UnknownJob, match="holds no job 'job'; was it restarted"):
                    await ask(federation, party, request, caller="second")
        if name == "leave":
            assert frame.name_of(await ask(federation, party, with_word(name, job="other"))) == "done"
            continue
        if name in ("open_model", "open_preview"):
            with pytest.raises(ConfigError, match="another job of the name 'job' is under way here"):
                await ask(federation, party, with_word(name, attempt=0))
        else:
            with pytest.raises(OutOfOrder, match="attempt 0 of job job is over: attempt 1 has begun"):
                await ask(federation, party, with_word(name, attempt=0))
        if name == "open_model":
            with pytest.raises(DataError, match="there is no model 'nothing'"):
                await ask(federation, party, with_word(name, job="other"))
        elif name == "open_preview":
            with pytest.raises(ConfigError, match=f"{party}: answer = '': must be one of count, records"):
                await ask(federation, party, with_word(name, job="other"))
        elif name != "prepare":
            with pytest.raises(UnknownJob, match="holds no job 'other'; was it restarted"):
                await ask(federation, party, with_word(name, job="other"))
            with pytest.raises(UnknownJob, match="attempt 2 of job job has not been prepared here"):
                await ask(federation, party, with_word(name, attempt=2))


async def test_what_is_no_name_of_a_job_is_not_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither to the caller nor in the log, where it would take the time of the loop: in a step and in a message."""
    job = "\U0001f600" * 500_000

    with caplog.at_level(logging.INFO):
        caplog.handler.setFormatter(logs.TextLines())
        federation = Federation(tmp_path, HERE.tables)
        for name in (job, "../up", ""):
            with pytest.raises(Malformed, match="not a name of a job") as step:
                await ask(federation, FEATURE, with_word("bin", job=name))
            message = frame.filled(exchange_pb2.PeerMessage(job=name, attempt=1), "children", growth_pb2.Children())
            with pytest.raises(Malformed, match="not a name of a job") as told:
                await federation.node(FEATURE).deliver(PARTIES[0], message)
            assert max(len(str(step.value)), len(str(told.value))) < 200
        logging.getLogger("treetap.test").warning("after")
        await federation.close()
    assert "after" in caplog.text
    assert len(caplog.text) < 5000
    assert "job=" not in caplog.text


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES[:2])
async def test_a_word_of_another_role_is_refused(party: str, jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """Whatever is no word of the party's role in this kind of job is out of order, in trainings and predictions."""

    federation = Federation(tmp_path, HERE.tables)
    for events, job in ((jobs[0], "job"), (jobs[1], "predict")):
        replay = Replay(federation, events)
        own = {*map(frame.name_of, replay.vocabulary(party)), "leave", "check_job", "account", *KINDS}
        own |= {"choose_shares"} if party == FEATURE else set()  # of its role, in jobs whose sums are shared
        await replay.to(before="ask_directions")
        for name in set(WORDS) - own:
            with pytest.raises(OutOfOrder, match=f"{party} does not do {name} in job {job}"):
                await ask(federation, party, with_word(name, job=job))


async def test_a_step_without_content_and_a_job_of_others_are_refused(tmp_path: Path) -> None:
    """A request of an unknown kind is malformed; a job that does not name the party is not its business."""
    federation = Federation(tmp_path, HERE.tables)
    with pytest.raises(Malformed, match="a step without content; is the coordinator of another version"):
        await ask(federation, FEATURE, control_pb2.StepRequest(job="job", attempt=1))
    request = with_word("prepare")
    del request.setup.prepare.spec.feature_parties[:]
    request.setup.prepare.spec.feature_parties.append(PARTIES[2])
    with pytest.raises(Refused, match=f"{FEATURE} is not a party of job job"):
        await ask(federation, FEATURE, request)


# ---- Addresses of peers, which a coordinator names: what the policy permits, and what is heard of what is there


@pytest.mark.parametrize(
    ("entries", "location", "permitted"),
    [
        (["10.0.0.0/8"], "10.1.2.3:8443", True),
        (["10.0.0.0/8"], "11.1.2.3:8443", False),
        (["10.0.0.0/8"], "[::ffff:10.1.2.3]:8443", True),
        (["10.1.2.3"], "10.1.2.3:1", True),
        (["10.1.2.3:8443"], "10.1.2.3:8443", True),
        (["10.1.2.3:8443"], "10.1.2.3:22", False),
        (["fd00::/8"], "[fd00::1]:8443", True),
        (["[fd00::1]:8443"], "[fd00::1]:8443", True),
        (["[fd00::1]:8443"], "[fd00::1]:22", False),
        (["shop.example"], "shop.example:8443", True),
        (["Shop.Example:8443"], "shop.example:8443", True),
        (["shop.example"], "evil.shop.example:8443", False),
        (["shop.example"], "shop.example.evil:8443", False),
        (["0.0.0.0/0", "::/0"], "localhost:22", False),
        (["127.0.0.0/8"], "localhost:22", False),
        (["127.0.0.0/8"], "2130706433:22", False),
        (["127.0.0.0/8"], "127.1:22", False),
        ([], "10.1.2.3:8443", False),
    ],
)
def test_entries_cover_addresses_as_they_are_written(entries: list[str], location: str, permitted: bool) -> None:
    """Networks cover no name, since whoever serves the name decides what it stands for."""
    policy = Policy(people={"addresses": {"shop": entries}})
    assert permits(policy.people.addresses["shop"], location) is permitted
    if permitted:
        policy.people.check_address("bank", "shop", location)
    else:
        with pytest.raises(Refused, match="bank does not call shop at the address that the job names"):
            policy.people.check_address("bank", "shop", location)


def test_a_peer_without_entries_has_those_of_all() -> None:
    """`*` is for every peer that is not named; without it such a peer is not called."""
    policy = Policy(people={"addresses": {"shop": ["10.0.0.1"], "*": ["10.0.0.2"]}})
    policy.people.check_address("bank", "telco", "10.0.0.2:1")
    for peer, location in (("telco", "10.0.0.1:1"), ("shop", "10.0.0.2:1")):
        with pytest.raises(Refused):
            policy.people.check_address("bank", peer, location)
    with pytest.raises(Refused):
        Policy(people={"addresses": {"shop": ["10.0.0.1"]}}).people.check_address("bank", "telco", "10.0.0.1:1")


@pytest.mark.parametrize(
    "text",
    ["unix:/run/docker.sock:1", "unix:///tmp/s:1", "dns:///a:1", "ipv4:10.0.0.1:1", "xds:a:1", "a", "", "a:b", "u@a:1"],
)
def test_other_targets_of_grpc_are_no_addresses(text: str) -> None:
    """Also by the default policy: a socket of this host would be called, or a name resolved elsewhere."""
    assert not is_location(text)
    with pytest.raises(Refused, match="it is no HOST:PORT"):
        Policy().people.check_address("bank", "shop", text)


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "http://a", "a:b:c", "10.0.0.0/33", "", "a b"])
def test_an_entry_that_is_none_is_named(entry: str, tmp_path: Path) -> None:
    """Bits beyond the length are a slip."""
    (tmp_path / "policy.toml").write_text(f'[people.addresses]\nshop = ["{entry}"]\n')
    with pytest.raises(
        ConfigError, match=r"people\.addresses\.shop\.\[1\]: an address of peers is a network, as 10\.0\.0\.0/8"
    ):
        load(tmp_path / "policy.toml", Policy)


async def test_a_forbidden_address_is_refused_before_it_is_called(tmp_path: Path) -> None:
    """The job fails as one that the policy forbids, and the party has sent nothing."""
    federation = Federation(tmp_path, HERE.tables)
    config = federation.configs["feature-b"]
    federation.configs["feature-b"] = config.under(
        config.policy.with_lines({"people": {"addresses": {"*": ["10.0.0.0/8"]}}})
    )
    federation.start("feature-b")
    called: list[str] = []
    federation.hook = lambda message: called.append(message.sender)
    failed(await federation.train(JOB), "feature-b does not call")
    assert "feature-b" not in called


#: What a dialer finds at addresses that are no peer's, as it says, and the seconds that it takes.
TARGETS = {
    "closed": (Unreachable("shop at 10.0.0.7:22: connection refused: no process listens there"), 0.0),
    "another server": (Unanswered("shop at 10.0.0.7:22: answers, but not in TLS"), 0.2),
    "a firewall": (Unreachable("shop at 10.0.0.7:22: no answer to the connection attempt in time"), 25.0),
    "no name": (Unreachable("shop at db.internal:22: cannot be looked up"), 1.0),
    "another certificate": (Incompatible("shop at 10.0.0.7:22: its certificate is that of 'vault'"), 0.1),
}


@pytest.mark.parametrize("silence_s", [60.0, 20.0])
def test_whatever_is_at_an_address_is_one_sentence_after_one_time(
    silence_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a coordinator could look round the network of a party; its log has what it is."""

    async def told(target: str) -> tuple[type[Exception], str, float]:
        failure, takes = TARGETS[target]

        class Dialer:
            async def deliver(self, *_: Any) -> None:
                await asyncio.sleep(min(takes, silence_s / 2 - 1))
                raise failure

        costs, timeouts = CostAccount("bank", {}), Timeouts(silence_s)
        recorder = Recorders(Path("none"), "off").of("job")
        peers = {"shop": Address("shop", "10.0.0.7:22")}
        policy = Policy(people={"label_holders": ["shop"]})
        outbox = Outbox("job", 1, b"digest", peers, Dialer(), costs, recorder, policy, timeouts)  # type: ignore[arg-type]
        began = asyncio.get_running_loop().time()
        with pytest.raises(Interrupted) as caught:
            await outbox.send("shop", "record_digest", [])
        return type(caught.value), str(caught.value), round(asyncio.get_running_loop().time() - began, 3)

    async def main() -> set[tuple[type[Exception], str, float]]:
        return {await told(target) for target in TARGETS}

    sentence = "bank cannot reach shop; details are in the log of bank"
    assert run(main()) == {(Interrupted, sentence, max(Timeouts(silence_s).retry_s, silence_s / 2))}
    for failure, _ in TARGETS.values():
        assert str(failure) in caplog.text
