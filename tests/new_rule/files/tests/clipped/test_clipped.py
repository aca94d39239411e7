"""Clipped summands: smaller leaves, and the bound in the manifest."""

from __future__ import annotations

from pathlib import Path

from tests.simulator import Federation, run
from tests.worlds import PARTIES, joined_model, manifest, spec, world
from treetap.party.defences.settings import Defences
from treetap.trees.params import BoostingParams

HERE = world(30, (1, 1, 1), seed=2)
PARAMS = BoostingParams(n_estimators=1, max_depth=2, max_bin=3, min_child_weight=0.0)


def _weights(folder: Path, defences: Defences) -> tuple[list[float], dict[str, object]]:
    async def main() -> dict[str, Path]:
        federation = Federation(folder, HERE.tables, defences={PARTIES[0]: defences})
        assert (await federation.train(spec(PARAMS, key_bits=512, obfuscation="standard"))).state == "finished"
        await federation.close()
        return federation.states

    states = run(main())
    leaves = [node[1][0] for node in joined_model(states)[0].values() if node[0] == "leaf"]
    return leaves, manifest(states[PARTIES[0]])


def test_leaves_are_within_the_bound(tmp_path: Path) -> None:
    """The weights of leaves follow from what was summed."""
    plain, _ = _weights(tmp_path / "plain", Defences())
    clipped, said = _weights(tmp_path / "clipped", Defences(clipped=1000))
    assert max(map(abs, clipped)) < max(map(abs, plain))
    assert said["clipped"] == 1000
