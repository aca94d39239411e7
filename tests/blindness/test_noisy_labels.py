"""Trainings on the same noisy labels of other clean ones: no party but the label holder can tell which are clean."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.blindness.comparison import PLAIN, RECORDS, between_parties, of_coordinator
from tests.blindness.observed import Act, Crossed, Observed, observed
from tests.simulator import COORDINATOR, finished
from tests.worlds import PARTIES, Tables, spec, world
from treetap.party.defences.settings import Defences
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

pytestmark = pytest.mark.second_tier

LABEL_HOLDER = PARTIES[0]
N = 40
HERE = world(N, (1, 2, 1), seed=4, missing=0.1)
NOISY = np.random.default_rng(1).permutation(HERE.y)
DP: dict[str, Any] = {"label_dp": {"epsilon": 1.0, "stages": 2}}
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=4, min_child_weight=0.1)
STOPPED: dict[str, Any] = {"early_stopping_rounds": 1, "validation_share": 0.2}
#: Lines of the label holder's policy in the last of them: sets are withdrawn by what noisy labels say.
POLICIES: dict[str, dict[str, Any]] = {LABEL_HOLDER: {"labels": {"max_leakage": 0.4, "on_max_leakage": "withdraw"}}}
JOBS: dict[str, tuple[TreeParams, dict[str, Any]]] = {
    "boosting, stopped early": (
        BoostingParams(n_estimators=5, max_depth=2, max_bin=4, min_child_weight=0.1, subsample=0.8, **STOPPED),
        DP,
    ),
    "boosting, limited": (BOOSTING, {**DP, "id_lmid": {"xi": 0.4}}),
    "boosting, repaired": (BOOSTING, {**DP, "grafting": True, "refit": True}),
    "forest, repaired": (
        ForestParams(n_estimators=2, max_depth=3, max_bin=4),
        {**DP, "grafting": True, "reduced_leakage": {"trees": 1}},
    ),
    "forest, limited by the policy": (ForestParams(n_estimators=2, max_depth=3, max_bin=4), DP),
}


def with_labels(values: np.ndarray[Any, Any]) -> Tables:
    """The tables with other clean labels, in order of ids."""
    columns, own = HERE.tables[LABEL_HOLDER]
    train, known = own["train"], {f"r{i:05d}": value for i, value in enumerate(values.tolist())}
    cells = pa.array([known[each] for each in train["id"].to_pylist()])
    changed = train.set_column(train.column_names.index("y"), "y", cells)
    return {**HERE.tables, LABEL_HOLDER: (columns, {**own, "train": changed})}


def training(params: TreeParams) -> Act:
    """Train; returns the metrics by clean labels, which the label holder keeps."""

    async def act(federation: Observed) -> Any:
        finished(await federation.train(spec(params, obfuscation="standard")))
        return json.loads((federation.state(LABEL_HOLDER) / "models" / "job" / "clean_metrics.json").read_text())

    return act


@pytest.mark.parametrize("job", JOBS)
def test_clean_labels_show_to_no_other_party(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels as they are, all turned round, and all but one of one class: the same messages, of which none is missing.

    The coordinator receives the same bytes; parties the same but for ciphertexts, in the same order.
    """
    monkeypatch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
    monkeypatch.setattr("treetap.party.defences.noisy_labels.staged", lambda *_: NOISY)
    params, own = JOBS[job]
    more: dict[str, Any] = {
        "policies": POLICIES if job == list(JOBS)[-1] else {},
        "defences": {LABEL_HOLDER: Defences(**own)},
    }
    single = np.zeros(N, dtype=np.int64)
    single[7] = 1
    runs: list[tuple[list[Crossed], Any]] = [
        observed(tmp_path / "f", with_labels(clean), training(params), **more) for clean in (HERE.y, 1 - HERE.y, single)
    ]
    assert runs[0][1] != runs[1][1] != runs[2][1]
    first = runs[0][0]
    assert {crossed.to for crossed in first} == {COORDINATOR, *PARTIES}
    for crossed, _ in runs[1:]:
        assert of_coordinator(first) == of_coordinator(crossed)
        assert between_parties(first, PLAIN | RECORDS) == between_parties(crossed, PLAIN | RECORDS)
