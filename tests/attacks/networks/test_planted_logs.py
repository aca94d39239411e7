"""Attacks on logs whose gradients are planted: perfect, none, constant, of two classes, with batches sat out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")


from tests.attacks.networks.planted import (
    PARTY,
    WIDTH,
    Gradients,
    Ints,
    Planted,
    at_random,
    by_class,
    constant,
    planted,
)
from tests.attacks.present import present
from tests.commands.command import refused, treetap
from treetap.attacks.audit import audit
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.document import Document, parse
from treetap.attacks.files import AuditedParty, LabelTable
from treetap.attacks.networks.schema import NetworkFigures
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.page import html
from treetap.attacks.run import Task, run, show
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput, Malformed
from treetap.neural.schedule import Schedule
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.second_tier


def audited(log: Planted, **changes: Any) -> Document:
    """The audit of a log by all labels."""
    label = LabelTable(path=log.truth, column="y")
    party = AuditedParty(name=PARTY, transcript=log.transcript, table=log.table)
    file = AuditFile(**{"label": label, "party": [party], "network": {"known": 30, "draws": 2}, **changes})
    return audit(file, by_tree=False, progress=lambda *_: None)


def figures(log: Planted, **changes: Any) -> NetworkFigures:
    """The attacks' results on a log."""
    return present(audited(log, **changes).parties[PARTY].network)


@pytest.mark.parametrize("wire_type", ["float32", "bfloat16"])
def test_a_direction_by_class_gives_all_labels_away(tmp_path: Path, wire_type: str) -> None:
    """Clusters are the classes, in messages of any number and both types of numbers; few labels give all others."""
    found = figures(planted(tmp_path, by_class, wire_type=wire_type, parts=3))
    clusters, labels = present(found.gradient_clusters), present(found.gradient_labels)
    assert (clusters.outcome, clusters.accuracy, clusters.clusters) == ("clusters", 1.0, 3)
    assert clusters.v_measure == pytest.approx(1.0)
    assert [row.epoch for row in clusters.by_epoch] == [0, 1, None]
    assert [row.records for row in clusters.by_epoch] == [240, 240, 240]
    assert (present(labels.inferred).accuracy, present(labels.inferred).draws, labels.kept_out) == (1.0, 2, 1.0)
    assert present(labels.majority) < 0.5
    assert found.reasons["completion"] == "needs the party's published model and its table"


def test_random_gradients_say_nothing(tmp_path: Path) -> None:
    """V-measure near 0; labels are named at chance, and the attacker's own judgement says so."""
    found = figures(planted(tmp_path, at_random, records=400))
    clusters, labels = present(found.gradient_clusters), found.gradient_labels
    assert present(clusters.v_measure) < 0.05
    assert labels is not None
    assert abs(present(labels.inferred).accuracy - 1 / 3) < 0.12
    assert labels.kept_out < 0.75


def test_constant_gradients_have_a_name(tmp_path: Path) -> None:
    """One direction is one cluster, and no attack fails on it."""
    found = figures(planted(tmp_path, constant))
    assert found.gradient_clusters is not None
    assert (found.gradient_clusters.outcome, found.gradient_clusters.clusters) == ("one direction", 1)
    assert found.gradient_clusters.v_measure == 0.0
    assert found.gradient_labels is not None


def test_a_batch_that_is_sat_out_has_no_row(tmp_path: Path) -> None:
    """Rows belong to the records of the batches that the party took part in, by the job's seed alone."""
    log = planted(tmp_path, by_class, party_dropout={PARTY: 0.4})
    network = present(read_view(log.transcript).network)
    schedule = Schedule.of(log.params, 240)
    for epoch in range(2):
        rows = network.rows(epoch)
        taken = [k for k in range(schedule.batches) if schedule.takes_part(epoch, k, PARTY)]
        assert 0 < len(taken) < schedule.batches
        assert rows.records.tolist() == sorted(np.concatenate([schedule.epoch(epoch)[k] for k in taken]).tolist())
        assert (rows.values.argmax(axis=1) == log.labels[rows.records]).all()
    assert read_view(log.transcript).faults == ()
    found = figures(log)
    assert found.sat_out > 0
    assert present(found.gradient_clusters).v_measure == pytest.approx(1.0)


