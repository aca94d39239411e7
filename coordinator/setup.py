"""What every training begins and ends with, whatever grows in between."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.roster import Roster, together
from treetap.errors import ProtocolError
from treetap.wire.v1 import setup_pb2


@dataclass(frozen=True)
class Plan:
    """How much there is to do: trees from `first` to `trees` - 1, unless `stopped` early; or nothing any more."""

    first: int
    trees: int
    stopped: bool
    published: bool


async def prepare(roster: Roster, spec: setup_pb2.JobSpec, submission: str) -> Plan:
    """Everybody loads its table; the shards on disk say where to go on."""
    body = setup_pb2.Prepare(spec=spec, peers=roster.peers(), submission=submission)
    answers = await roster.ask_all(roster.names, "prepare", body)
    own = answers[spec.label_holder].prepared
    for party in spec.feature_parties:
        theirs = answers[party].prepared
        if theirs.stored_trees < own.stored_trees and not theirs.published and not own.published:
            raise ProtocolError(
                f"{party} holds {theirs.stored_trees} trees of the job, {spec.label_holder} {own.stored_trees}: "
                f"{party} has lost part of its state; cancel the job and train again"
            )
    return Plan(own.stored_trees, own.trees, own.stopped, own.published)


async def align(roster: Roster, spec: setup_pb2.JobSpec) -> None:
    """Parties compare the digests of their sorted ids, party to party."""
    sending = roster.ask_all(spec.feature_parties, "send_digest", setup_pb2.SendDigest())
    await together(sending, roster.ask(spec.label_holder, "compare_digests", setup_pb2.CompareDigests()))


async def exchange_keys(roster: Roster, spec: setup_pb2.JobSpec) -> None:
    """The label holder makes the key pair; the feature parties take its public half."""
    making = roster.ask(spec.label_holder, "make_keys", setup_pb2.MakeKeys())
    await together(making, roster.ask_all(spec.feature_parties, "take_key", setup_pb2.TakeKey()))


async def bin_columns(roster: Roster) -> None:
    """Everybody bins its own columns."""
    await roster.ask_all(roster.names, "bin", setup_pb2.Bin())


async def publish(roster: Roster, spec: setup_pb2.JobSpec) -> None:
    """Shards become models; the label holder last, so that its model means that everybody's is there."""
    await roster.ask_all(spec.feature_parties, "publish", setup_pb2.Publish())
    await roster.ask(spec.label_holder, "publish", setup_pb2.Publish())
