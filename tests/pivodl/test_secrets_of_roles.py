"""What the roles of PIVODL do not hear of candidates under evaluation.

A source never holds a plaintext sum of its candidates, and their split party never the records of one: by descriptors,
by the keys of ciphertexts, and by the transcripts of whole jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.pivodl.crossed import SECURE, Crossed, N, crossed
from tests.worlds import FOUR
from treetap.wire.disclosure import classes_within
from treetap.wire.frame import content_of
from treetap.wire.transcript import open_message
from treetap.wire.v2 import pivodl_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore:a 512-bit Paillier key"),
    pytest.mark.xdist_group("roles-of-pivodl"),
]


def test_descriptors_part_sums_from_records() -> None:
    """No content has sums and records. A source gets ciphertexts and places; a split party sums without records."""
    sums = {"CANDIDATE_SUM", "AGGREGATE", "LEAF_WEIGHT"}
    ids = {"INSTANCE_SPACE", "BIN_ASSIGNMENT"}
    contents = pivodl_pb2.PivodlBody.DESCRIPTOR.fields_by_name
    bodies = {name: classes_within(each.message_type) - {"CONTROL"} for name, each in contents.items()}
    assert [name for name, classes in bodies.items() if classes & sums and classes & ids] == []
    # What a source receives about its candidates under evaluation, and what their split party does.
    assert bodies["candidate_shares"] == {"TOPOLOGY", "CIPHERTEXT"}
    assert bodies["winning_candidates"] == {"TOPOLOGY"}
    assert bodies["forwarded_sums"] == {"TOPOLOGY", "CANDIDATE_SUM"}
    fields = pivodl_pb2.ForwardedSums.DESCRIPTOR.fields_by_name
    assert set(fields) == {"node", "candidates", "ciphertexts"}
    in_the_clear = {name for name, classes in bodies.items() if "AGGREGATE" in classes}
    assert in_the_clear - SECURE == {"label_moments", "node_sums", "best_gains"}


@pytest.mark.parametrize("form", ["ours", "as published"])
def test_ciphertexts_are_under_the_key_of_the_party_that_may_open_them(form: str) -> None:
    """Under no other: a source can open none of those that pass through it.

    A transparent ciphertext of m is 1 + m·n, so that it leaves 1 for its own key's n alone.
    """
    here = crossed(form)
    moduli = {sender: int.from_bytes(keys.modulus, "big") for sender, _, _, _, keys in here.contents("party_keys")}
    checked = 0

    def assert_under(key: str, ciphertexts: bytes) -> None:
        nonlocal checked
        width = 2 * ((moduli[key].bit_length() + 7) // 8)
        for at in range(0, len(ciphertexts), width):
            each = int.from_bytes(ciphertexts[at : at + width], "big")
            if each != 1:  # the sum zero is 1 under every key
                assert {party for party, n in moduli.items() if each % n == 1} == {key}
                checked += 1

    for _, to, t, _, shares in here.contents("candidate_shares"):
        key = here.roles(t).split_party(shares.node, to)
        assert key not in (None, to)
        assert_under(str(key), shares.ciphertexts)
    for sender, to, t, _, sums in here.contents("forwarded_sums"):
        assert here.roles(t).split_party(sums.node, sender) == to
        assert_under(to, sums.ciphertexts)
    for kind in ("label_sums", "joint_sums"):
        for _, _, t, _, content in here.contents(kind):
            assert_under(here.roles(t).draws.encryption_party(t), content.ciphertexts)
    assert checked > 100


def _content(record: TranscriptRecord) -> Any:
    return content_of(open_message(record), record.step)


@pytest.mark.parametrize("form", ["ours", "as published"])
def test_no_source_hears_a_sum_of_its_candidates_under_evaluation(form: str) -> None:
    """Of all that its transcript has up to a level's gains, no sums are those left of its own candidates there."""
    here = crossed(form)
    compared = 0
    for party in FOUR:
        heard: set[tuple[int, ...]] = set()
        for record in here.transcripts[party]:
            if record.kind != TranscriptRecord.RECEIVED:
                continue
            if record.step == "node_sums":
                heard |= {tuple(each.sums) for each in _content(record).nodes}
            if record.step == "forwarded_sums":
                node = _content(record).node
                assert here.roles(record.round).split_party(node, record.peer) == party != record.peer
            if record.step == "best_gains":  # the level's candidates of this party have been opened elsewhere
                for node in here.open_at(record.round, record.stage):
                    lefts = _left_sums(here, record.round, node, party)
                    compared += len(lefts)
                    assert not lefts & heard
    assert compared > 100


