"""Predictions by Fed-EINI that cannot be, and paths enough to hide.

- Fed-EINI predictions that cannot be: contents that do not fit, shards of different jobs, policies, options.
- The policy `min_candidate_bits`: encrypted predictions whose sums few paths explain are refused, by any party.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.cipher import quickly_trained
from tests.published import write_job, write_trees
from tests.replay import HERE, JOB, ORACLE, PARAMS, asked
from tests.simulator import Federation, failed, finished, run
from tests.worlds import PARTIES, assert_oracles_scores, spec, world
from treetap.models.store import read_model
from treetap.party.eini.entry_layout import SCORES, ChainPlace, take_layout
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import eini_pb2, exchange_pb2

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


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["eini", "eini-lattice"])
@pytest.mark.parametrize(
    ("party", "fault"),
    [
        (
            LABEL_HOLDER,
            r"the candidate leaves of some record have fewer bits to spare than that; a model of more trees has more",
        ),
        (FIRST, r"its own splits of this model leave -\d+\.\d bits beyond those of a sum; a model of more"),
        (LAST, r"its own splits of this model leave -\d+\.\d bits beyond those of a sum; a model of more"),
    ],
)
async def test_paths_too_few_to_hide(party: str, fault: str, protocol: str, tmp_path: Path) -> None:
    """Any party's policy ends the prediction before an entry is sent; an interactive one is not its matter."""
    federation = Federation(tmp_path, HERE.tables, policies={party: {"columns": {"min_candidate_bits": 40}}})
    await federation.train(JOB)
    kinds = []

    def keep(by: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        kinds.append(name_of(parcel))

    federation.tamper = keep
    status = await federation.predict(predict_request(model="job", job="few", protocol=protocol))
    assert status.state == "failed"
    assert re.search(rf"{party} takes no part: its policy says min_candidate_bits = 40, and {fault}", status.error)
    assert not {"leaf_entries", "leaf_sums", "lattice_columns", "lattice_sums"} & set(kinds)
    status = finished(await federation.predict(predict_request(model="job")))


@pytest.mark.parametrize(
    ("outputs", "spare"),
    [
        ([(0,)] * 60, 120 - 58),
        ([(0, 1, 2)] * 60, 120 - 3 * 58),
        ([(0,), (1,), (0,)] * 60, 120 - 58),
    ],
)
def test_a_feature_partys_own_bound(outputs: list[tuple[int, ...]], spare: float) -> None:
    """Two bits a tree, less 58 for each column of a sum; of trees that add to different columns the fewest count."""
    leaves = [[[1, True], [2, True]], [[1, True], [2, False]], [[1, False], [3, True]], [[1, False], [3, False]]]
    shard = [{"leaves": leaves, "splits": [{"node": node} for node in (1, 2, 3)]}] * len(outputs)

    async def parcels() -> AsyncIterator[exchange_pb2.PeerMessage]:
        # Trees of the whole depth 2, all of whose splits are one's own.
        entries = [
            {"tree": k, "incoming": range(4 * k + 1, 4 * k + 5), "outgoing": [0] * 4, "outputs": columns}
            for k, columns in enumerate(outputs)
        ]
        yield filled(
            exchange_pb2.PeerMessage(),
            "entry_layout",
            eini_pb2.EntryLayout(trees=[eini_pb2.TreeEntries(**e) for e in entries]),
        )

    columns = len({column for named in outputs for column in named})
    layout = run(take_layout(SCORES, parcels(), ChainPlace("b", "a", "a", "a"), shard, columns, 1))
    assert layout.spare == pytest.approx(spare)


@pytest.mark.second_tier
async def test_paths_enough_to_hide(tmp_path: Path) -> None:
    """Forty trees of eight leaves, all splits at one feature party: both policies are content, and scores are right."""
    here = world(40, (0, 4), fresh=3)
    params = BoostingParams(n_estimators=40, max_depth=3, max_bin=8, min_child_weight=0.0, reg_lambda=0.1)
    policy = {"columns": {"min_candidate_bits": 40}}

    federation = Federation(tmp_path, here.tables, policies={LABEL_HOLDER: policy, FIRST: policy})
    assert (await quickly_trained(federation, spec(params, 2))).state == "finished"
    status = finished(await federation.predict(asked("many")))
    assert_oracles_scores(status.predictions, here.oracle(params), here.newcomers, 40)
