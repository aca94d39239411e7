"""A party reads its shard once an attempt while trees grow, however many trees there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.opens import opened_to_read
from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.models.store import TREES
from treetap.party.growth.stored_trees import StoredTrees
from treetap.party.runtime.context import StepContext
from treetap.trees.params import BoostingParams

HERE = world(16, (1, 1, 1), seed=25, fresh=6)
LABEL_HOLDER = PARTIES[0]


def _reads(folder: Path, trees: int) -> tuple[dict[str, int], dict[str, int]]:
    """Reads of each party's shard in an attempt that begins and breaks off, and in the one that ends the job."""

    async def main() -> tuple[dict[str, int], dict[str, int]]:
        federation = Federation(folder, HERE.tables)
        params = BoostingParams(n_estimators=trees, max_depth=2, max_bin=3, min_child_weight=0.1)
        stored: set[int] = set()

        def kill(message: Any) -> None:
            if message.word == "store_tree" and message.to == LABEL_HOLDER and not message.served:
                stored.add(message.number)
                if len(stored) == trees - 1:  # the feature parties have this tree, the label holder has not
                    federation.hook = None
                    federation.restart(LABEL_HOLDER)

        federation.hook = kill
        counts = []
        for attempt in (federation.train(spec(params, obfuscation="standard")), federation.resume()):
            with opened_to_read(folder) as opened:
                state = (await attempt).state
            counts.append(
                {party: opened.count(federation.state(party) / "jobs/job/trees.jsonl") for party in federation.states}
            )
        assert state == "finished"
        assert_oracles_model(federation.states, HERE.oracle(params))
        await federation.close()
        return counts[0], counts[1]

    return run(main())


@pytest.mark.second_tier
def test_reads_do_not_grow_with_the_trees(tmp_path: Path) -> None:
    """Nine trees take as many reads as three, in a first attempt and in a resumed one that rolls a tree back."""
    few, many = (_reads(tmp_path / str(trees), trees) for trees in (3, 9))
    assert few == many
    first, resumed = few
    assert set(first.values()) == {0}  # there was no file to read
    assert resumed[LABEL_HOLDER] <= 3  # the stored trees, all trees for the manifest, and the file's digest
    # the stored trees, those kept of them, all trees for the manifest, the digest
    assert all(resumed[party] <= 4 for party in PARTIES[1:])


@pytest.mark.second_tier
async def test_a_shard_that_lost_trees_is_told_before_any_is_grown(tmp_path: Path) -> None:
    """A label holder whose shard holds fewer trees than its scores have in them says so when the job is prepared."""
    params = BoostingParams(n_estimators=3, max_depth=2, max_bin=3, min_child_weight=0.1)

    federation = Federation(tmp_path, HERE.tables)

    federation.kill_at(
        PARTIES[1],
        lambda message: message.word == "store_tree" and message.to == LABEL_HOLDER and message.served,
        back=True,
    )
    assert (await federation.train(spec(params, obfuscation="standard"))).state == "interrupted"
    shard = federation.state(LABEL_HOLDER) / "jobs" / "job" / TREES
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-2])
    begun = len(federation.log)
    status = await federation.resume()
    assert status.state == "interrupted"
    assert "trees.jsonl holds 0 trees, but the scores are those after 1; bring a back-up" in status.error
    assert "bin" not in {message.word for message in federation.log[begun:]}
    shard.write_bytes(whole)
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, HERE.oracle(params))


def test_handles_go_on_from_the_stored_trees() -> None:
    """A tree begins where those before it end; one that is stored anew moves those that follow."""
    lines = SimpleNamespace(read=lambda: [{"own": [0] * count} for count in (2, 0, 3)], put=lambda *_: None)
    context = SimpleNamespace(store=SimpleNamespace(lines=lambda _: lines), offload=_at_once)
    stored = StoredTrees(cast(StepContext, context), "own")
    run(stored.read())
    assert [stored.first_handle(tree) for tree in range(4)] == [0, 2, 2, 5]
    stored.add(1, {"own": [0] * 4})
    assert stored.first_handle(2) == 6
    with pytest.raises(IndexError):
        stored.first_handle(3)


async def _at_once(call: Callable[[], Any]) -> Any:
    return call()
