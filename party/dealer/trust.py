"""Whom a party lets deal for it: a process that its policy names, of an organisation that is neither of a pair's.

With one party of a pair a dealer opens what the pair keeps as shares. Its organisation is field O of its certificate,
which the authority states; a party sees it, and that of the pair's other party, on the connections by which their
messages come. A coordinator's word for either counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from treetap.errors import Refused
from treetap.names import on_loopback
from treetap.party.config import DealerConfig, PartyConfig
from treetap.wire.v2 import setup_pb2


def check_apart(config: PartyConfig, opening: setup_pb2.Prepare) -> None:
    """Raise `Refused` for a job in which this process deals and is no dealer, or the other way round.

    At a party also for a dealer that the policy does not name, or, unless the whole federation is on loopback, one at
    the address of a peer or of this host.
    """
    dealer, name = opening.spec.dealer, config.name
    if (name == dealer) != isinstance(config, DealerConfig):
        what = "a party, and deals" if name == dealer else "a dealer, and is a party"
        raise Refused(f"{name} is {what} for nobody: dealers are processes of their own, of treetap dealer")
    if not dealer or name == dealer:
        return
    config.policy.check(name, "dealers", dealer)
    hosts = {peer.name: peer.address.lower().rpartition(":")[0] for peer in opening.peers}
    local = {peer.name for peer in opening.peers if on_loopback(peer.address)}
    same = [peer for peer, host in hosts.items() if peer != dealer and host == hosts.get(dealer)]
    if (same or dealer in local) and len(local) < len(hosts):
        raise Refused(
            f"{name} takes nothing that {dealer} deals: it is at the address of {' and '.join(same) or 'this host'}, "
            "who could read what it deals; have an organisation that is none of the parties' run it on a host of its "
            "own"
        )


def check_dealer(party: str, spec: setup_pb2.JobSpec, organisations: Mapping[str, str]) -> None:
    """Raise `Refused` unless the dealer's organisation is known, and is that of neither party of this party's pairs.

    `organisations`: as certificates name them, of this party and of all that have sent it messages.
    """
    label_holder, features = spec.aggregator, list(spec.feature_parties)
    pair = [party, *(features if party == label_holder else [label_holder])]
    named = {name: " ".join(organisations.get(name, "").casefold().split()) for name in (spec.dealer, *pair)}
    if lacking := [name for name, organisation in named.items() if not organisation]:
        raise Refused(
            f"{party} takes nothing that {spec.dealer} deals: no certificate names the organisation (O) of "
            f"{' and '.join(lacking)}; issue new ones: treetap certs … --organisation NAME"
        )
    if same := [name for name in pair if named[name] == named[spec.dealer]]:
        raise Refused(
            f"{party} takes nothing that {spec.dealer} deals: it is of the organisation of {' and '.join(same)} "
            f"({organisations[spec.dealer]!r}), and with it would open what a pair keeps as shares; have another "
            "organisation deal"
        )
