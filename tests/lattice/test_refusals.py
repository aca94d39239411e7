"""Lattice predictions that cannot be: contents that do not fit, shards of different jobs, policies, options."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests import replay
from tests.campaign.cipher import quickly_trained
from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, run
from tests.tampered import Lie, assert_named
from tests.worlds import PARTIES, assert_oracles_scores, lattice_tolerance, spec, world
from treetap.lattice.key_holder import LatticeKey
from treetap.lattice.parameters import PARAMETERS_BYTES, Parameters
from treetap.native import library
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FIRST, LAST = PARTIES
#: A prediction by the lattice, unless another protocol is named.
asked = partial(replay.asked, protocol="eini-lattice")


def _of_key(parcel: exchange_pb2.PeerMessage) -> Parameters:
    return Parameters.from_bytes(parcel.protocol.lattice.lattice_key.public[:PARAMETERS_BYTES])


def fewer_ciphertexts(parcel: exchange_pb2.PeerMessage) -> None:
    del parcel.protocol.lattice.lattice_columns.ciphertexts[-1]


def more_ciphertexts(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_columns.ciphertexts.append(parcel.protocol.lattice.lattice_columns.ciphertexts[0])


def half_a_ciphertext(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_columns.ciphertexts[-1] = parcel.protocol.lattice.lattice_columns.ciphertexts[-1][
        :70_000
    ]


def no_ciphertext(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_columns.ciphertexts[-1] = b"\xff" * len(
        parcel.protocol.lattice.lattice_columns.ciphertexts[-1]
    )


def another_key(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_key.public = LatticeKey(_of_key(parcel)).public_bytes()


def other_parameters(parcel: exchange_pb2.PeerMessage) -> None:
    parameters = _of_key(parcel)
    parcel.protocol.lattice.lattice_key.public = LatticeKey(
        replace(parameters, columns=parameters.columns + 1)
    ).public_bytes()


def a_short_ring(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_key.public = (4096).to_bytes(
        8, "little"
    ) + parcel.protocol.lattice.lattice_key.public[8:]


def half_a_key(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_key.public = parcel.protocol.lattice.lattice_key.public[:-1000]


def of_the_last_release(parcel: exchange_pb2.PeerMessage) -> None:
    """Its parameters had primes of 60 bits and the size of a special one."""
    own = _of_key(parcel)
    sizes = (own.degree, own.data_primes // 2, 38, own.plain_bits, own.columns, own.members)
    parcel.protocol.lattice.lattice_key.public = struct.pack("<6Q", *sizes) + bytes(1000)


def a_column_less(parcel: exchange_pb2.PeerMessage) -> None:
    columns = parcel.protocol.lattice.column_layout.trees[1].columns
    first = next(column.branches[0] for column in columns if column.branches)
    kept = [column for column in columns if list(column.branches) != [type(first)(handle=first.handle, left=True)]]
    assert len(kept) < len(columns)
    del columns[:]
    columns.extend(kept)


def a_column_of_others_less(parcel: exchange_pb2.PeerMessage) -> None:
    columns = parcel.protocol.lattice.column_layout.trees[1].columns
    del columns[next(j for j, column in enumerate(columns) if not column.branches)]


def columns_of_no_node(parcel: exchange_pb2.PeerMessage) -> None:
    for _ in range(8):
        parcel.protocol.lattice.column_layout.trees[1].columns.add()


def a_leaf_less(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.column_layout.trees[1].leaves -= 1


def a_tree_too_many(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.column_layout.trees[1].tree = 2


def a_tree_twice(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.column_layout.trees[1].CopyFrom(parcel.protocol.lattice.column_layout.trees[0])


def a_way_that_is_not_there(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.column_layout.trees[1].columns[0].branches.add(handle=77, left=True)


def columns_that_are_not_there(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.column_layout.trees[1].outputs[:] = [2]


def records_beyond(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.prediction.block_records.chunks[0].span = 99


def no_sums(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.lattice.lattice_sums.ClearField("ciphertexts")


#: (sender, receiver, kind) → the change, and what the operator reads.
LIES: dict[str, Lie] = {
    "a truncated block": (
        *(LABEL_HOLDER, FIRST, "lattice_columns", fewer_ciphertexts),
        r"label-holder, block 0: 4 records and \d columns are 1 ciphertexts, got 0",
    ),
    "a truncated block in the chain": (
        *(FIRST, LAST, "lattice_columns", fewer_ciphertexts),
        r"feature-b, block 0: 4 records and \d columns are 1 ciphertexts, got 0",
    ),
    "a block too long": (*(LABEL_HOLDER, FIRST, "lattice_columns", more_ciphertexts), r"are 1 ciphertexts, got 2"),
    "half a ciphertext": (
        *(LABEL_HOLDER, FIRST, "lattice_columns", half_a_ciphertext),
        r"label-holder, block 0: a ciphertext of 70000 bytes, this job's parameters give \d+ or \d+",
    ),
    "no ciphertexts": (
        *(FIRST, LAST, "lattice_columns", no_ciphertext),
        r"feature-b, block 0: not a ciphertext of this job's parameters: a number beyond its prime",
    ),
    "a foreign key": (
        *(LABEL_HOLDER, LAST, "lattice_key", another_key),
        r"feature-c, block 0: a returned sum has more noise than",
    ),
    "a foreign key in the chain": (
        *(LABEL_HOLDER, FIRST, "lattice_key", another_key),
        r"feature-c, block 0: a returned sum has more noise than",
    ),
    "other parameters than agreed": (
        *(LABEL_HOLDER, FIRST, "lattice_key", other_parameters),
        r"the key of label-holder cannot be used: .*other lattice parameters than this job agreed on",
    ),
    "weak parameters": (
        *(LABEL_HOLDER, LAST, "lattice_key", a_short_ring),
        r"other lattice parameters than this job agreed on",
    ),
    "half a key": (
        *(LABEL_HOLDER, LAST, "lattice_key", half_a_key),
        r"a public key of \d+ bytes, its parameters give \d+",
    ),
    "a key of the release that used SEAL": (
        *(LABEL_HOLDER, LAST, "lattice_key", of_the_last_release),
        r"the key of label-holder cannot be used: .*other lattice parameters than this job agreed on",
    ),
    "a mask of another length": (
        *(LABEL_HOLDER, FIRST, "column_layout", a_column_less),
        r"feature-b: 1 of this party's splits in tree 1 have no column at label-holder: the shards are of different",
    ),
    "a column that only others decide left out": (
        *(LABEL_HOLDER, LAST, "column_layout", a_column_of_others_less),
        r"other lattice parameters than this job agreed on",
    ),
    "columns of no node": (
        *(LABEL_HOLDER, LAST, "column_layout", columns_of_no_node),
        r"has \d+ columns of tree 1, which has \d splits",
    ),
    "a leaf less": (
        *(LABEL_HOLDER, FIRST, "column_layout", a_leaf_less),
        r"tree 1 has \d leaves at label-holder, \d in this party's shard: the shards are of different jobs",
    ),
    "a tree too many": (
        *(LABEL_HOLDER, LAST, "column_layout", a_tree_too_many),
        r"label-holder predicts with tree 2, this party's shard has 2 trees: the shards are of different jobs",
    ),
    "a tree twice": (*(LABEL_HOLDER, LAST, "column_layout", a_tree_twice), r"label-holder has named tree 0 twice"),
    "a way that is not there": (
        *(LABEL_HOLDER, LAST, "column_layout", a_way_that_is_not_there),
        r"a column of tree 1 to which no way leads",
    ),
    "columns of the score that are not there": (
        *(LABEL_HOLDER, LAST, "column_layout", columns_that_are_not_there),
        r"has named columns of the score wrongly",
    ),
    "records that are not there": (*(LABEL_HOLDER, FIRST, "block_records", records_beyond), r"chunk|record"),
    "no sums": (*(LAST, LABEL_HOLDER, "lattice_sums", no_sums), r"feature-c, block 0: 0 sums of 1 outputs"),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", LIES)
def test_what_cannot_be_is_named(case: str, tmp_path: Path) -> None:
    """One parcel changed on its way: an error that says what is wrong, no file; on an honest line the right scores."""
    assert_named(LIES[case], tmp_path, asked, within=lattice_tolerance(ORACLE))


def test_without_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party installed without a compiler says so, and how to mend it, at the opening; other protocols work there."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        sent = []
        federation.tamper = lambda by, to, parcel: sent.append(parcel) or parcel  # type: ignore[func-returns-value]
        with monkeypatch.context() as patch:
            patch.setattr(library, "PATH", tmp_path / "kernels.so")
            patch.setattr(library, "RECORD", tmp_path / "kernels.json")
            library.RECORD.write_text('{"why": "there was no C compiler"}')
            status = await federation.predict(asked("p"))
            assert (status.state, status.bad_input) == ("failed", True)
            assert re.match(
                r"[a-z-]+: protocol eini-lattice needs native kernels, but the native kernels were not compiled when "
                r"treetap was installed: there was no C compiler: install a C compiler, or set TREETAP_NATIVE=1, and "
                r"install treetap again$",
                status.error,
            )
            assert sent == []
            assert (await federation.predict(asked("q", protocol="interactive"))).state == "finished"
        await federation.close()

    run(main())


@pytest.mark.second_tier
def test_paths_enough_to_hide(tmp_path: Path) -> None:
    """28 trees of eight leaves, all splits at one feature party: enough for both, where Paillier's sums need more."""
    here = world(40, (0, 4), fresh=3)
    params = BoostingParams(n_estimators=28, max_depth=3, max_bin=8, min_child_weight=0.0, reg_lambda=0.1)
    policy = {"min_candidate_bits": 40}

    async def main() -> None:
        federation = Federation(tmp_path, here.tables, policies={LABEL_HOLDER: policy, FIRST: policy})
        await quickly_trained(federation, spec(params, 2, obfuscation="standard"))
        status = await federation.predict(asked("p"))
        assert (status.state, status.error) == ("finished", "")
        oracle = here.oracle(params)
        assert_oracles_scores(status.predictions, oracle, here.newcomers, 40, lattice_tolerance(oracle))
        paillier = await federation.predict(asked("q", protocol="eini"))
        assert "takes no part" in paillier.error
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("party", [LABEL_HOLDER, LAST])
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("min_lattice_bits", "on the prediction lattice with some [0-9]+ bits of secrecy: its policy says"),
        ("min_hiding_bits", "on a lattice that hides the masks behind a returned sum by [0-9]+ bits: its policy says"),
    ],
)
def test_a_key_below_what_a_policy_demands(policy: str, said: str, party: str, tmp_path: Path) -> None:
    """Either role refuses it by the rule before a column is sent; a bit less is taken."""
    federation = Federation(tmp_path, HERE.tables)

    async def main() -> None:
        await federation.train(JOB)
        assert (await federation.predict(asked("p"))).state == "finished"
        keys = [_of_key(parcel) for parcel in parcels if name_of(parcel) == "lattice_key"]
        bits = {"min_lattice_bits": keys[0].secrecy_bits, "min_hiding_bits": keys[0].statistical_bits}[policy]
        for least, state in ((math.floor(bits), "finished"), (math.floor(bits) + 1, "failed")):
            federation.kill(party)
            federation.policies = {party: {policy: least}}
            federation.configs[party] = federation.configs[party].under(federation.policy(party))
            federation.start(party)
            parcels.clear()
            status = await federation.predict(asked(state))
            assert status.state == state, status.error
        assert re.search(
            f"{party} takes no part in a job {said} {policy} = {math.floor(bits) + 1}; .* by eini", status.error
        )
        assert not {name_of(parcel) for parcel in parcels} & {"lattice_columns", "lattice_sums"}
        await federation.close()

    parcels: list[exchange_pb2.PeerMessage] = []

    def heard(sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        del sender, receiver
        parcels.append(parcel)
        return parcel

    federation.tamper = heard
    run(main())


def test_sums_that_a_policy_does_not_give_away(tmp_path: Path) -> None:
    """What comes back is a prediction, and a party may keep it to itself."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies={LAST: {"emits": {"PREDICTION": []}}})
        await federation.train(JOB)
        status = await federation.predict(asked("sums"))
        assert status.state == "failed"
        assert "feature-c does not send PREDICTION to label-holder: its policy says" in status.error
        await federation.close()

    run(main())
