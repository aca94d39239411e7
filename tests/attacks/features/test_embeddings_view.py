"""Views of embeddings, of trainings and of predictions.

- Embeddings in a label holder's log, by record: batches sat out, repeated epochs, memory, and messages that misfit.
- Embeddings in a label holder's log of a prediction, by row of its table: blocks, attempts, and what is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.attacks.features.embedding_logs import (
    HOLDER,
    PARAMS,
    RECORDS,
    Attempt,
    B,
    C,
    EmbeddingLog,
    Ints,
    embedded,
    planted_log,
    predicted_log,
)
from tests.attacks.network_logs import numbers, training_log
from tests.attacks.networks.planted import by_class, planted
from tests.attacks.present import present
from treetap.attacks.view import kept_messages
from treetap.attacks.view.kept_messages import EMBEDDINGS
from treetap.attacks.view.predicted_embeddings import PredictedEmbeddings, read_predicted
from treetap.attacks.view.received_rows import EmbeddingsView
from treetap.attacks.view.view import View, read_label_holder, read_view
from treetap.errors import BadInput, Malformed
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.second_tier

#: Rows of the label holder's table that the records of both other parties are, in the common order.
ROWS = np.array([7, 3, 9, 0, 4, 12, 5, 1])


def read(log: EmbeddingLog, **options: Any) -> EmbeddingsView:
    """The embeddings of a log."""
    return present(read_label_holder(log.transcript, **options).embeddings)


@pytest.mark.parametrize("wire_type", ["float32", "bfloat16"])
def test_each_row_is_its_records(tmp_path: Path, wire_type: str) -> None:
    """In messages of any number and both types of numbers, of each feature party by its own width."""
    log = planted_log(tmp_path, parts=3, wire_type=wire_type)
    view = read_label_holder(log.transcript)
    assert (view.party, view.label_holder, view.records, view.faults) == (HOLDER, HOLDER, RECORDS, ())
    assert (view.network, view.trees, view.finished) == (None, (), True)
    assert present(view.rows).tolist() == log.rows.tolist()
    found = present(view.embeddings)
    assert (found.holder, found.parties, found.epochs, found.records) == (HOLDER, (B, C), [2], RECORDS)
    for party, width in ((B, 3), (C, 4)):
        rows = found.of(party)
        assert (rows.epoch, rows.values.dtype, rows.values.shape) == (
            2,
            np.float32,
            (RECORDS, width),
        )
        assert rows.records.tolist() == list(range(RECORDS))
        assert (rows.values == embedded(party, 2, rows.records)).all()


def test_the_epochs_that_are_asked_for(tmp_path: Path) -> None:
    """These are held and no others; of another the error names those that are."""
    found = read(planted_log(tmp_path), epochs=[0, 1])
    assert found.epochs == [0, 1]
    for epoch in (0, 1):
        rows = found.of(C, epoch)
        assert (rows.values == embedded(C, epoch, rows.records)).all()
    assert found.of(C).epoch == 1
    with pytest.raises(BadInput, match=r"no embeddings of epoch 3 are held, only of epochs 1, 2 \(from 1\)"):
        found.of(C, 2)
    with pytest.raises(BadInput, match="feature-d: is no feature party of the job; they are feature-b, feature-c"):
        found.of("feature-d")


def test_a_batch_that_is_sat_out_has_no_row(tmp_path: Path) -> None:
    """By the job's seed alone; its records are left out, and nothing is missing."""
    log = planted_log(tmp_path, party_dropout={B: 0.4})
    view = read_label_holder(log.transcript)
    assert view.faults == ()
    rows, schedule = present(view.embeddings).of(B), log.schedule
    taken = [schedule.epoch(2)[batch] for batch in range(schedule.batches) if schedule.takes_part(2, batch, B)]
    assert 0 < len(taken) < schedule.batches
    assert rows.records.tolist() == sorted(np.concatenate(taken).tolist())
    assert (rows.values == embedded(B, 2, rows.records)).all()
    assert len(present(view.embeddings).of(C).records) == RECORDS


def test_validation_records_have_rows_too(tmp_path: Path) -> None:
    """Early stopping sets records aside, whose embeddings come as one series; parties send it whatever they sit out."""
    log = planted_log(
        tmp_path, parts=2, early_stopping_rounds=2, validation_share=0.25, party_dropout={B: 0.4}, batch_size=10
    )
    view = read_label_holder(log.transcript)
    assert view.faults == ()
    rows, aside = present(view.embeddings).of(B), log.schedule.validation
    assert len(aside) == 25
    assert set(aside) < set(rows.records.tolist())
    assert len(rows.records) < RECORDS
    assert (rows.values == embedded(B, 2, rows.records)).all()
    assert present(view.embeddings).of(C).records.tolist() == list(range(RECORDS))


def test_the_last_whole_attempt_at_a_batch_counts(tmp_path: Path) -> None:
    """A resumed job does an epoch again; an epoch that has only begun is not the last whole one."""
    log = planted_log(tmp_path, attempts=((0, 99), (1, 2), (1, 99), (2, 3)), finished=False)
    view = read_label_holder(log.transcript)
    assert (present(view.embeddings).epochs, view.attempt) == ([1], 2)
    rows = present(view.embeddings).of(B)
    assert (rows.values == embedded(B, 1, rows.records, shift=0.5)).all()
    assert any("epoch 2: the embeddings of 4 batches are not in the transcript" in fault for fault in view.faults)
    assert any("(after embeddings of 3 epochs)" in fault for fault in view.faults)
    begun = read(log, epochs=[2])
    assert len(begun.of(B, 2).records) == 48
    with pytest.raises(BadInput, match="has no epoch with all its embeddings; choose one of epochs 3"):
        begun.of(B)


