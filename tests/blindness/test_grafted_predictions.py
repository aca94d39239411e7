"""Predictions with and without subtrees that the label holder alone knows: no message tells another party of them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.blindness.comparison import PLAIN, RECORDS, between_parties, of_coordinator
from tests.blindness.observed import Act, Crossed, Observed, observed
from tests.blindness.test_predictions import HERE, JOB, LABEL_HOLDER, OTHER, POLICIES, RECORD
from tests.grafted import add_grafts, hide_constants, withdraw_leaves
from tests.needs import needs_library_of
from tests.serving.served import ask, config, serve
from tests.simulator import Federation, finished, run
from treetap.protocols.prediction import predict_request

pytestmark = pytest.mark.second_tier

WAYS: dict[str, dict[str, Any]] = {
    "interactive": {"protocol": "interactive", "explain": True},
    "interactive, per tree": {"protocol": "interactive", "form": "per-tree"},
    "eini": {"protocol": "eini", "explain": True},
    "eini-lattice": {"protocol": "eini-lattice"},
}


def _predicting(asked: dict[str, Any]) -> Act:
    """Predict the table in two blocks, then serve without explanations and answer a client."""

    async def act(federation: Observed) -> Any:
        status = finished(await federation.predict(predict_request(model="job", job="p", block=3, **asked)))
        await serve(federation, **{key: value for key, value in asked.items() if key != "explain"})
        answers = [await ask(federation, record) for record in (RECORD, OTHER)]
        scores = [list(each.scores) for answer in answers for each in answer.predictions]
        return pq.read_table(status.predictions).to_pylist(), scores

    return act


#: The models: without values of its own, and two whose label holder alone knows subtrees.
MODELS = {"plain": hide_constants, "grafted": add_grafts, "withdrawn": withdraw_leaves}


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The disks of a federation after one training, with each of the models."""
    folder = tmp_path_factory.mktemp("trained")

    async def main() -> None:
        federation = Federation(folder / "trained", HERE.tables)
        assert (await federation.train(JOB)).state == "finished"

    run(main())
    for name, change in MODELS.items():
        shutil.copytree(folder / "trained", folder / name)
        change(folder / name / LABEL_HOLDER / "state" / "models" / "job")
    return {name: folder / name for name in MODELS}


@pytest.mark.parametrize("way", WAYS)
def test_local_subtrees_show_to_no_other_party(
    way: str, disks: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All plaintext fields, record sets, counts and sizes are equal for coordinator and parties; the scores differ."""
    if "lattice" in way:
        needs_library_of("eini-lattice")
    monkeypatch.setattr("treetap.lattice.columns.random.SystemRandom", lambda: random.Random(3))
    runs: dict[str, tuple[list[Crossed], Any]] = {}
    for name, trained in disks.items():
        more = {"policies": POLICIES, "serve": {LABEL_HOLDER: config()}}
        runs[name] = observed(tmp_path / "f", HERE.tables, _predicting(WAYS[way]), trained=trained, **more)
    plain, found = runs.pop("plain")
    for crossed, other in runs.values():
        assert found[0] != other[0]
        assert found[1] != other[1]
        assert of_coordinator(plain) == of_coordinator(crossed)
        assert between_parties(plain, PLAIN | RECORDS) == between_parties(crossed, PLAIN | RECORDS)
