"""Embeddings in a label holder's log of a prediction, by row of its table: blocks, attempts, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.attacks.features.embedding_logs import (
    Attempt,
    B,
    C,
    Ints,
    embedded,
    planted_log,
    predicted_log,
)
from treetap.attacks.view.predicted_embeddings import PredictedEmbeddings, read_predicted
from treetap.attacks.view.view import View, read_label_holder
from treetap.errors import BadInput, Malformed
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.second_tier

#: Rows of the label holder's table that the records of both other parties are, in the common order.
ROWS = np.array([7, 3, 9, 0, 4, 12, 5, 1])


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> View:
    """The label holder's view of the training."""
    return read_label_holder(planted_log(tmp_path_factory.mktemp("training"), epochs=1).transcript)


def blocks(*sizes: int, first: int = 0) -> list[Ints]:
    """Places in blocks of these sizes, one after the other."""
    ends = first + np.cumsum(sizes)
    return [np.arange(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)]


def known(found: PredictedEmbeddings, party: str) -> list[int]:
    """Rows of the own table of which a party's embeddings are known, after a check that each is its record's."""
    rows = found.of(party)
    assert rows.epoch is None
    assert (np.diff(rows.records) > 0).all()
    own = found.rows[rows.records]
    assert (rows.values == embedded(party, 0, own)).all()
    return own.tolist()


def test_a_whole_table_in_blocks(tmp_path: Path, training: View) -> None:
    """Blocks hold its records in their common order, and a log of received messages is enough."""
    found = read_predicted(predicted_log(tmp_path, [Attempt(ROWS, blocks(3, 3, 2))]), "ask", training)
    assert (found.job, found.parties, found.faults) == ("ask", (B, C), ())
    assert found.rows.tolist() == ROWS.tolist()
    assert known(found, B) == known(found, C) == ROWS.tolist()


def test_an_attempt_after_an_interrupted_one(tmp_path: Path, training: View) -> None:
    """It ends with the last record: so it says whether the block at which the first one broke off was scored."""
    for scored in (3, 6):
        attempts = [Attempt(ROWS, blocks(3, 3), written=False), Attempt(ROWS, blocks(8 - scored, first=scored))]
        found = read_predicted(predicted_log(tmp_path / str(scored), attempts), "ask", training)
        assert found.faults == ()
        assert sorted(known(found, B)) == sorted(ROWS)


def test_a_party_that_was_away(tmp_path: Path, training: View) -> None:
    """A later attempt without it has other common records; they follow from those that are scored."""
    more = np.array([7, 3, 2, 9, 0, 4, 12, 8, 5, 1])  # C has neither 2 nor 8
    left = np.flatnonzero(~np.isin(more, ROWS[:3]))
    attempts = [Attempt(ROWS, blocks(3), written=False), Attempt(more, [left[:3], left[3:]], away=(C,))]
    found = read_predicted(predicted_log(tmp_path, attempts), "ask", training)
    assert sorted(known(found, B)) == sorted(more)
    assert known(found, C) == [7, 3, 9]
    nothing = read_predicted(predicted_log(tmp_path / "b", [Attempt(more, blocks(10), away=(C,))]), "ask", training)
    with pytest.raises(BadInput, match="holds no embeddings of feature-c, as where it was away"):
        nothing.of(C)


def test_embeddings_whose_records_are_not_known(tmp_path: Path, training: View) -> None:
    """A second interrupted attempt may have begun at either of two records: its embeddings are left out and counted."""
    attempts = [
        Attempt(ROWS, blocks(2, 2), written=False),
        Attempt(ROWS, blocks(2, first=2), written=False),
        Attempt(ROWS, blocks(2, 2, first=4)),
    ]
    found = read_predicted(predicted_log(tmp_path, attempts), "ask", training)
    assert known(found, B) == ROWS.tolist()
    assert len(found.faults) == 1
    assert "2 embeddings of interrupted attempts are left out" in found.faults[0]