def test_memory_holds_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older epoch is dropped as soon as a newer one is whole: memory for two is enough, for all is not needed."""
    log = planted_log(tmp_path, epochs=12)
    of_epoch = RECORDS * (3 + 4) * 4
    monkeypatch.setattr(kept_messages, "half_of_memory", lambda: 5 * of_epoch)
    assert read(log).epochs == [11]
    assert read(log, epochs=[4, 5]).epochs == [4, 5]
    with pytest.raises(BadInput, match="half of this machine's memory"):
        read(log, epochs=range(12))


def test_an_epoch_that_was_not_stored(tmp_path: Path) -> None:
    """The last whole one is found without the coordinator's word too, and it alone is held."""
    assert read(planted_log(tmp_path, stored=False)).epochs == [2]


def test_lost_batches_are_reported(tmp_path: Path) -> None:
    """By party and epoch; the last whole epoch is each party's own."""

    def endless(party: str, message: exchange_pb2.PeerMessage) -> None:
        message.last = message.last and not (party == C and message.round == 2 and message.stage == 1)

    log = planted_log(tmp_path, tampered=endless, stored=False)
    view = read_label_holder(log.transcript)
    assert view.faults == (
        f"{log.transcript}: feature-c: epoch 2: the embeddings of 1 batches are not in the transcript",
    )
    assert (present(view.embeddings).of(B).epoch, present(view.embeddings).of(C).epoch) == (2, 1)


def _wider(body: Any) -> None:
    body.width += 1


def _other_type(body: Any) -> None:
    body.wire_type = "bfloat16"


def _shorter(body: Any) -> None:
    body.values = body.values[:-4]


def _fewer(body: Any) -> None:
    body.rows -= 1
    body.values = body.values[: body.rows * 3 * 4]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_wider, "4 numbers of 'float32' a record, where the job has 3"),
        (_other_type, "3 numbers of 'bfloat16' a record, where the job has 3 of 'float32'"),
        (_shorter, "bytes for"),
        (_fewer, "15 rows for 16 records"),
    ],
)
def test_embeddings_that_do_not_fit(tmp_path: Path, change: Callable[[Any], None], said: str) -> None:
    """Each is named with its sender, epoch and batch."""

    def tampered(party: str, message: exchange_pb2.PeerMessage) -> None:
        if (party, message.round, message.stage) == (B, 2, 1):
            change(message.protocol.splitnn.embeddings)

    found = read(planted_log(tmp_path, tampered=tampered))
    assert len(found.of(C).records) == RECORDS
    with pytest.raises(Malformed, match="feature-b: embeddings of epoch 2, batch 1") as failure:
        found.of(B)
    assert said in str(failure.value)


def test_a_batch_that_cannot_be(tmp_path: Path) -> None:
    """One that its sender sat out, or that comes after the last, is refused; so is an epoch after the last."""

    def later(party: str, message: exchange_pb2.PeerMessage) -> None:
        message.stage += 100 * (party == B and message.round == 2 and message.stage == 5)

    with pytest.raises(Malformed, match="batch 105: feature-b sat out this batch, or there is none"):
        read(planted_log(tmp_path / "batch", tampered=later)).of(B, 2)

    def beyond(party: str, message: exchange_pb2.PeerMessage) -> None:
        message.round += 1

    with pytest.raises(Malformed, match="embeddings of epoch 3: the job has 3"):
        read(planted_log(tmp_path / "epoch", tampered=beyond))


def test_a_sender_that_is_no_feature_party(tmp_path: Path) -> None:
    """The label holder's log names it."""
    log = planted_log(tmp_path / "one")
    with pytest.raises(Malformed, match="feature-d, which is not a feature party, has sent embeddings"):
        read(planted_log(tmp_path / "other", stranger="feature-d"))
    assert read(log).parties == (B, C)


def test_logs_without_embeddings(tmp_path: Path) -> None:
    """A log of nothing but the own table says what is missing, and a feature party's whose it is."""
    log = planted_log(tmp_path, attempts=((0, 0),), finished=False)
    with pytest.raises(BadInput, match="holds no embeddings of the feature parties: training has not begun"):
        read(log)
    (tmp_path / "gradients").mkdir()
    gradients = planted(tmp_path / "gradients", by_class)
    with pytest.raises(BadInput, match=f"is the transcript of {B}; columns of other parties are attacked by that of"):
        read_label_holder(gradients.transcript)
    with pytest.raises(BadInput, match=f"is not the transcript of {C}, but of {HOLDER}"):
        read(planted_log(tmp_path / "named"), party=C)


def test_a_feature_partys_view_refuses_the_label_holders_log(tmp_path: Path) -> None:
    """Its error names the fix."""
    with pytest.raises(BadInput, match=r"label-holder, the label holder, .*other parties' columns: add \[\[victim\]\]"):
        read_view(planted_log(tmp_path).transcript)


def test_records_too_few_for_the_job(tmp_path: Path) -> None:
    """Read as what it is: the job cannot have these records."""
    params = replace(PARAMS, batch_size=200)
    with training_log(tmp_path, params, np.arange(RECORDS), 3) as log:
        log.received(B, *numbers(EMBEDDINGS, np.zeros((RECORDS, 3)), params.wire_type, 0, 0))
    with pytest.raises(Malformed, match="100 records: batch_size = 200"):
        read_label_holder(tmp_path)


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
    alone = replace(present(training.embeddings), received={B: present(training.embeddings).received[B]})
    with pytest.raises(Malformed, match="feature-c, which is not a feature party, has sent embeddings"):
        read_predicted(log, "ask", replace(training, embeddings=alone))
