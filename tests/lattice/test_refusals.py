"""Lattice predictions that cannot be: contents that do not fit, shards of different jobs, policies, options."""

from __future__ import annotations

import math
import re
import struct
from functools import partial
from pathlib import Path

import pytest

from tests import replay
from tests.campaign.cipher import quickly_trained
from tests.replay import HERE, JOB
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, assert_oracles_scores, lattice_tolerance, spec, world
from treetap.lattice.parameters import PARAMETERS_BYTES, Parameters
from treetap.native import library
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FIRST, LAST = PARTIES
#: A prediction by the lattice, unless another protocol is named.
asked = partial(replay.asked, protocol="eini-lattice")


async def test_without_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party installed without a compiler says so, and how to mend it, at the opening; other protocols work there."""
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


@pytest.mark.second_tier
async def test_paths_enough_to_hide(tmp_path: Path) -> None:
    """28 trees of eight leaves, all splits at one feature party: enough for both, where Paillier's sums need more."""
    here = world(40, (0, 4), fresh=3)
    params = BoostingParams(n_estimators=28, max_depth=3, max_bin=8, min_child_weight=0.0, reg_lambda=0.1)
    policy = {"columns": {"min_candidate_bits": 40}}

    federation = Federation(tmp_path, here.tables, policies={LABEL_HOLDER: policy, FIRST: policy})
    await quickly_trained(federation, spec(params, 2, obfuscation="standard"))
    status = finished(await federation.predict(asked("p")))
    oracle = here.oracle(params)
    assert_oracles_scores(status.predictions, oracle, here.newcomers, 40, lattice_tolerance(oracle))
    paillier = await federation.predict(asked("q", protocol="eini"))
    assert "takes no part" in paillier.error


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", [LABEL_HOLDER, LAST])
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("min_lattice_bits", "on the prediction lattice with some [0-9]+ bits of secrecy: its policy says"),
        ("min_hiding_bits", "on a lattice that hides the masks behind a returned sum by [0-9]+ bits: its policy says"),
    ],
)
async def test_a_key_below_what_a_policy_demands(policy: str, said: str, party: str, tmp_path: Path) -> None:
    """Either role refuses it by the rule before a column is sent; a bit less is taken."""
    federation = Federation(tmp_path, HERE.tables)

    parcels: list[exchange_pb2.PeerMessage] = []

    def heard(sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> None:
        del sender, receiver
        parcels.append(parcel)

    federation.tamper = heard
    await federation.train(JOB)
    assert (await federation.predict(asked("p"))).state == "finished"
    keys = [
        Parameters(*struct.unpack("<5Q", parcel.protocol.lattice.lattice_key.public[:PARAMETERS_BYTES]))
        for parcel in parcels
        if name_of(parcel) == "lattice_key"
    ]
    bits = {"min_lattice_bits": keys[0].secrecy_bits, "min_hiding_bits": keys[0].statistical_bits}[policy]
    for least, state in ((math.floor(bits), "finished"), (math.floor(bits) + 1, "failed")):
        federation.kill(party)
        federation.policies = {party: {"keys": {policy: least}}}
        federation.configs[party] = federation.configs[party].under(federation.policy(party))
        federation.start(party)
        parcels.clear()
        status = await federation.predict(asked(state))
        assert status.state == state, status.error
    assert re.search(
        f"{party} takes no part in a job {said} {policy} = {math.floor(bits) + 1}; .* by eini", status.error
    )
    assert not {name_of(parcel) for parcel in parcels} & {"lattice_columns", "lattice_sums"}