def _long_by_class(labels: Ints) -> Gradients:
    """Two classes that point opposite ways, the second one longer."""
    side = np.array([-1.0, 3.0])

    def gradients(epoch: int, records: Ints) -> np.ndarray[Any, np.dtype[np.float64]]:
        noise = np.random.default_rng([epoch, int(records[0])]).normal(size=(len(records), WIDTH))
        return side[labels[records], None] * np.ones(WIDTH) + 0.05 * noise

    return gradients


def test_length_and_direction_of_two_classes(tmp_path: Path) -> None:
    """Both scores part the classes where they were planted, and are at one half where nothing was."""
    found = figures(planted(tmp_path / "planted", _long_by_class, classes=2, objective="binary:logistic"))
    assert (present(found.norm_scoring).auc, present(found.direction_scoring).auc) == (1.0, 1.0)
    assert [row.epoch for row in present(found.norm_scoring).by_epoch] == [0, 1]
    nothing = figures(planted(tmp_path / "random", at_random, records=400, classes=2, objective="binary:logistic"))
    for scores in map(present, (nothing.norm_scoring, nothing.direction_scoring)):
        assert abs(present(scores.auc) - 0.5) < 0.15
    three = figures(planted(tmp_path / "three", by_class))
    assert three.norm_scoring is None
    assert three.reasons["direction-scoring"] == "it is for two classes, and there are 3"


def test_the_number_of_clusters(tmp_path: Path) -> None:
    """Without labels the silhouette finds the planted number; the file's `classes` goes before the labels'."""
    log = planted(tmp_path, lambda labels: by_class(labels, noise=0.05), classes=4)
    found = present(figures(log, label=None).gradient_clusters)
    assert (found.clusters, found.chosen_by, found.v_measure) == (4, "silhouette", None)
    found = present(figures(log, classes=2).gradient_clusters)
    assert (found.clusters, found.chosen_by) == (2, "classes")


def test_bounds_are_kept_and_said(tmp_path: Path) -> None:
    """No more records and epochs than the settings name; what was left out is counted."""
    log = planted(tmp_path, by_class, epochs=5)
    found = figures(log, network={"known": 12, "draws": 1, "most_records": 100, "most_epochs": 2})
    assert (found.epochs, found.attacked) == (5, 2)
    assert found.gradient_clusters is not None
    assert [row.epoch for row in found.gradient_clusters.by_epoch] == [0, 4, None]
    assert found.gradient_clusters.records + found.gradient_clusters.left_out == 240
    assert 100 <= found.gradient_clusters.records <= 112
    assert found.gradient_clusters.v_measure == pytest.approx(1.0)


def _wider(message: exchange_pb2.PeerMessage) -> None:
    message.protocol.splitnn.embedding_gradients.width = WIDTH + 1


def _infinite(message: exchange_pb2.PeerMessage) -> None:
    body = message.protocol.splitnn.embedding_gradients
    body.values = np.full(body.rows * WIDTH, np.inf, dtype="<f4").tobytes()


@pytest.mark.parametrize(
    ("tampered", "said"),
    [
        (_wider, "7 numbers of 'float32' a record, where the job has 6"),
        (_infinite, "a number that is not finite"),
    ],
)
def test_gradients_that_do_not_fit(
    tmp_path: Path, tampered: Callable[[exchange_pb2.PeerMessage], None], said: str
) -> None:
    """Each is named with its epoch and batch."""
    log = planted(tmp_path, by_class, tampered=tampered)
    with pytest.raises(Malformed, match="epoch 0, batch 0") as failure:
        audited(log)
    assert said in str(failure.value)


def test_the_last_attempt_at_an_epoch_counts(tmp_path: Path) -> None:
    """As after a resume: gradients of an epoch that was begun again are those of its last attempt."""
    log = planted(tmp_path, at_random, again=constant(np.zeros(0, dtype=np.int64)))
    view = read_view(log.transcript)
    assert (view.attempt, view.faults) == (2, ())
    assert len(np.unique(present(view.network).rows(0).values, axis=0)) == 240
    assert len(np.unique(present(view.network).rows(1).values, axis=0)) == 1


