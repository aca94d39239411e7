"""A training on a lattice over sockets, with several workers at every party: the oracle's model, and true accounts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.system.federations import ended, settings, states
from tests.system.test_sockets import COUNTED
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.lab.local_federation import LocalFederation
from treetap.lattice.histogram_ways import Way
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.transcript import TranscriptReader, summarise
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("sockets")]

#: Two blocks of records and a rest, so that workers share them.
HERE = world(8_200, (0, 1, 2), missing=0.1, seed=8)
#: Bins at which a node has few candidates, hence sets are taken, and at which it has many, hence queries are.
BOOSTING = BoostingParams(n_estimators=2, max_depth=2, max_bin=16)
FOREST = ForestParams(n_estimators=2, max_depth=2, max_bin=4, bootstrap=True)
JOBS: dict[str, tuple[TreeParams, Way]] = {
    "boosting by queries": (BOOSTING, Way.QUERIES),
    "boosting by sets": (replace(BOOSTING, max_bin=4), Way.SETS),
    "boosting, sets withheld": (replace(BOOSTING, instance_spaces="withheld", pad_trees=True), Way.QUERIES),
    "forest by queries": (FOREST, Way.QUERIES),
    "forest by sets": (replace(FOREST, bootstrap=False, binning="per-node"), Way.SETS),
}
WORKERS = dict(zip(PARTIES, (2, 3, 2), strict=True))


@pytest.mark.campaign(but=2)
@pytest.mark.parametrize(("params", "way"), JOBS.values(), ids=JOBS)
def test_a_training_over_sockets(params: TreeParams, way: Way, tmp_path: Path) -> None:
    """Model node for node; what was sent is what arrived, byte for byte; only contents of a lattice come to b and c."""
    given: dict[str, dict[str, Any]] = settings(
        *(tmp_path, {"wide": HERE}),
        people={"record": "both"},
        keys={"schemes": ["lattice"], "min_key_bits": 3072},
        columns={"withheld_spaces": True},
    )
    for party, workers in WORKERS.items():
        given[party]["workers"] = workers
    with LocalFederation(tmp_path, given) as federation:
        job = spec(params, scheme=LATTICE, table="wide")
        federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=job))
        status = ended(federation, "job")
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_model(states(federation, HERE), HERE.oracle(params))
        transcripts = {party: federation.state(party) / "transcripts" / "job" for party in PARTIES}
    for receiver, path in transcripts.items():
        assert not TranscriptReader(path).torn
        sent = [row for each in status.accounts for row in each.account.traffic if row.to == receiver]
        accounted = Counter({(getattr(row, "from"), row.step, row.disclosure): row.bytes for row in sent})
        arrived = {
            (row["peer"], row["step"], row["class"]): row["bytes"]
            for row in summarise(path)["rows"]
            if row["kind"] == "received"
        }
        assert arrived.pop(("coordinator", "leave", "CONTROL"))  # the account is closed before
        assert arrived.keys() == accounted.keys()
        for key, size in arrived.items():
            assert size <= accounted[key] if key[1] in COUNTED else size == accounted[key]
        if receiver != PARTIES[0]:
            assert {step for _, step, _ in arrived} >= {
                "encrypted_words",
                "seed_nonce",
                "seed_commitment",
                "public_key",
            }
            words = [record for record in TranscriptReader(path) if record.step == "encrypted_words"]
            assert {record.stage for record in words} == ({0} if way is Way.SETS else {0, 1})
            assert not {"gradients", "encrypted_labels"} & {step for _, step, _ in arrived}
