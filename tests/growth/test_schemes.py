"""Keys and sums of a training under either scheme: wrong keys, foreign ciphertexts, sums that no records have."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay import HERE, PARAMS
from tests.simulator import Federation, failed
from tests.tampered import with_fields
from tests.worlds import PARTIES, spec, world
from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import power
from treetap.errors import ConfigError, Malformed
from treetap.protocols.job_spec import check_spec
from treetap.protocols.key_options import LATTICE
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.expansion import ExpansionRules
from treetap.trees.forest_criterion import ForestCriterion, targets
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, _ = PARTIES
Spoil = Callable[[exchange_pb2.PeerMessage, bytes], None]
JOB, ON_LATTICE = spec(PARAMS, obfuscation="standard"), spec(PARAMS, scheme=LATTICE)


class Line:
    """A line on which the first parcel of a kind is changed; `modulus` is the key that has passed."""

    def __init__(self, kind: str, change: Spoil) -> None:
        self._kind, self._change, self.modulus, self.changed = kind, change, b"", False

    def __call__(self, sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        """Carry a parcel between the label holder and one feature party."""
        if {sender, to} != {LABEL_HOLDER, FEATURE}:
            return parcel
        if name_of(parcel) == "public_key":
            self.modulus = parcel.setup.public_key.modulus
        if name_of(parcel) == self._kind and not self.changed:
            self.changed = True
            self._change(parcel, self.modulus)
        return parcel


def _key(**fields: Any) -> Spoil:
    """Give fields of the key other values."""
    return lambda parcel, _: with_fields(**fields)(parcel.setup.public_key)


def even_modulus(parcel: exchange_pb2.PeerMessage, modulus: bytes) -> None:
    parcel.setup.public_key.modulus = modulus[:-1] + bytes([modulus[-1] ^ 1])


def _times(factor: int) -> Spoil:
    """Sums times a factor."""

    def multiplied(parcel: exchange_pb2.PeerMessage, modulus: bytes) -> None:
        public, sums = PublicKey.from_bytes(modulus), parcel.growth.candidate_sums
        sums.ciphertexts = public.write(power(public.ring, public.read(sums.ciphertexts), factor))

    return multiplied


def beyond_the_modulus(parcel: exchange_pb2.PeerMessage, modulus: bytes) -> None:
    gradients = parcel.protocol.boosting.gradients
    squared = int.from_bytes(modulus, "big") ** 2
    gradients.ciphertexts = squared.to_bytes(2 * len(modulus), "big") + gradients.ciphertexts[2 * len(modulus) :]


def foreign(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    """Ciphertexts below n² of which no party knows a plaintext."""
    sums = parcel.growth.candidate_sums
    sums.ciphertexts = b"".join((2 + place).to_bytes(256, "big") for place in range(len(sums.ciphertexts) // 256))


LIES: dict[str, tuple[str, Spoil, str]] = {
    "a key of another scheme": (
        *("public_key", _key(scheme=LATTICE)),
        "the key of label-holder is one of scheme 'lattice', the job says 'paillier'",
    ),
    "a key of no scheme": ("public_key", _key(scheme=""), "is one of scheme '', the job says 'paillier'"),
    "an even modulus": ("public_key", even_modulus, "cannot be used: a Paillier modulus is odd, this one is even"),
    "a longer modulus": (
        *("public_key", _key(modulus=SecretKey.generate(2048).public.to_bytes())),
        "the key of label-holder has 2048 bits, the job says 1024",
    ),
    "slots that do not fit": (
        "public_key",
        _key(slot_widths=[63] * 6),
        "6 slots are not g and h of each output and a count",
    ),
    "a ciphertext out of range": ("gradients", beyond_the_modulus, "a ciphertext is zero or not below n"),
    "sums beyond half of n": (
        *("candidate_sums", _times(1 << 980)),  # so that what is opened is a multiple of n away from the product
        "feature-b has offered what is no sum over its columns: .* bits left above the last slot",
    ),
    "sums times two": (
        *("candidate_sums", _times(2)),  # which fit their slots: more records than the node has
        "feature-b has offered what is no sum over its columns: .* no records of it can have them",
    ),
    "ciphertexts of another key": (
        *("candidate_sums", foreign),
        "feature-b has offered what is no sum over its columns: ",
    ),
}


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("case", LIES)
async def test_what_cannot_be_is_named(case: str, tmp_path: Path) -> None:
    """One parcel changed on its way: an error that says what is wrong, and no model."""
    kind, change, message = LIES[case]

    federation = Federation(tmp_path, HERE.tables, silence_s=5.0)
    line = federation.tamper = Line(kind, change)
    status = await federation.train(JOB)
    assert line.changed
    assert status.state == "failed"
    assert re.search(message, status.error), status.error
    assert all(not list((state / "models").iterdir()) for state in federation.states.values())


async def test_a_party_names_the_schemes_that_it_takes_part_in(tmp_path: Path) -> None:
    """Without a line of the policy it is Paillier's alone; the error has the line."""
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"keys": {"schemes": ["paillier"]}}})
    failed(
        await federation.train(ON_LATTICE),
        "feature-b takes no part in a job under scheme 'lattice'",
        'write schemes = ["paillier", "lattice"] under [keys]',
    )
    assert (await federation.train(JOB, "other")).state == "finished"


