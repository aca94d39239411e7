"""Attacks on the logs and models of real small federations, and an audit from a feature party's files alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attacks.documents import in_terminal
from tests.attacks.present import present

pytest.importorskip("torch", reason="needs treetap[neural]")

import torch

from tests.simulator import Federation, finished, run
from tests.splitnn.jobs import EMITS, PARAMS
from tests.worlds import PARTIES, World, spec, world
from treetap.attacks.audit import audit
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.document import Document
from treetap.attacks.files import AuditedParty, LabelTable
from treetap.attacks.limits import exceeded
from treetap.attacks.networks.evidence import load_own_network
from treetap.attacks.networks.schema import NetworkFigures
from treetap.attacks.report.page import html
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput, DataError
from treetap.models.arrays import read_arrays
from treetap.models.store import WEIGHTS, read_weights

HOLDER, PARTY = PARTIES[:2]
RECORDS = 160

pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.long,
    pytest.mark.xdist_group("audited-networks"),
]  # of one federation


@pytest.fixture(scope="module")
def here() -> World:
    """Columns of two parties, of which the second one's say much of the label."""
    return world(RECORDS, (1, 4), fresh=60, seed=4)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory, here: World) -> dict[str, Path]:
    """The parties' states after a training of a few epochs, by an amplified optimiser at the feature party."""
    params = replace(PARAMS, epochs=4, learning_rate=0.1, seed=7)
    folder = tmp_path_factory.mktemp("networks") / "federation"

    async def main() -> dict[str, Path]:
        federation = Federation(folder, here.tables, policies=EMITS, record="received")
        federation.configs[PARTY] = federation.configs[PARTY].model_copy(update={"optimizer": "amplified"})
        federation.start(PARTY)
        finished(await federation.train(spec(params, 2)))
        return federation.states

    return run(main())


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, states: dict[str, Path], here: World) -> Path:
    """A folder with nothing but the feature party's own files: its state, and its table."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(states[PARTY], folder / "state")
    pq.write_table(here.tables[PARTY][1]["train"], folder / "own.parquet")
    return folder


def audited(own: Path, here: World, *, known: int | None = None, **network: int) -> tuple[Document, NetworkFigures]:
    """The audit from a party's own files, and labels: of all records, or of the first `known` ones alone."""
    count = len(here.y) if known is None else known
    labels = pa.table({"id": [f"r{i:05d}" for i in range(count)], "y": here.y[:count]})
    pq.write_table(labels, own / "labels.parquet")
    table = LabelTable(path=own / "labels.parquet", column="y")
    party = AuditedParty(
        name=PARTY, transcript=own / "state", table=own / "own.parquet", model=own / "state" / "models" / "job"
    )
    given = {"label": table} if known is None else {"known": table}
    file = AuditFile.model_validate({**given, "party": [party], "network": {"known": 20, "draws": 2, **network}})
    document = audit(file, by_tree=False, progress=lambda *_: None)
    found = present(document.parties[PARTY].network)
    return document, found


@pytest.fixture(scope="module")
def scored(own: Path, here: World) -> tuple[Document, NetworkFigures]:
    """The audit by all labels."""
    return audited(own, here)


def test_gradients_of_a_federation_give_labels_away(scored: tuple[Document, NetworkFigures]) -> None:
    """Clusters agree with the classes, and few known labels give nearly all others."""
    _, found = scored
    assert (found.epochs, found.sat_out) == (4, 0)
    assert present(present(found.gradient_clusters).v_measure) > 0.6
    assert present(present(found.gradient_labels).inferred).accuracy > 0.9
    assert present(present(found.gradient_labels).own_model) > 0.6
    assert present(present(found.direction_scoring).auc) > 0.8


def test_completion_stands_beside_its_floors(scored: tuple[Document, NetworkFigures]) -> None:
    """Each head, frozen and tuned, with few and with all labels; the amplified optimiser is named."""
    completion = present(scored[1].completion)
    assert (completion.evaluated_on, completion.records, scored[1].amplified) == ("set aside", 32, True)
    ways = {(row.head, row.tuned, row.labels): row for row in completion.rows}
    assert len(ways) == 8
    for (_, _, labels), row in ways.items():
        assert row.known == (20 if labels == "n" else RECORDS - 32)
        assert row.completed.draws == (2 if labels == "n" else 1)
        assert (row.completed.deviation is None) == (labels == "all")
        assert row.scratch is not None
        assert row.scratch_all is not None
    assert ways["linear", False, "all"].completed.accuracy > completion.majority
    assert len({row.scratch_all.accuracy for row in completion.rows if row.head == "mlp" and row.scratch_all}) == 1