def test_numbers_for_labels_are_not_attacked(tmp_path: Path) -> None:
    """Every attack is left out with the reason, and the page says it."""
    document = audited(planted(tmp_path, by_class, objective="reg:squarederror"))
    found = present(document.parties[PARTY].network)
    assert set(found.reasons) == set(rows(Needs.GRADIENTS))
    assert set(found.reasons.values()) == {"the label is a number, and these attacks look for classes"}
    assert "the label is a number, and these attacks look for classes" in html(document.plain())


def test_a_page_without_labels(tmp_path: Path) -> None:
    """Clusters are counted and not scored; attacks that need labels are left out with the reason."""
    document = audited(planted(tmp_path, by_class), label=None, classes=3)
    page = html(document.plain())
    assert "attacks that need known labels are left out" in page
    assert "no label of a record with a gradient is known" in page
    assert [it.word for it in document.verdicts if it.learned == "labels"] == ["not measured"]
    assert "no labels were given to compare with" in page


def test_a_repetition_gives_the_same_figures(tmp_path: Path) -> None:
    """One seed, one result; and the document survives JSON."""
    log = planted(tmp_path, lambda labels: by_class(labels, noise=0.6))
    first, again = (audited(log) for _ in range(2))
    assert first.parties[PARTY].network == again.parties[PARTY].network
    assert parse(json.loads(json.dumps(first.plain()))) == first
    assert "gradient-clusters" in first.plain()["parties"][PARTY]["network"]


def test_one_attack_by_the_command(tmp_path: Path) -> None:
    """It prints one attack's figures; attacks on leaves are refused."""
    log = planted(tmp_path, by_class)
    given = [log.transcript, "--columns", log.table, "--labels", log.truth, "--label", "y", "--json"]
    found = json.loads(treetap("attack", "gradient-clusters", *given).out)
    assert (found["attack"], found["party"], found["chosen_by"]) == ("gradient-clusters", PARTY, "labels")
    assert found["v_measure"] == pytest.approx(1.0)
    assert "which has no leaves: attacks on it are cl, gradient-clusters" in refused(treetap("attack", "uni", *given))


def test_one_attack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By labels that are known alone, or drawn from all; an attack that cannot run says what it needs."""
    log = planted(tmp_path, by_class)
    labels = LabelTable(path=log.truth, column="y")
    party = AuditedParty.model_construct(name=None, transcript=log.transcript, table=log.table)
    plain = Task("gradient-labels", party, AuditFile.model_construct(label=labels), {"known": 25})
    figures = run(plain).report
    assert (figures["known"], figures["inferred"]["accuracy"]) == (25, 1.0)
    done = run(replace(plain, file=AuditFile.model_construct(known=labels)))
    assert (done.report["known"], done.report["inferred"]["accuracy"]) == (25, 1.0)
    show(done)
    show(run(replace(plain, name="gradient-clusters")))
    shown = capsys.readouterr().out
    assert "kept out" in shown
    assert "by epoch" in shown
    with pytest.raises(BadInput, match="needs the party's published model and its table"):
        run(replace(plain, name="completion"))
    with pytest.raises(BadInput, match="it is for two classes, and there are 3"):
        run(replace(plain, name="norm-scoring"))
    with pytest.raises(BadInput, match="settings of attacks on networks: unknown: alpha"):
        run(replace(plain, settings={"alpha": 1.0}))
    with pytest.raises(BadInput, match="attack disclosed has no settings; leave known out"):
        run(replace(plain, name="disclosed"))
    with pytest.raises(BadInput, match="not by pivodl: attacks on it are cl, gradient-clusters"):
        run(replace(plain, name="disclosed", settings={}))
    with pytest.raises(BadInput, match="attack decode is on columns of a"):
        run(replace(plain, name="decode", settings={}))


def test_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network's transcript is read, and its audit says what to install."""
    log = planted(tmp_path, by_class)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert read_view(log.transcript).records == 240
    with pytest.raises(BadInput, match=r"protocol splitnn needs torch: \S*pip install -e '\S*\[neural\]'"):
        audited(log)
