"""Work on the whole model or on all identifiers leaves a party's event loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import tests.simulator
from tests.replay import HERE, JOB, ORACLE, PARAMS
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, assert_oracles_scores, lattice_tolerance, spec
from treetap.lattice.columns import NodeColumns
from treetap.party.alignment import lists
from treetap.party.eini import entries
from treetap.protocols.prediction import predict_request
from treetap.trees.leaf_entries import LeafEntries
from treetap.trees.shapley import AttributionEntries, expected_score

T = TypeVar("T")
ALLOWED: dict[str, dict[str, Any]] = {party: {"emits": {"EXPLANATION": ["parties"]}} for party in PARTIES[1:]}
LEAVES = {"LeafEntries.__init__", "LeafEntries.hops", "LeafEntries.constants"}
ATTRIBUTIONS = {"AttributionEntries.__init__", "AttributionEntries.hops", "AttributionEntries.constants"}
#: What is asked for, and which functions that go through the whole model answer it.
ASKED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "eini": ({"protocol": "eini"}, LEAVES),
    "attributions": ({"protocol": "eini", "attributions": True}, {*LEAVES, *ATTRIBUTIONS, "expected_score"}),
    "lattice": ({"protocol": "eini-lattice"}, {"NodeColumns.__init__"}),
}


class Watch:
    """Which of the functions that are `seen` ran inside `offload` (True), and which on the event loop (False)."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, list[bool]] = defaultdict(list)
        self._inside = False

    async def offload(self, work: Callable[[], T], *, whole: bool = False, us: float = 0.0) -> T:
        """In place of a thread."""
        self._inside = True
        try:
            return work()
        finally:
            self._inside = False

    def over(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, seen."""

        def watched(*args: Any, **named: Any) -> Any:
            self.seen[name].append(self._inside)
            return work(*args, **named)

        return watched


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("kind", ASKED)
async def test_the_model_is_laid_out_off_the_event_loop(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a constructor of a role nor a step itself goes through all leaves; each such work is done once."""
    asked, expected = ASKED[kind]
    watch = Watch()
    monkeypatch.setattr(tests.simulator, "in_place", watch.offload)
    for kept, names in (
        (LeafEntries, ("__init__", "hops", "constants")),
        (AttributionEntries, ("__init__", "hops", "constants")),
        (NodeColumns, ("__init__",)),
    ):
        for name in names:
            monkeypatch.setattr(kept, name, watch.over(f"{kept.__name__}.{name}", getattr(kept, name)))
    monkeypatch.setattr(entries, "expected_score", watch.over("expected_score", expected_score))

    federation = Federation(tmp_path, HERE.tables, policies=ALLOWED)
    await federation.train(JOB)
    status = finished(await federation.predict(predict_request(model="job", block=4, **asked)))
    within = lattice_tolerance(ORACLE) if kind == "lattice" else 1e-9
    assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16, within)
    await federation.close()
    assert watch.seen == {name: [True] for name in expected}


async def test_identifiers_are_shuffled_and_compared_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting a million blinded identifiers takes seconds: in these the party must answer others."""
    watch = Watch()
    monkeypatch.setattr(tests.simulator, "in_place", watch.offload)
    for module, name in ((lists, "permutation"), (lists, "shuffled"), (lists, "common")):
        monkeypatch.setattr(module, name, watch.over(name, getattr(module, name)))

    federation = Federation(tmp_path, HERE.tables)
    finished(await federation.train(spec(PARAMS, obfuscation="standard", alignment="psi")))
    await federation.close()
    assert {name: set(inside) for name, inside in watch.seen.items()} == {
        "permutation": {True},
        "shuffled": {True},
        "common": {True},
    }