def test_jobs_that_no_party_could_do() -> None:
    """Refused before any party is asked: an unknown scheme, one that was taken out, a size that is not offered."""
    check_spec(JOB)
    check_spec(spec(PARAMS, scheme=""))  # of before there was a choice: Paillier
    for changes, message in (
        ({"scheme": "magic"}, "scheme = 'magic': must be one of paillier, lattice"),
        ({"scheme": "okamoto-uchiyama"}, "scheme = 'okamoto-uchiyama' was taken out: "),
        ({"key_bits": 768}, "key_bits = 768: must be 1024, 2048 or 3072 where scheme = 'paillier'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            check_spec(spec(PARAMS, **{"obfuscation": "standard", **changes}))


async def test_records_that_do_not_fit_a_plaintext_are_refused_before_any_is_encrypted(tmp_path: Path) -> None:
    """Nine classes take more bits than the key's; the remedy is named, and a longer key has the room."""
    params = replace(PARAMS, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1)
    here = world(40, (1, 1, 1), objective="multi:softprob", classes=9)

    federation = Federation(tmp_path, here.tables)
    status = await federation.train(spec(params, key_bits=512, obfuscation="standard"))
    assert (status.state, status.bad_input) == ("failed", True)
    assert re.search("a Paillier key of 512 bits has 510: use .* or a longer key", status.error), status.error
    assert "gradients" not in {message.word for message in federation.log}
    assert (await federation.train(spec(params, obfuscation="standard"), "other")).state == "finished"


def _tree(gini: bool, width: int) -> tuple[GrowingTree, np.ndarray]:
    """A tree of six records, and its honest left sums of the first 2 and 4 of them."""
    if gini:
        labels = np.array([0, 1, 2, 0, 1, 2])
        found = targets(labels, "gini", 3)
        values = np.concatenate([found.values, np.ones((6, 1), dtype=np.int64)], axis=1)
        criterion: BoostingCriterion | ForestCriterion = ForestCriterion(found, ForestParams())
    else:
        values = np.array([[UNIT, UNIT >> 2, 1], [-UNIT, 1, 1], [0, 5, 1]] * 2)
        criterion = BoostingCriterion(1.0, BoostingParams(objective="binary:logistic"))
    tree = GrowingTree(values, criterion, ExpansionRules(2), subtract=True)
    assert values.shape[1] == width
    return tree, np.array([[values[:2].sum(axis=0), values[:4].sum(axis=0)]])


@pytest.mark.parametrize(("gini", "width"), [(False, 3), (True, 4)])
def test_sums_that_no_records_have_are_found_in_every_slot(gini: bool, width: int) -> None:
    """Honest sums pass, and those at the edge; one beyond it is refused whichever slot it is in."""
    tree, sums = _tree(gini, width)
    tree.check_offered(sums)
    tree.check_offered(np.zeros_like(sums))
    least, most = (np.append(bound, 1) * 6 for bound in tree._criterion.ranges(width))
    tree.check_offered(np.array([[most]]))
    for slot in range(width):
        for edge, step in ((most, 1), (np.append(least[:-1], 0), -1)):
            beyond = edge.copy()
            beyond[-1] = 6 if slot < width - 1 else beyond[-1]
            beyond[slot] = edge[slot] + step
            with pytest.raises(Malformed, match="no records of it can have them"):
                tree.check_offered(np.array([[sums[0, 0], beyond]]))


def test_a_forest_of_numbers_has_sums_of_either_sign() -> None:
    """A target is centred: its sums are within as many units as records, above and below."""
    found = targets(np.array([1.0, 2.0, 4.0]), "squared_error", 0)
    least, most = ForestCriterion(found, ForestParams(criterion="squared_error")).ranges(2)
    assert (least.tolist(), most.tolist()) == ([-UNIT], [UNIT])
