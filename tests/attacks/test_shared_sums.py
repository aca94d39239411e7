"""Audits of jobs whose sums are shared: owners and left sets, and no sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks import test_withheld
from tests.attacks.present import present
from tests.attacks.recorded import laid_out
from tests.attacks.sums.test_opened_sums import ON_LATTICE, trained
from tests.simulator import DEALER
from tests.worlds import PARTIES
from treetap.attacks.sums.schema import NOTHING_OFFERED
from treetap.attacks.view.view import read_label_holder, read_view

HOLDER, HERE = test_withheld.HOLDER, test_withheld.HERE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After such a training whose label holder would record sums: the parties' states and tables."""
    place = tmp_path_factory.mktemp("shared")
    job = {**ON_LATTICE, "sums": "shared", "dealer": DEALER}
    states = trained(place / "federation", HERE, test_withheld.PARAMS, record="both", job=job, dealer=True)
    laid_out(place, {party: states[party] for party in PARTIES}, HERE.tables)
    return place


def test_the_views_are_those_of_withheld_spaces(folder: Path) -> None:
    """The same nodes and left sets at the label holder, which records no sum; a feature party's own splits."""
    test_withheld.test_the_label_holder_learns_left_sets_of_nodes(folder)
    assert not present(read_label_holder(folder / HOLDER).opened).trees
    for party in (test_withheld.B, test_withheld.C):
        assert read_view(folder / party, party=party).faults == ()


@pytest.mark.second_tier
def test_an_audit_reads_left_sets_alone(folder: Path) -> None:
    """And says that no sums were offered."""
    read = test_withheld.audited(folder).columns_read
    assert {present(figures.reasons)["sums"] for figures in read.values()} == {NOTHING_OFFERED}
    assert any(figures.left_sets and figures.left_sets.placed for figures in read.values())
