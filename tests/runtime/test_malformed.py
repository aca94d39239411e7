"""Contents that cannot be what they claim to be: the job fails with a typed error that says whose, what and where.

One parcel of a running job is changed on its way. Afterwards the same job, resumed on an honest line, finds the
oracle's model: nothing of the false content has been kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, run
from tests.tampered import Change, longer_key
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2, types_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
N = len(HERE.y)
WIDTH = 256  # bytes of a ciphertext under a key of 1024 bits


def chunk(*rows: int) -> types_pb2.RecordChunk:
    """A set of records of the job as one message."""
    (only,) = chunks_of(np.array(rows, dtype=np.int64), N)
    return only


# --- set-up


def odd_length_key(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.modulus = parcel.setup.public_key.modulus[:-3]


def even_key(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.modulus = parcel.setup.public_key.modulus[:-1] + b"\x02"


def no_slots(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.setup.public_key.slot_widths[:]


def wide_slot(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.slot_widths[0] = 64


def wider_slot(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.slot_widths[0] += 1


def narrower_slot(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.slot_widths[2] -= 1


def slots_of_two_outputs(parcel: exchange_pb2.PeerMessage) -> None:
    g, h, count = parcel.setup.public_key.slot_widths
    parcel.setup.public_key.slot_widths[:] = [g, g, h, h, count]


def many_slots(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.slot_widths.extend([60] * 20)


# --- label holder to feature party


def sample_beyond(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.sampled_records.chunks[0].span = N + 1


def sample_cut(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.sampled_records.chunks[0].span = N - 1
    parcel.growth.sampled_records.chunks[0].deltas = b""


def sample_missing(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.growth.sampled_records.chunks[:]


def sample_smaller(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.sampled_records.chunks[0].CopyFrom(chunk(*range(N - 1)))


def gradients_skip(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.boosting.gradients.first = 1


def gradients_fewer(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.boosting.gradients.count -= 1
    parcel.protocol.boosting.gradients.ciphertexts = parcel.protocol.boosting.gradients.ciphertexts[:-WIDTH]


def gradients_miscounted(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.boosting.gradients.count -= 1


def gradients_zero(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.boosting.gradients.ciphertexts = (
        bytes(WIDTH) + parcel.protocol.boosting.gradients.ciphertexts[WIDTH:]
    )


def gradients_too_large(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.boosting.gradients.ciphertexts = (
        b"\xff" * WIDTH + parcel.protocol.boosting.gradients.ciphertexts[WIDTH:]
    )


def spaces_missing(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.growth.instance_spaces.spaces[:]


def spaces_cut(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.instance_spaces.spaces[0].records.span = 3
    parcel.growth.instance_spaces.spaces[0].records.deltas = b"\x01"


# --- feature party to label holder


def sums_fewer(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.candidate_sums.ciphertexts = parcel.growth.candidate_sums.ciphertexts[:-WIDTH]


def sums_more(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.candidate_sums.ciphertexts *= 2


def sums_cut(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.candidate_sums.ciphertexts = parcel.growth.candidate_sums.ciphertexts[:-1]


def sums_zero(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.candidate_sums.ciphertexts = bytes(len(parcel.growth.candidate_sums.ciphertexts))


def sums_random(parcel: exchange_pb2.PeerMessage) -> None:
    """Below every n², since the two top bits of both primes are set."""
    count = len(parcel.growth.candidate_sums.ciphertexts) // WIDTH
    parcel.growth.candidate_sums.ciphertexts = b"".join(b"\x10" + os.urandom(WIDTH - 1) for _ in range(count))


def sums_of_other_nodes(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.candidate_sums.nodes[0] = 7


def sums_of_no_nodes(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.growth.candidate_sums.nodes[:]


def sums_of_fewer_candidates(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.candidate_sums.candidates = 0


def children_of_other_nodes(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.children.children[0].node = 5


def children_missing(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.growth.children.children[:]


def children_foreign(parcel: exchange_pb2.PeerMessage) -> None:
    """All records go left, also those that went to the sibling."""
    parcel.growth.children.children[0].left.CopyFrom(chunk(*range(N)))


def children_moved(parcel: exchange_pb2.PeerMessage) -> None:
    """The last record that went left goes right."""
    left = rows_of([parcel.growth.children.children[0].left], N)
    parcel.growth.children.children[0].left.CopyFrom(chunk(*left[:-1]))


def children_with_two_handles(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.children.children.add().CopyFrom(parcel.growth.children.children[0])
    parcel.growth.children.children[1].handle += 1


def children_twice(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.children.children.add().CopyFrom(parcel.growth.children.children[0])


def children_without_coding(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.children.children[0].left.ClearField("coding")
    parcel.growth.children.children[0].left.span = N


# --- prediction


def query_of_unknown_handle(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_queries.queries[0].handle = 99


def query_beyond(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_queries.queries[0].records.span = 100


def query_from_the_middle(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_queries.queries[0].records.start = 2


def query_twice(parcel: exchange_pb2.PeerMessage) -> None:
    queries = parcel.protocol.interactive.route_queries.queries
    queries.add().CopyFrom(queries[0])


def query_of_a_short_answer(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_queries.answers = 1


def query_of_an_endless_answer(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_queries.answers = 2**62


def answers_of_fewer(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_answers.count = 0
    parcel.protocol.interactive.route_answers.left = b""


def answers_beyond(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_answers.count -= 1
    parcel.protocol.interactive.route_answers.left = b"\xff" * len(parcel.protocol.interactive.route_answers.left)


def answers_too_long(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.interactive.route_answers.left += b"\x00"


# (kind of parcel, who sends it, the change, what the operator reads); the label holder's parcels go to feature-b,
# which splits the root; so the instance spaces are those to feature-c
TRAINING: list[tuple[str, str, Change, str]] = [
    ("public_key", LABEL_HOLDER, longer_key, "the key of label-holder has 2048 bits, the job says 1024"),
    ("public_key", LABEL_HOLDER, odd_length_key, "the key of label-holder has 1000 bits, the job says 1024"),
    ("public_key", LABEL_HOLDER, even_key, "the key of label-holder cannot be used: a Paillier modulus is odd"),
    ("public_key", LABEL_HOLDER, no_slots, "the key of label-holder cannot be used: slots need widths"),
    ("public_key", LABEL_HOLDER, wide_slot, "the key of label-holder cannot be used: slots need widths"),
    ("public_key", LABEL_HOLDER, wider_slot, "slots of 39, 36, 6 bits, the job implies 38, 36, 6"),
    ("public_key", LABEL_HOLDER, narrower_slot, "slots of 38, 36, 5 bits, the job implies 38, 36, 6"),
    ("public_key", LABEL_HOLDER, slots_of_two_outputs, "5 slots are not g and h of each output and a count"),
    ("public_key", LABEL_HOLDER, many_slots, "the key of label-holder cannot be used: one record needs"),
    ("sampled_records", LABEL_HOLDER, sample_beyond, "records: a range of 17 from 0 cannot follow 0 of 16"),
    ("sampled_records", LABEL_HOLDER, sample_cut, "records: the ranges end at 15 of 16 records"),
    ("sampled_records", LABEL_HOLDER, sample_missing, "records: the ranges end at 0 of 16 records"),
    ("sampled_records", LABEL_HOLDER, sample_smaller, "a draw that differs from that of the job's seed in 1 records"),
    ("gradients", LABEL_HOLDER, gradients_skip, "label-holder sent ciphertexts out of place in tree 0"),
    ("gradients", LABEL_HOLDER, gradients_fewer, "label-holder sent 15 ciphertexts for 16 records in tree 0"),
    ("gradients", LABEL_HOLDER, gradients_miscounted, "15 records need 3840 bytes of ciphertexts, got 4096"),
    ("gradients", LABEL_HOLDER, gradients_zero, "a ciphertext is zero or not below n²"),
    ("gradients", LABEL_HOLDER, gradients_too_large, "a ciphertext is zero or not below n²"),
    (
        "instance_spaces",
        LABEL_HOLDER,
        spaces_missing,
        "OutOfOrder: the records of node 2 of tree 0 are not known at this party",
    ),
    ("instance_spaces", LABEL_HOLDER, spaces_cut, "records: the ranges end at 3 of 16 records"),
    ("candidate_sums", FEATURE, sums_fewer, "candidates are 1 ciphertexts of 256 bytes, got 0 bytes"),
    ("candidate_sums", FEATURE, sums_more, "candidates are 1 ciphertexts of 256 bytes, got 512 bytes"),
    ("candidate_sums", FEATURE, sums_cut, "candidates are 1 ciphertexts of 256 bytes, got 255 bytes"),
    ("candidate_sums", FEATURE, sums_zero, "a ciphertext is zero or not below n²"),
    ("candidate_sums", FEATURE, sums_random, "has bits left above the last slot"),
    ("candidate_sums", FEATURE, sums_of_other_nodes, "feature-b sent candidates of nodes [7], expected [1]"),
    ("candidate_sums", FEATURE, sums_of_no_nodes, "feature-b sent candidates of nodes [], expected [1]"),
    ("candidate_sums", FEATURE, sums_of_fewer_candidates, "0 candidates are 0 ciphertexts of 256 bytes, got 256"),
    ("children", FEATURE, children_of_other_nodes, "feature-b sent children of nodes [5], expected [1]"),
    ("children", FEATURE, children_missing, "feature-b sent children of nodes [], expected [1]"),
    ("children", FEATURE, children_moved, "the children of node 1 do not have the sums that its owner offered"),
    ("children", FEATURE, children_with_two_handles, "two handles for the split of node 1"),
    ("children", FEATURE, children_twice, "records: a range of 16 from 0 cannot follow 16 of 16 records"),
    ("children", FEATURE, children_without_coding, "records: the range from 0 needs a bitmap or deltas, one of them"),
    ("children", OTHER, children_foreign, "the children of node 3 hold records that never reached it"),
]
PREDICTION: list[tuple[str, str, Change, str]] = [
    ("route_queries", LABEL_HOLDER, query_of_unknown_handle, "feature-b has no split 99 in model job"),
    ("route_queries", LABEL_HOLDER, query_beyond, "records: a range of 100 from 0 cannot follow 0 of 6 records"),
    ("route_queries", LABEL_HOLDER, query_from_the_middle, "a query whose records do not begin at 0"),
    ("route_queries", LABEL_HOLDER, query_twice, "two queries about split 0"),
    ("route_queries", LABEL_HOLDER, query_of_a_short_answer, "asks for 1 directions, its queries name more records"),
    (
        "route_queries",
        LABEL_HOLDER,
        query_of_an_endless_answer,
        "asks for 4611686018427387904 directions, its queries can have",
    ),
    ("route_answers", FEATURE, answers_of_fewer, "feature-b answered 0 bits, not those of the queries"),
    ("route_answers", FEATURE, answers_beyond, "records: bits are set beyond the last of 7"),
    ("route_answers", FEATURE, answers_too_long, "records: 8 bits take 1 bytes, not 2"),
]


def _once(
    kind: str, sender: str, change: Change
) -> Callable[[str, str, exchange_pb2.PeerMessage], exchange_pb2.PeerMessage]:
    """Changes the first such parcel of the job, and its repeats likewise."""
    numbers: set[tuple[int, int, int]] = set()

    def tamper(by: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        victim = OTHER if kind == "instance_spaces" else FEATURE
        if (by, name_of(parcel)) != (sender, kind) or to not in (LABEL_HOLDER, victim):
            return parcel
        numbers.add((parcel.round, parcel.stage, parcel.part))
        if (parcel.round, parcel.stage, parcel.part) == min(numbers):
            change(parcel)
        return parcel

    return tamper


def _name(case: tuple[str, str, Change, str]) -> str:
    return f"{case[0]}-{case[2].__name__}"


def _assert_malformed(status: jobs_pb2.JobStatus, message: str) -> None:
    assert status.state == "failed"
    assert status.error.startswith("Malformed: ") or message.startswith("OutOfOrder: ")
    assert message in status.error
    assert not status.bad_input


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", TRAINING, ids=_name)
def test_false_content_of_a_training_is_told_and_not_kept(case: tuple[str, str, Change, str], tmp_path: Path) -> None:
    """The status is failed, Malformed and to the point, nobody's fault of input; resuming gives the oracle's model."""
    kind, sender, change, message = case

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        federation.tamper = _once(kind, sender, change)
        _assert_malformed(await federation.train(JOB), message)
        federation.tamper = None
        resumed = await federation.resume()
        assert (resumed.state, resumed.error) == ("finished", "")
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", PREDICTION, ids=_name)
def test_false_content_of_a_prediction_is_told_and_not_kept(case: tuple[str, str, Change, str], tmp_path: Path) -> None:
    """The same for predictions: no file is written, and resuming writes the right one."""
    kind, sender, change, message = case

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        federation.tamper = _once(kind, sender, change)
        _assert_malformed(await federation.predict(predict_request(model="job", job="p", block=4)), message)
        assert list((federation.state(LABEL_HOLDER) / "predictions").iterdir()) == []
        federation.tamper = None
        resumed = await federation.resume("p")
        assert_oracles_scores(resumed.predictions, ORACLE, HERE.newcomers, N)
        await federation.close()

    run(main())