def _left_sums(here: Crossed, t: int, node: int, source: str) -> set[tuple[int, ...]]:
    """Sums of g and h left of each cut of a source's columns among a node's records; those of all or none left out."""
    rows, derivatives = _members(here, t)[node], _derivatives(here, t)
    found = set()
    block = dict(here.here.parties)[source]
    for column in block[rows].T:
        for cut in np.unique(column)[1:]:
            found.add(tuple(int(each) for each in derivatives[rows[column < cut]].sum(axis=0)))
    return found


def _members(here: Crossed, t: int) -> dict[int, Any]:
    """The records of each node of a tree."""
    blocks, found = dict(here.here.parties), {1: np.arange(N)}
    for node, split in here.model.trees[t].splits.items():
        column = blocks[split.source][found[node], split.candidate.feature]
        left = column < split.threshold
        found[2 * node], found[2 * node + 1] = found[node][left], found[node][~left]
    return found


def _derivatives(here: Crossed, t: int) -> Any:
    """Fixed-point g and h of all records before a tree."""
    loss = here.model.loss
    scores = np.tile(loss.base, (N, 1))
    for before in range(t):
        rows = _members(here, before)
        for leaf, weight in here.model.trees[before].leaves.items():
            scores[rows[leaf]] += weight
    return loss.gradients(scores, loss.scaled(here.here.y))


def test_the_sums_that_are_compared_are_those_on_the_wire() -> None:
    """The root's and the children's sums are found among those of this test: a comparison could find a leak."""
    here = crossed("ours")
    for _, _, t, stage, content in here.contents("node_sums"):
        for each in content.nodes:
            derivatives = _derivatives(here, t)[_members(here, t)[each.node]]
            assert list(each.sums) == derivatives.sum(axis=0).tolist()
            if stage and each.node % 2 == 0:
                source = here.divisions(t)[each.node >> 1]["source"]
                assert tuple(each.sums) in _left_sums(here, t, each.node >> 1, source)


@pytest.mark.parametrize("form", ["ours", "as published"])
def test_a_split_party_hears_of_no_records_of_candidates(form: str) -> None:
    """In a transcript, records come as ownership, as bins or lists of the own labelled ones, and as divided nodes."""
    here = crossed(form)
    listed = set()
    for party in FOUR:
        own = len(here.here.ownership.get(party, ()))
        for record in here.transcripts[party]:
            if record.kind != TranscriptRecord.RECEIVED or not record.message_type.startswith("treetap.wire.v2."):
                continue
            if not set(record.bytes_by_class) & {"INSTANCE_SPACE", "BIN_ASSIGNMENT"}:
                continue
            listed.add(record.step)
            if record.step == "candidate_records":  # places among the receiver's own labelled records
                assert own
                assert all(place < own for each in _content(record).sets for place in each.records)
            if record.step == "node_records":  # after the candidates of its parent have been opened
                spaces = _content(record).spaces
                assert all(space.node.bit_length() - 2 == record.stage for space in spaces)
    forms = {"ours": "record_bins", "as published": "candidate_records"}
    assert listed - {"record_digest"} == {"labelled_records", "node_records", forms[form]}
