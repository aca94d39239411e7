"""Fed-EINI predictions that cannot be: contents that do not fit, shards of different jobs, policies, options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign.cipher import quickly_trained
from tests.published import write_job, write_trees
from tests.replay import HERE, JOB, ORACLE, PARAMS, asked
from tests.simulator import Federation, run
from tests.tampered import Lie, assert_named, longer_key
from tests.worlds import PARTIES, assert_oracles_scores, spec, world
from treetap.additive.paillier.secret_key import SecretKey
from treetap.errors import ConfigError
from treetap.models.store import read_model
from treetap.protocols.prediction import predict_request
from treetap.wire.records import chunks_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FIRST, LAST = PARTIES
WIDTH = 256  # bytes of a ciphertext under a key of 1024 bits


def fewer_entries(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.leaf_entries.ciphertexts = parcel.protocol.eini.leaf_entries.ciphertexts[:-WIDTH]


def more_entries(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.leaf_entries.ciphertexts += parcel.protocol.eini.leaf_entries.ciphertexts[:WIDTH]


def torn_entry(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.leaf_entries.ciphertexts = parcel.protocol.eini.leaf_entries.ciphertexts[:-1]


def beyond_the_key(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.leaf_entries.ciphertexts = b"\xff" * len(parcel.protocol.eini.leaf_entries.ciphertexts)


def another_key(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.modulus = SecretKey.generate(1024).public.to_bytes()


def fewer_constants(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.constant_entries.ciphertexts = parcel.protocol.eini.constant_entries.ciphertexts[WIDTH:]


def a_leaf_less(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.protocol.eini.entry_layout.trees[1].incoming[-1]


def a_tree_too_many(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.entry_layout.trees[1].tree = 2


def everything_one_entry(parcel: exchange_pb2.PeerMessage) -> None:
    for tree in parcel.protocol.eini.entry_layout.trees:
        tree.incoming[:] = [1] * len(tree.incoming)


def a_goal_far_off(parcel: exchange_pb2.PeerMessage) -> None:
    tree = parcel.protocol.eini.entry_layout.trees[0]
    tree.outgoing[:] = [2**32 - 1 if goal else 0 for goal in tree.outgoing]  # a list of as many numbers takes 128 GiB


def a_gap(parcel: exchange_pb2.PeerMessage) -> None:
    for tree in parcel.protocol.eini.entry_layout.trees:
        tree.incoming[:] = [entry + (entry > 0) for entry in tree.incoming]


def a_gap_behind(parcel: exchange_pb2.PeerMessage) -> None:
    for tree in parcel.protocol.eini.entry_layout.trees:
        tree.outgoing[:] = [5 if entry else 0 for entry in tree.incoming]


def a_sum_of_some(parcel: exchange_pb2.PeerMessage) -> None:
    for tree in parcel.protocol.eini.entry_layout.trees:
        tree.outgoing[:] = [1 if entry else 0 for entry in tree.incoming]


def columns_that_are_not_there(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.entry_layout.trees[1].outputs[:] = [1]


def a_wider_slot(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.slot_widths[0] += 1


def a_slot_too_many(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.setup.public_key.slot_widths.append(parcel.setup.public_key.slot_widths[0])


def constants_in_the_middle(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.entry_layout.constant.append(1)


def records_beyond(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.prediction.block_records.chunks[0].span = 99


def no_records(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.prediction.block_records.chunks[:]
    parcel.prediction.block_records.chunks.extend(chunks_of(np.zeros(0, dtype=np.int64), 6))


def a_tree_twice(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.entry_layout.trees.append(parcel.protocol.eini.entry_layout.trees[0])


def no_sums(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.eini.leaf_sums.ciphertexts = b""


#: (sender, receiver, kind) → the change, and what the operator reads.
LIES: dict[str, Lie] = {
    "a truncated block": (LABEL_HOLDER, FIRST, "leaf_entries", fewer_entries, r"label-holder, block 0: .* got \d+"),
    "a truncated block in the chain": (FIRST, LAST, "leaf_entries", fewer_entries, r"feature-b, block 0: .*got \d+"),
    "a block too long": (LABEL_HOLDER, FIRST, "leaf_entries", more_entries, r"block 0: 4 records of .* or more"),
    "half a ciphertext": (LABEL_HOLDER, FIRST, "leaf_entries", torn_entry, r"label-holder, block 0: .*got \d+\.99"),
    "no ciphertexts": (FIRST, LAST, "leaf_entries", beyond_the_key, r"feature-b, block 0: .* made under another key"),
    "a foreign key": (
        LABEL_HOLDER,
        LAST,
        "public_key",
        another_key,
        r"label-holder sent a paillier modulus that its proof does not fit",
    ),
    "a foreign key of another size": (
        LABEL_HOLDER,
        FIRST,
        "public_key",
        longer_key,
        r"has 2048 bits, the job says 1024",
    ),
    "constants that are not there": (
        LABEL_HOLDER,
        FIRST,
        "constant_entries",
        fewer_constants,
        r"constant entries need",
    ),
    "a mask of another length": (
        LABEL_HOLDER,
        FIRST,
        "entry_layout",
        a_leaf_less,
        r"tree 1 has \d leaves at label-holder, \d in this party's shard: the shards are of different jobs",
    ),
    "a tree too many": (
        LABEL_HOLDER,
        LAST,
        "entry_layout",
        a_tree_too_many,
        r"label-holder predicts with tree 2, this party's shard has 2 trees: the shards are of different jobs",
    ),
    "leaves mixed": (LABEL_HOLDER, LAST, "entry_layout", everything_one_entry, r"in one entry that differ here"),
    "entries left out": (LABEL_HOLDER, LAST, "entry_layout", a_gap, r"has numbered the entries wrongly"),
    "a goal far off": (LABEL_HOLDER, FIRST, "entry_layout", a_goal_far_off, r"the entries that go on wrongly"),
    "a sum of some leaves": (LABEL_HOLDER, LAST, "entry_layout", a_sum_of_some, r"the entries that go on wrongly"),
    "goals left out": (LABEL_HOLDER, FIRST, "entry_layout", a_gap_behind, r"the entries that go on wrongly"),
    "columns that are not there": (
        LABEL_HOLDER,
        LAST,
        "entry_layout",
        columns_that_are_not_there,
        r"has named columns of the score wrongly",
    ),
    "a wider slot": (
        *(LABEL_HOLDER, FIRST, "public_key", a_wider_slot),
        r"slots of 63 bits, the job implies 62",
    ),
    "a slot too many": (
        *(LABEL_HOLDER, LAST, "public_key", a_slot_too_many),
        r"has laid out 2 columns of the score, not all of which have a tree",
    ),
    "constants in the middle": (LABEL_HOLDER, LAST, "entry_layout", constants_in_the_middle, r"to the first of the"),
    "records that are not there": (LABEL_HOLDER, FIRST, "block_records", records_beyond, r"chunk|record"),
    "no records": (LABEL_HOLDER, LAST, "block_records", no_records, r"label-holder, block 0: a block of no records"),
    "a tree twice": (LABEL_HOLDER, FIRST, "entry_layout", a_tree_twice, r"label-holder has named tree 0 twice"),
    "no sums": (LAST, LABEL_HOLDER, "leaf_sums", no_sums, r"4 candidates are 1 ciphertexts of 256 bytes, got 0"),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", LIES)
def test_what_cannot_be_is_named(case: str, tmp_path: Path) -> None:
    """One parcel changed on its way: an error that says what is wrong, no file; on an honest line the right scores."""
    assert_named(LIES[case], tmp_path, asked)


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
def test_shards_of_different_jobs_are_refused(case: str, protocol: str, tmp_path: Path) -> None:
    """Bad input, with the party and the place."""
    spoil, message = SHARDS[case]

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        spoil(federation)
        status = await federation.predict(predict_request(model="job", job="p", protocol=protocol))
        assert (status.state, status.bad_input) == ("failed", True), status.error
        assert re.search(message, status.error), status.error
        await federation.close()

    run(main())


def test_what_a_policy_forbids(tmp_path: Path) -> None:
    """A shorter key than a party takes, and sums that a party does not give away."""
    policies = {
        FIRST: {"min_key_bits": 1024},
        LAST: {"emits": {"PREDICTION": []}},
    }

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies=policies)
        await federation.train(JOB)
        for request, message in (
            (asked("short", key_bits=512), r"feature-b takes no part .* key of 512 bits: .* min_key_bits = 1024"),
            (asked("sums"), r"feature-c does not send PREDICTION to label-holder: its policy says"),
        ):
            status = await federation.predict(request)
            assert status.state == "failed"
            assert re.search(message, status.error), status.error
        await federation.close()

    run(main())


def test_a_short_key_for_a_papers_figure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """512 bits where every policy allows it: the right scores, and a warning."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        with pytest.warns(UserWarning, match="a 512-bit Paillier key protects nothing"):
            status = await federation.predict(asked("p", key_bits=512))
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16)
        await federation.close()

    run(main())
    assert "uses a 512-bit key: it can be broken" in caplog.text


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"protocol": "magic"}, "protocol = 'magic': must be one of interactive, eini, eini-lattice"),
        ({"protocol": "eini", "form": "per-tree"}, "form and protocol 'eini' do not go together"),
        ({"protocol": "eini", "key_bits": 1000}, "key_bits = 1000: must be 1024, 2048 or 3072"),
        (
            {"protocol": "eini-lattice", "form": "per-tree"},
            "form and protocol 'eini-lattice' do not go together",
        ),
        (
            {"protocol": "eini-lattice", "key_bits": 2048},
            "key_bits and protocol 'eini-lattice' do not go together: a lattice key has the size",
        ),
        (
            {"protocol": "eini-lattice", "away_policy": "degrade"},
            "away = 'degrade' and protocol 'eini-lattice' do not go together",
        ),
        (
            {"obfuscation": "standard"},
            "obfuscation and protocol 'interactive' do not go together: an interactive prediction encrypts nothing",
        ),
        ({"form": "sideways"}, "form = 'sideways': must be one of batched, per-tree"),
        (
            {"key_bits": 2048},
            "key_bits and protocol 'interactive' do not go together: an interactive prediction encrypts nothing",
        ),
    ],
)
def test_requests_that_nobody_could_do(request_: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Options that are not offered, and options of the other protocol, are refused before any party is asked."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        before = len(federation.log)
        with pytest.raises(ConfigError, match=re.escape(message)):
            await federation.predict(predict_request(model="job", **request_))
        assert len(federation.log) == before
        await federation.close()

    run(main())


@pytest.mark.second_tier
def test_more_classes_than_a_key_holds(tmp_path: Path) -> None:
    """Seventeen classes do not fit 1024 bits; a longer key is named, and does."""
    params = replace(PARAMS, objective="multi:softprob", n_estimators=1)
    here = world(68, (1, 1), objective="multi:softprob", classes=17, fresh=3)

    async def main() -> None:
        federation = Federation(tmp_path, here.tables)
        assert (await quickly_trained(federation, spec(params, 2, obfuscation="standard"))).state == "finished"
        status = await federation.predict(predict_request(model="job", protocol="eini"))
        assert (status.state, status.bad_input) == ("failed", True)
        assert "17 classes do not fit one ciphertext" in status.error
        assert "use a longer key for this prediction" in status.error
        longer = predict_request(model="job", protocol="eini", key_bits=2048)
        status = await federation.predict(longer)
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_scores(status.predictions, here.oracle(params), here.newcomers, 68)
        await federation.close()

    run(main())
