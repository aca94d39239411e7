"""Rounds of several trees, early stopping, samples, and a party killed before every tree: still the oracle's model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.oracle import OracleSplit
from tests.simulator import Federation, Message
from tests.worlds import PARTIES, assert_oracles_model, manifest, spec, world
from treetap.models.store import TREES
from treetap.trees.params import BoostingParams

LABEL_HOLDER = PARTIES[0]
PARAMS = BoostingParams(
    objective="multi:softprob",
    n_estimators=8,
    max_depth=2,
    max_bin=5,
    learning_rate=0.9,
    min_child_weight=0.1,
    subsample=0.8,
    early_stopping_rounds=2,
    validation_share=0.3,
    seed=2,
)
HERE = world(40, (1, 1, 1), objective="multi:softprob", classes=3, seed=3)
ORACLE = HERE.oracle(PARAMS)


@pytest.mark.second_tier
@pytest.mark.parametrize("victim", PARTIES[:2])
async def test_killed_before_every_tree_and_before_publishing(victim: str, tmp_path: Path) -> None:
    """Scores of the round's start, best round and the decision to stop outlive the process that made them."""
    killed: set[tuple[str, int]] = set()

    with ciphers(KeysMade(), transparent=victim != LABEL_HOLDER):
        federation = Federation(tmp_path, HERE.tables)

        def kill(message: Message) -> None:
            if message.word not in ("begin_tree", "publish") or message.served:
                return
            shard = federation.state(LABEL_HOLDER) / "jobs" / "job" / TREES
            stored = len(shard.read_text().splitlines()) if shard.is_file() else 0
            if (message.word, stored) not in killed:
                killed.add((message.word, stored))
                federation.restart(victim)

        federation.hook = kill
        status = await federation.train(spec(PARAMS, obfuscation="standard"))
        while status.state == "interrupted":
            assert len(killed) <= len(ORACLE) + 1
            status = await federation.resume()
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_model(federation.states, ORACLE)
        assert manifest(federation.state(LABEL_HOLDER))["best_round"] == ORACLE.best_round
        await federation.close()
    assert {("begin_tree", tree) for tree in range(len(ORACLE))} <= killed
    assert ("publish", len(ORACLE)) in killed


@pytest.mark.second_tier
async def test_the_manifest_tells_the_importance_of_parties_in_the_trees_that_are_used(tmp_path: Path) -> None:
    """Number of splits, mean gain and mean cover up to the best round; what was grown after it does not count."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(spec(PARAMS, obfuscation="standard"))).state == "finished"
    found = manifest(federation.state(LABEL_HOLDER))["importance_by_party"]
    assert ORACLE.best_round is not None
    used = ORACLE[: (ORACLE.best_round + 1) * 3]
    splits = [node for tree in used for node in tree.nodes.values() if isinstance(node, OracleSplit)]
    assert len(splits) < sum(isinstance(node, OracleSplit) for tree in ORACLE for node in tree.nodes.values())
    assert set(found) == set(PARTIES)
    for party, row in found.items():
        own = [split for split in splits if split.owner == party]
        assert len(own) > 1
        assert row["weight"] == len(own)
        assert row["gain"] == pytest.approx(sum(split.gain for split in own) / len(own), rel=1e-7)
        assert row["cover"] == pytest.approx(sum(split.cover for split in own) / len(own), rel=1e-7)