def test_the_report_says_what_is_covered(scored: tuple[Document, NetworkFigures]) -> None:
    """Page and terminal have the figures, the reason for what an audit of files lacks, and the sentence on DIMIP."""
    document, found = scored
    page = html(document.plain())
    for text in (page, in_terminal(document)):
        assert "DIMIP covers the extractor, and not the log" in text
        assert "an audit of files alone has not trained them" in text
        assert f"{present(found.gradient_clusters).v_measure:.3f}" in text
        assert f"{present(present(found.gradient_labels).inferred).accuracy:.3f}" in text
        assert "amplified" in text
    assert "active completion" in page
    assert page.count('class="dumbbell"') == 8
    for section in ("glance", "bounds", "trees"):
        assert f'id="{section}"' not in page
    verdict = document.verdicts[0]
    assert (verdict.party, verdict.learned, verdict.of) == (PARTY, "labels", HOLDER)
    assert present(verdict.after) >= max(
        present(present(found.gradient_labels).majority), present(found.gradient_clusters).accuracy or 0.0
    )
    assert f'<span class="word">{verdict.word}</span> <bdi>{PARTY}</bdi>' in page


def test_limits(scored: tuple[Document, NetworkFigures]) -> None:
    """`any` and `accuracy` are on these attacks too; a limit on trees is refused."""
    document, _ = scored
    assert [line.split(" reaches ")[0] for line in exceeded(document, {"any": 0.5})] == [f"{PARTY}: gradient-clusters"]
    assert len(exceeded(document, {"accuracy": 0.5})) == 2
    assert exceeded(document, {"gradient-labels": 1.0}) == []
    with pytest.raises(BadInput, match="has no trees"):
        exceeded(document, {"information": 0.5})


@pytest.mark.campaign
def test_an_audit_from_a_partys_files_alone(own: Path, here: World, states: dict[str, Path]) -> None:
    """Transcript, model, table and the labels that it knows are enough, when the others' folders are gone."""
    shutil.rmtree(states[HOLDER].parent)
    document, found = audited(own, here, known=40, draws=1)
    assert (document.labelled, document.gain is not None) == (False, True)
    assert present(found.gradient_labels).known == 20
    assert present(present(found.gradient_labels).inferred).accuracy > 0.8
    assert present(found.completion).records == 8
    assert {row.labels for row in present(found.completion).rows} == {"n"}
    assert found.reasons["completion, all labels"] == "not all labels of the training are at hand"
    html(document.plain())


def test_a_large_bottom_is_not_fitted_again(own: Path, here: World) -> None:
    """Heads alone are, and the document says so."""
    _, found = audited(own, here, most_weights=10, draws=1)
    assert all(not row.tuned and row.scratch is None for row in present(found.completion).rows)
    assert "weights, more than most_weights" in found.reasons["completion, tuned"]


def test_files_of_another_party_are_refused(own: Path, here: World, tmp_path: Path) -> None:
    """A model of another job or party, or a table that lacks rows, is named."""
    view = read_view(own / "state")
    model = shutil.copytree(own / "state" / "models" / "job", tmp_path / "model")
    pq.write_table(here.tables[PARTY][1]["train"].slice(0, 30), tmp_path / "short.parquet")
    with pytest.raises(DataError, match="lacks 130 of the ids that took part in job 'job'"):
        load_own_network(model, tmp_path / "short.parquet", view)
    with pytest.raises(DataError, match="is not the model that feature-b trained in job 'other'"):
        load_own_network(model, own / "own.parquet", replace(view, job="other"))


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": None},
        {"inputs": {}},
        {"inputs": {"columns": ["c"], "mean": ["x"], "deviation": [1], "indicated": [], "images": {}}},
        {"inputs": {"columns": ["c"], "mean": [], "deviation": [1], "indicated": [], "images": {}}},
        {"inputs": {"columns": ["c"], "mean": [0], "deviation": [1], "indicated": [5], "images": {}}},
        {"tensors": {"c": {"shape": 3}}},
        {"categories": {"c": []}},
        {"source_columns": 7},
        {"missing": "often"},
    ],
    ids=str,
)
def test_a_manifest_that_is_no_networks_is_named(
    change: dict[str, Any], own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum says nothing about who wrote it: a field of another form is one error, with the file's name."""
    model = own / "state" / "models" / "job"
    manifest, weights = read_weights(model)
    monkeypatch.setattr("treetap.attacks.networks.evidence.read_weights", lambda _: ({**manifest, **change}, weights))
    with pytest.raises(DataError, match=r"models/job/manifest\.json: is not that of a network"):
        load_own_network(model, own / "own.parquet", read_view(own / "state"))


def test_the_bottom_is_the_published_one(own: Path) -> None:
    """With its weights, and an untrained one has others in the same shapes."""
    network = load_own_network(own / "state" / "models" / "job", own / "own.parquet", read_view(own / "state"))
    published = read_arrays(own / "state" / "models" / "job" / WEIGHTS)
    fresh = network.untrained(0).state_dict()
    for name, tensor in network.bottom.state_dict().items():
        assert np.array_equal(tensor.numpy(), published[f"bottom/{name}"])
        assert fresh[name].shape == tensor.shape
        assert not torch.equal(fresh[name], tensor)
    assert len(network.inputs) == RECORDS
