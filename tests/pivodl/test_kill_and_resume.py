"""Processes killed in the middle of a training by PIVODL, the job resumed: the oracle's model, of one draw of parties.

`python -m tests.campaign kills` kills every process at every message; here is a share of that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.kills import messages, sample
from tests.campaign.schedule import carry_out
from tests.oracle import OracleSplit
from tests.pivodl.federations import federation_of
from tests.pivodl.small_job import HERE, JOB, ORACLE, nonces
from tests.simulator import Federation, Message
from tests.worlds import PARTIES, assert_oracles_model, manifest
from treetap.models.store import read_model
from treetap.wire.frame import PATHS
from treetap.wire.v2 import control_pb2, exchange_pb2


def test_the_job_has_all_that_a_job_can_have() -> None:
    """Every party wins a split in each of the two trees, and all words of such a job are sent."""
    for tree in ORACLE:
        assert {node.owner for node in tree.nodes.values() if isinstance(node, OracleSplit)} == set(PARTIES)
    told = {message.word for message in messages()}
    ways = {**PATHS[control_pb2.StepRequest], **PATHS[exchange_pb2.PeerMessage]}
    words = {name for name, path in ways.items() if "pivodl" in path}
    secure = {"compare_gains", "blinded_gains", "gain_bits", "gain_orders", "winning_sources"}
    assert words - told == secure | {"candidate_records"}


@pytest.mark.second_tier
@pytest.mark.parametrize("part", range(2))
def test_killed_at_some_messages(part: int, tmp_path: Path) -> None:
    """The resumed job finds the oracle's model; whatever stopped is named, and nothing is left behind."""
    for plan in sample(10)[part::2]:
        outcome = carry_out(plan, tmp_path / str(plan.seed))
        assert outcome.findings == [], plan.to_json()
        assert outcome.killed == 1


async def _with_a_kill(folder: Path, word: str, victim: str, nth: int) -> dict[str, Any]:
    """Shards, manifests and nonces after a training in which a party is killed at its nth message of a word."""

    with ciphers(KeysMade(), transparent=True), nonces(5):
        federation = federation_of(folder, HERE, JOB)
        seen: dict[str, bytes] = {}
        left = nth

        def hook(message: Message) -> None:
            nonlocal left
            for party, state in federation.states.items():
                kept = state / "jobs" / "job" / "nonce.npz"
                if kept.exists():
                    assert seen.setdefault(party, kept.read_bytes()) == kept.read_bytes()
            if (message.word, message.to, message.served) == (word, victim, False):
                left -= 1
                if left == 0:
                    federation.restart(victim)

        federation.hook = hook
        status = await federation.train(JOB)
        if nth:
            assert status.state == "interrupted"
            status = await federation.resume()
        assert (status.state, status.error) == ("finished", "")
        assert set(seen) == set(PARTIES)
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()
        return _found(federation)


def _found(federation: Federation) -> dict[str, Any]:
    manifests = {party: manifest(state) for party, state in federation.states.items()}
    for each in manifests.values():
        del each["sha256"], each["job_digest"]  # of the whole model and of the job, which names its submission
    shards = {party: read_model(state / "models" / "job")[1] for party, state in federation.states.items()}
    return {"manifests": manifests, "shards": shards}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("word", "victim", "nth"),
    [
        ("publish", PARTIES[0], 1),
        ("publish", PARTIES[1], 1),
        ("store_tree", PARTIES[0], 1),
        ("store_tree", PARTIES[0], 2),
        ("forwarded_sums", PARTIES[2], 3),
    ],
)
async def test_a_resumed_job_ends_as_an_undisturbed_one(word: str, victim: str, nth: int, tmp_path: Path) -> None:
    """Draws, handles, keepers, scales and metrics are the same; also where all but the last party have published.

    Nonces on disk are never others, though keys are.
    """
    undisturbed = await _with_a_kill(tmp_path / "undisturbed", word, victim, 0)
    assert await _with_a_kill(tmp_path / "killed", word, victim, nth) == undisturbed