def test_one_record_that_is_scored_again(tmp_path: Path, training: View) -> None:
    """An attempt scores the first block again after all have their score: it is not taken for the last one."""
    attempts = [Attempt(ROWS, blocks(4, 4), written=False), Attempt(ROWS, blocks(1))]
    found = read_predicted(predicted_log(tmp_path, attempts), "ask", training)
    assert known(found, C) == ROWS.tolist()


@pytest.mark.parametrize(("opening", "said"), [({"serve": True}, "clients"), ({"records_file": "x.csv"}, "x.csv")])
def test_records_that_others_choose(tmp_path: Path, training: View, opening: dict[str, Any], said: str) -> None:
    """A log of received messages does not have them; one of both directions does, and the last block counts."""
    attempts = [Attempt(ROWS, [np.array([1, 5]), np.array([0, 1, 6])], written=False)]
    with pytest.raises(BadInput, match=rf'those that {said}.*policy says record = "both"'):
        read_predicted(predicted_log(tmp_path / "received", attempts, **opening), "ask", training)
    found = read_predicted(predicted_log(tmp_path / "both", attempts, named=True, **opening), "ask", training)
    assert known(found, B) == [3, 12, 7, 5]


def test_logs_of_something_else(tmp_path: Path, training: View) -> None:
    """Another model or submission, another recipient, a training, and a prediction that scored nothing are named."""
    whole = [Attempt(ROWS, blocks(8))]
    for number, (opening, said) in enumerate(
        [
            ({"model": "other"}, "predicts with model 'other', not with the one that job 'job' trained"),
            ({"submission": "second"}, "predicts with another training of that name"),
            ({"recipient": "feature-d"}, "is of a prediction for feature-d, not for label-holder"),
        ]
    ):
        with pytest.raises(BadInput, match=said):
            read_predicted(predicted_log(tmp_path / str(number), whole, **opening), "ask", training)
    with pytest.raises(BadInput, match="is of no prediction"):
        read_predicted(training.path, "job", training)
    with pytest.raises(BadInput, match="holds no embeddings of the feature parties: no block was scored"):
        read_predicted(predicted_log(tmp_path / "none", [Attempt(ROWS, [])]), "ask", training)


def test_messages_that_do_not_fit(tmp_path: Path, training: View) -> None:
    """Rows that differ between parties, a missing block, a foreign sender, and a width that is not the model's."""

    def fewer(party: str, message: exchange_pb2.PeerMessage) -> None:
        body = message.protocol.splitnn.embeddings
        if party == C:
            body.rows, body.values = body.rows - 1, body.values[: (body.rows - 1) * 4 * 4]

    def later(_party: str, message: exchange_pb2.PeerMessage) -> None:
        message.round += 1

    def wider(_party: str, message: exchange_pb2.PeerMessage) -> None:
        message.protocol.splitnn.embeddings.width += 1

    for tampered, said in (
        (fewer, "attempt 1, block 0: parties sent 8 and 6 rows"),
        (later, "attempt 1: embeddings of a block before the last one are missing"),
    ):
        log = predicted_log(tmp_path / said[-8:], [Attempt(ROWS, blocks(8))], tampered=tampered)
        with pytest.raises(Malformed, match=said):
            read_predicted(log, "ask", training)
    found = read_predicted(predicted_log(tmp_path / "w", [Attempt(ROWS, blocks(8))], tampered=wider), "ask", training)
    with pytest.raises(Malformed, match="feature-b: embeddings of block 0, attempt 1: 4 numbers of 'float32' a record"):
        found.of(B)
    log = predicted_log(tmp_path / "foreign", [Attempt(ROWS, blocks(8))])
    assert training.embeddings is not None
    alone = replace(training.embeddings, received={B: training.embeddings.received[B]})
    with pytest.raises(Malformed, match="feature-c, which is not a feature party, has sent embeddings"):
        read_predicted(log, "ask", replace(training, embeddings=alone))
