"""A forest's processes killed, its contents changed on the way.

Growing a tree is what boosting does too, and is tested there at every message; here above all what a forest adds.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.test_malformed import chunk
from tests.simulator import Federation, failed
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.party.growth.feature_party import ExpectedRecords
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.trees.params import ForestParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.xdist_group("forest-steps")

LABEL_HOLDER, FEATURE, OTHER = PARTIES
PARAMS = ForestParams(n_estimators=2, max_depth=2, max_bin=3, colsample_bytree=1.0)
PER_NODE = replace(PARAMS, binning="per-node")
#: A world in which all three parties win splits, in both trees.
HERE = world(16, (1, 1, 1), seed=264, fresh=6)
ORACLE = HERE.oracle(PARAMS)
JOB = spec(PARAMS, obfuscation="standard")
ON_LATTICE = spec(PARAMS, scheme=LATTICE)
#: With the model that is to be found: labels shared under a key, not at all, and in words that serve all trees.
JOBS = {
    "with a key": (JOB, ORACLE),
    "by queries": (ON_LATTICE, ORACLE),
    "by sets": (spec(PER_NODE, scheme=LATTICE), HERE.oracle(PER_NODE)),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("name", "words_of"), [("with a key", "encrypted_labels"), ("by sets", "encrypted_words")])
async def test_a_resumed_forest_shares_its_labels_once_per_attempt(name: str, words_of: str, tmp_path: Path) -> None:
    """Interrupted in its second tree a job shares the labels again, to all, and grows the second tree alone."""
    job, oracle = JOBS[name]

    federation = Federation(tmp_path, HERE.tables)

    federation.kill_at(
        FEATURE, lambda message: message.word == "begin_tree" and federation.jobs.status("job")[0].round == 2, back=True
    )
    assert (await federation.train(job)).state == "interrupted"
    before = len(federation.log)
    assert (await federation.resume()).state == "finished"
    words = [message.word for message in federation.log[before:]]
    assert (words.count("share_labels"), words.count("take_labels"), words.count("begin_tree")) == (1, 2, 1)
    assert words.count(words_of) == words.count("public_key") == 2
    assert_oracles_model(federation.states, oracle)


async def test_sums_over_another_draw_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that sums other records than were drawn offers sums that its children do not have: never a wrong tree.

    It does not compare the draw, as an honest one would.
    """
    monkeypatch.setattr(ExpectedRecords, "check_draw", lambda *_: None)

    federation = Federation(tmp_path, HERE.tables)

    def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if to == FEATURE and name_of(parcel) == "sampled_records":
            parcel.growth.sampled_records.chunks[0].CopyFrom(chunk(0, 1, 2))

    federation.tamper = tamper
    failed(await federation.train(JOB), "do not have the sums that its owner offered")


@pytest.mark.parametrize(
    ("scheme", "records", "classes", "said"),
    [
        (PAILLIER, 600, 99, "97 classes of 600 records need 1067 bits in one plaintext"),
        (LATTICE, 600, 500, "classes of 600 records need .* bits .* has 3072: use labels of fewer classes"),
        (LATTICE, 900, 300, "scheme = 'lattice': words .* are more than one second half may serve"),
    ],
)
async def test_classes_that_fit_no_plaintext(
    scheme: str, records: int, classes: int, said: str, tmp_path: Path
) -> None:
    """More classes than a plaintext has room for are the user's to mend, before any alignment."""
    wide = world(records, (1, 1), objective="multi:softprob", classes=classes)

    federation = Federation(tmp_path, wide.tables)
    status = await federation.train(spec(PARAMS, 2, scheme=scheme))
    assert (status.state, status.bad_input) == ("failed", True)
    assert re.search(said, status.error), status.error
    assert not any(message.word == "record_digest" for message in federation.log)
