"""Policies that permit what a job is declared to send, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulator import Federation
from treetap.protocols.messages import Sent
from treetap.wire.disclosure import CLASSES, UNSPECIFIED

Emits = dict[str, list[str]]


def exactly(sends: Iterable[Sent], party: str) -> Emits:
    """The narrowest `emits` under which a party may send its part of these."""
    allowed: dict[str, set[str]] = {name: set() for name in CLASSES if name != UNSPECIFIED}
    for sent in sends:
        if sent.sender == party:
            for disclosure in sent.classes:
                allowed[disclosure].add(sent.receiver)
    return {name: sorted(receivers) for name, receivers in allowed.items()}


def put_under(federation: Federation, party: str, emits: Emits) -> None:
    """Give a party that runs another `emits`, also for the answers of open sessions; messages keep the old one."""
    config = federation.configs[party]
    policy = config.policy.with_lines({"emits": emits})
    node = federation.node(party)
    node.config = node._opener.config = config.under(policy)
    for session in node._sessions.values():
        session.context.policy = policy
