"""Fed-EINI predictions that cannot be: contents that do not fit, shards of different jobs, policies, options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.cipher import quickly_trained
from tests.published import write_job, write_trees
from tests.replay import HERE, JOB, ORACLE, PARAMS, asked
from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, assert_oracles_scores, spec, world
from treetap.models.store import read_model
from treetap.protocols.prediction import predict_request

LABEL_HOLDER, FIRST, LAST = PARTIES


def _rewrite_shard(state: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Another shard, and a manifest that says it is what was published."""
    folder = state / "models" / "job"
    manifest, trees = read_model(folder)
    change(trees)
    write_trees(folder, manifest, trees)


def _another_submission(federation: Federation) -> None:
    write_job(federation.state(LAST) / "models" / "job", "of another coordinator")


def _another_tree(federation: Federation) -> None:
    _rewrite_shard(federation.state(FIRST), lambda trees: trees[0]["leaves"].append([]))


def _fewer_trees(federation: Federation) -> None:
    _rewrite_shard(federation.state(FIRST), lambda trees: trees.pop())


SHARDS: dict[str, tuple[Callable[[Federation], None], str]] = {
    "another submission": (_another_submission, r"feature-c.*this model was trained by another job of that name"),
    "another tree": (_another_tree, r"feature-b: tree 0 has \d leaves at label-holder, \d in this party's shard"),
    "fewer trees": (_fewer_trees, r"feature-b: label-holder predicts with tree 1, this party's shard has 1 trees"),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["eini", "eini-lattice"])
@pytest.mark.parametrize("case", SHARDS)
async def test_shards_of_different_jobs_are_refused(case: str, protocol: str, tmp_path: Path) -> None:
    """Bad input, with the party and the place."""
    spoil, message = SHARDS[case]

    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    spoil(federation)
    status = await federation.predict(predict_request(model="job", job="p", protocol=protocol))
    assert (status.state, status.bad_input) == ("failed", True), status.error
    assert re.search(message, status.error), status.error


async def test_a_short_key_for_a_papers_figure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """512 bits where every policy allows it: the right scores, and a warning."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    with pytest.warns(UserWarning, match="a 512-bit Paillier key protects nothing"):
        status = await federation.predict(asked("p", key_bits=512))
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16)
    await federation.close()
    assert "uses a 512-bit key: it can be broken" in caplog.text


@pytest.mark.second_tier
async def test_more_classes_than_a_key_holds(tmp_path: Path) -> None:
    """Seventeen classes do not fit 1024 bits; a longer key is named, and does."""
    params = replace(PARAMS, objective="multi:softprob", n_estimators=1)
    here = world(68, (1, 1), objective="multi:softprob", classes=17, fresh=3)

    federation = Federation(tmp_path, here.tables)
    assert (await quickly_trained(federation, spec(params, 2, obfuscation="standard"))).state == "finished"
    status = failed(
        await federation.predict(predict_request(model="job", protocol="eini")),
        "17 classes do not fit one ciphertext",
        "use a longer key for this prediction",
        bad_input=True,
    )
    longer = predict_request(model="job", protocol="eini", key_bits=2048)
    status = finished(await federation.predict(longer))
    assert_oracles_scores(status.predictions, here.oracle(params), here.newcomers, 68)
