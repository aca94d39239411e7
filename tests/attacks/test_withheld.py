"""Audits of jobs that withhold instance spaces: what a feature party can still know, and what its label holder learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.sums.attack import SumsEvidence, read_columns
from attacks.sums.kept import Kept
from attacks.sums.schema import NOT_RECORDED, ColumnFigures, SumsSettings
from attacks.view.opened_sums import OpenedSums
from attacks.view.view import View, read_label_holder, read_view
from tests.attacks.recorded import transcript
from tests.attacks.sums.test_opened_sums import ON_LATTICE, trained
from tests.attacks.sums.test_reading import truth_of
from tests.oracle import OracleSplit, OracleTree
from tests.worlds import PARTIES, World, world
from treetap.trees.params import BoostingParams

HOLDER, B, C = PARTIES
HERE = world(90, (1, 3, 2), missing=0.1, seed=4)
SENT = BoostingParams(n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.1)
WITHHELD = replace(SENT, instance_spaces="withheld")


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """After a training whose label holder records sums."""
    folder = tmp_path_factory.mktemp("withheld")
    return trained(folder, HERE, WITHHELD, record="both", job=ON_LATTICE)


def test_x(states):
    for p in (B, C):
        view = read_view(transcript(states, p), party=p)
        print(p, view.withheld, [(sorted(t.nodes), [c.node for c in t.cuts], len(t.nodes)) for t in view.trees], view.faults)
        print([(r.step, r.disclosure, r.bytes) for r in view.received])
    v = read_label_holder(transcript(states, HOLDER))
    print([(len(t.nodes)) for t in v.trees], v.opened.recorded, len(v.opened.left_sets))
    for p in (B, C):
        f = read_columns(SumsEvidence(p, v.opened, truth_of(HERE, p, 6), SumsSettings(), lambda _: None, Kept()))
        print(f)
    assert 0
