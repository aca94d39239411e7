"""Addresses of peers, which a coordinator names: what the policy permits, and what is heard of what is there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB
from tests.simulator import Federation, failed
from tests.virtual_time import run
from treetap.errors import ConfigError, Incompatible, Interrupted, Refused, Unanswered, Unreachable
from treetap.party.policy import Policy
from treetap.party.runtime.context import Outbox
from treetap.party.runtime.metrics import CostAccount
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.strict import is_location, load, permits
from treetap.wire.ports import Address, Timeouts


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
