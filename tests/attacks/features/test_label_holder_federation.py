"""Embeddings in the label holder's log of a real small federation: those of the same training in one graph."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.attacks.present import present
from tests.simulator import run
from tests.splitnn.jobs import PARAMS, spec
from tests.splitnn.networks import federation, tables_of
from tests.worlds import PARTIES, World, world
from treetap.attacks.view.predicted_embeddings import read_predicted
from treetap.attacks.view.view import read_label_holder, read_view
from treetap.errors import BadInput
from treetap.neural.centralised import CentralNetwork, central_network
from treetap.neural.inputs import InputScaler
from treetap.neural.sides import BOTTOM, embedded
from treetap.protocols.prediction import predict_request

pytest.importorskip("torch", reason="needs treetap[neural]")


pytestmark = pytest.mark.second_tier

HOLDER, B, C = PARTIES
JOB = replace(
    PARAMS, epochs=2, party_dropout={C: 0.3}, early_stopping_rounds=5, validation_share=0.2, wire_type="bfloat16"
)
RECORDS, FRESH = 60, 11


@pytest.fixture(scope="module")
def here() -> World:
    """Columns of three parties."""
    return world(RECORDS, (2, 2, 1), fresh=FRESH, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, here: World) -> Path:
    """The parties' folders after a training and a prediction, of which each has recorded what it received."""
    found = tmp_path_factory.mktemp("federation")

    async def main() -> None:
        running = federation(found, here, record="received")
        assert (await running.train(spec(JOB))).state == "finished"
        assert (await running.predict(predict_request(model="job", job="ask", block=4))).state == "finished"

    run(main())
    return found


class Recorded:
    """Embeddings that the label holder reads: (party, epoch) → record → embedding (width,)."""

    def __init__(self) -> None:
        self.read: defaultdict[tuple[str, int], dict[int, npt.NDArray[np.float32]]] = defaultdict(dict)

    def keep(self, party: str, epoch: int, rows: npt.NDArray[np.int64], values: torch.Tensor) -> None:
        """Keep the embeddings (n, width) of records."""
        for row, each in zip(rows.tolist(), values.numpy(), strict=True):
            assert row not in self.read[party, epoch]
            self.read[party, epoch][row] = each.copy()


@pytest.fixture(scope="module")
def oracle(folder: Path, here: World) -> tuple[Recorded, CentralNetwork, dict[str, InputScaler]]:
    """The embeddings of the same training in one graph, the network, and its scalers."""
    found = Recorded()
    network, scalers = central_network(tables_of(folder, here), here.y, here.classes, JOB, taken=found.keep)
    return found, network.train(), scalers


def test_embeddings_of_every_epoch(
    folder: Path, oracle: tuple[Recorded, CentralNetwork, dict[str, InputScaler]]
) -> None:
    """Bit by bit those of the oracle, with those of the validation records and without batches that are sat out."""
    view = read_label_holder(folder / HOLDER / "state", "job", epochs=range(JOB.epochs))
    assert (view.party, view.faults, view.records) == (HOLDER, (), RECORDS)
    found = present(view.embeddings)
    assert (found.parties, found.epochs) == ((B, C), [0, 1])
    for party in (B, C):
        for epoch in found.epochs:
            rows = found.of(party, epoch)
            expected = oracle[0].read[party, epoch]
            assert rows.records.tolist() == sorted(expected)
            assert (rows.values == np.stack([expected[row] for row in sorted(expected)])).all()
    assert len(found.of(B).records) == RECORDS > len(found.of(C).records)
    last = present(read_label_holder(folder / HOLDER / "state").embeddings)
    assert last.epochs == [1]
    assert (last.of(B).values == found.of(B, 1).values).all()


def test_embeddings_of_a_prediction(
    folder: Path, here: World, oracle: tuple[Recorded, CentralNetwork, dict[str, InputScaler]]
) -> None:
    """Those of the published model on the rows of the predicted table."""
    _, network, scalers = oracle
    training = read_label_holder(folder / HOLDER / "state", "job")
    found = read_predicted(folder / HOLDER / "state", "ask", training)
    assert found.faults == ()
    tables = dict(tables_of(folder, here, "predict"))
    own = tables[HOLDER]
    ids = [own.ids[place] for place in np.argsort(own.rows)[found.rows]]
    assert ids == own.ids
    assert len(ids) == FRESH
    for party in (B, C):
        rows, table = found.of(party), tables[party]
        places = np.array([table.ids.index(ids[record]) for record in rows.records.tolist()])
        inputs = present(scalers[party].apply(table))
        expected = embedded(network.models[party][BOTTOM], inputs, places, JOB.wire_type)
        assert rows.values.shape == (FRESH, 4)
        assert (rows.values == expected.numpy()).all()


def test_other_logs_of_the_federation(folder: Path) -> None:
    """Each kind of view names the log that it needs."""
    with pytest.raises(BadInput, match="columns of other parties are attacked by that of the label holder"):
        read_label_holder(folder / B / "state", party=B)
    with pytest.raises(BadInput, match=r"add \[\[victim\]\]"):
        read_view(folder / HOLDER / "state")
    with pytest.raises(BadInput, match="'ask' is of a prediction"):
        read_label_holder(folder / HOLDER / "state", "ask")
    training = read_label_holder(folder / HOLDER / "state")
    with pytest.raises(BadInput, match=r"is not the transcript of label-holder, .* but of a feature party"):
        read_predicted(folder / B / "state", "ask", training)
