"""Audits of a screening: feature parties know no node but the root, a label holder reads cells of few records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.recorded import audit_file_of, federated, laid_out
from tests.attacks.test_victims_of_trees import _file, _victim
from tests.worlds import PARTIES, spec, world
from treetap.attacks.audit import audit
from treetap.party.defences.settings import Defences
from treetap.trees.params import BoostingParams

HOLDER, B, C = PARTIES
HERE = world(120, (1, 2, 2), seed=5)
PARAMS = BoostingParams(n_estimators=5, max_depth=2, max_bin=32)
RECORDED = {HOLDER: {"people": {"record_sums": True}}}
pytestmark = [pytest.mark.second_tier, pytest.mark.filterwarnings("ignore:a 512-bit")]


def test_feature_parties_know_no_node_but_the_root(tmp_path: Path) -> None:
    states = federated(tmp_path / "federation", HERE.tables, spec(PARAMS.screened(), screen=True))
    document = audit(audit_file_of(tmp_path, HERE, states, [B, C]), by_tree=False, progress=lambda *_: None)
    for party in document.parties.values():
        assert party.attacks["uni"].v_measure == pytest.approx(0.0)


def _placed(folder: Path, *, screened: bool, least: int = 0) -> float:
    """The share of both victims' cells that the label holder places in their bins; it claims nothing wrong."""
    job = spec(PARAMS.screened(), screen=True) if screened else spec(PARAMS)
    defences = {party: Defences(min_cell_records=least) for party in (B, C)} if least else {}
    states = federated(folder / "federation", HERE.tables, job, policies=RECORDED, defences=defences)
    laid_out(folder, states, HERE.tables)
    read = audit(_file(folder, _victim(B), _victim(C)), by_tree=False, progress=lambda *_: None).columns_read
    figures = [victim.together for victim in read.values() if victim.together is not None]
    assert len(figures) == 2
    assert not any(figure.wrong for figure in figures)
    return sum(figure.placed for figure in figures)


def test_a_label_holder_places_fewer_cells_than_by_a_training(tmp_path: Path) -> None:
    """And none where bins of few records are merged."""
    shares = [
        _placed(tmp_path / name, screened=screened, least=least)
        for name, screened, least in (("training", False, 0), ("screening", True, 0), ("merged", True, 10))
    ]
    assert shares[0] > shares[1] > shares[2] == 0
