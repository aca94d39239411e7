"""Keys and sums of a training under either scheme: wrong keys, foreign ciphertexts, sums that no records have."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.pivodl import jobs as pivodl
from tests.replay import HERE, PARAMS
from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec, world
from treetap.additive.okamoto_uchiyama.secret_key import SecretKey as OkamotoUchiyamaKey
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import power
from treetap.additive.sums.public_keys import public_key
from treetap.errors import BadInput, ConfigError, Malformed
from treetap.protocols.job_spec import check_spec
from treetap.protocols.key_options import OKAMOTO_UCHIYAMA, PAILLIER, SCHEMES
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.expansion import ExpansionRules
from treetap.trees.forest_criterion import ForestCriterion, targets
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 1024-bit Okamoto-Uchiyama key")
LABEL_HOLDER, FEATURE, _ = PARTIES
Change = Callable[[exchange_pb2.PeerMessage], None]
JOBS = {scheme: spec(PARAMS, scheme=scheme, obfuscation="standard") for scheme in SCHEMES}


class Line:
    """A line on which the first parcel of a kind is changed; `modulus` is the key that has passed."""

    def __init__(self, kind: str, change: Callable[[exchange_pb2.PeerMessage, bytes], None]) -> None:
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


def another_scheme(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    parcel.setup.public_key.scheme = PAILLIER


def no_scheme(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    parcel.setup.public_key.scheme = ""


def paillier_modulus(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    parcel.setup.public_key.modulus = SecretKey.generate(1024).public.to_bytes()


def longer_modulus(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    parcel.setup.public_key.modulus = SecretKey.generate(2048).public.to_bytes()


def wider_slots(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    del parcel.setup.public_key.slot_widths[:]
    parcel.setup.public_key.slot_widths.extend([63] * 6)


def beyond_the_modulus(parcel: exchange_pb2.PeerMessage, modulus: bytes) -> None:
    gradients = parcel.protocol.boosting.gradients
    gradients.ciphertexts = modulus + gradients.ciphertexts[len(modulus) :]


def raised(parcel: exchange_pb2.PeerMessage, modulus: bytes) -> None:
    """Sums times 2^300: beyond p/2, so that what is opened is a multiple of p away from the product."""
    public = public_key(OKAMOTO_UCHIYAMA, modulus, allow_breakable=True)
    sums = parcel.growth.candidate_sums
    sums.ciphertexts = public.write(power(public.ring, public.read(sums.ciphertexts), 1 << 300))


def doubled(parcel: exchange_pb2.PeerMessage, modulus: bytes) -> None:
    """Sums times 2, which fit their slots: more records than the node has."""
    public = public_key(OKAMOTO_UCHIYAMA, modulus, allow_breakable=True)
    sums = parcel.growth.candidate_sums
    sums.ciphertexts = public.write(power(public.ring, public.read(sums.ciphertexts), 2))


def foreign(parcel: exchange_pb2.PeerMessage, _: bytes) -> None:
    """Ciphertexts below n of which no party knows a plaintext."""
    sums = parcel.growth.candidate_sums
    sums.ciphertexts = b"".join((2 + place).to_bytes(128, "big") for place in range(len(sums.ciphertexts) // 128))


LIES: dict[str, tuple[str, Callable[[exchange_pb2.PeerMessage, bytes], None], str]] = {
    "a key of another scheme": (
        *("public_key", another_scheme),
        "the key of label-holder is one of scheme 'paillier', the job says 'okamoto-uchiyama'",
    ),
    "a key of no scheme": ("public_key", no_scheme, "is one of scheme '', the job says 'okamoto-uchiyama'"),
    "a modulus of another scheme": (
        *("public_key", paillier_modulus),
        "the key of label-holder cannot be used: an Okamoto-Uchiyama modulus p²q is 3 modulo 4",
    ),
    "a longer modulus": ("public_key", longer_modulus, "the key of label-holder has 2048 bits, the job says 1024"),
    "slots that do not fit": ("public_key", wider_slots, "a plaintext of this key holds 340"),
    "a ciphertext out of range": ("gradients", beyond_the_modulus, "a ciphertext is zero or not below n"),
    "sums beyond half of p": (
        *("candidate_sums", raised),
        "feature-b has offered what is no sum over its columns: .* bits left above the last slot",
    ),
    "sums times two": (
        *("candidate_sums", doubled),
        "feature-b has offered what is no sum over its columns: .* no records of it can have them",
    ),
    "ciphertexts of another key": (
        *("candidate_sums", foreign),
        "feature-b has offered what is no sum over its columns: ",
    ),
}


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("case", LIES)
def test_what_cannot_be_is_named(case: str, tmp_path: Path) -> None:
    """One parcel changed on its way: an error that says what is wrong, and no model."""
    kind, change, message = LIES[case]

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, silence_s=5.0)
        line = federation.tamper = Line(kind, change)
        status = await federation.train(JOBS[OKAMOTO_UCHIYAMA])
        assert line.changed
        assert status.state == "failed"
        assert re.search(message, status.error), status.error
        assert all(not list((state / "models").iterdir()) for state in federation.states.values())
        await federation.close()

    run(main())


def test_a_party_names_the_schemes_that_it_takes_part_in(tmp_path: Path) -> None:
    """Without a line of the policy it is Paillier's alone; the error has the line."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"schemes": ["paillier"]}})
        status = await federation.train(JOBS[OKAMOTO_UCHIYAMA])
        assert status.state == "failed"
        assert "feature-b takes no part in a job under scheme 'okamoto-uchiyama'" in status.error
        assert 'write schemes = ["paillier", "okamoto-uchiyama"] above the tables' in status.error
        assert (await federation.train(JOBS[PAILLIER], "other")).state == "finished"
        await federation.close()

    run(main())


def test_jobs_that_no_party_could_do() -> None:
    """Refused before any party is asked: an unknown scheme, a size or obfuscation that it lacks, PIVODL under it."""
    good = JOBS[OKAMOTO_UCHIYAMA]
    check_spec(good)
    check_spec(spec(PARAMS, scheme=""))  # of before there was a choice: Paillier
    for changes, message in (
        ({"scheme": "magic"}, "scheme = 'magic': must be one of paillier, okamoto-uchiyama"),
        ({"key_bits": 512}, "key_bits = 512: must be 2048 or 3072 where scheme = 'okamoto-uchiyama'"),
        (
            {"obfuscation": "half-length"},
            "obfuscation = 'half-length': scheme 'okamoto-uchiyama' has none, since the proof that it rests on is for "
            "n = pq; use 'short-exponent' or 'standard'",
        ),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            check_spec(spec(PARAMS, **{"scheme": OKAMOTO_UCHIYAMA, "obfuscation": "standard", **changes}))
    with pytest.raises(ConfigError, match="scheme = 'okamoto-uchiyama' and protocol 'pivodl' do not go together"):
        check_spec(spec(pivodl.PARAMS, scheme=OKAMOTO_UCHIYAMA, obfuscation="standard"))


def test_records_that_do_not_fit_a_plaintext_are_refused_before_any_is_encrypted(tmp_path: Path) -> None:
    """Nine classes take more bits than a third of the key's; the remedy is named, and Paillier's key has the room."""
    params = replace(PARAMS, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1)
    here = world(40, (1, 1, 1), objective="multi:softprob", classes=9)

    async def main() -> None:
        federation = Federation(tmp_path, here.tables)
        status = await federation.train(spec(params, scheme=OKAMOTO_UCHIYAMA, obfuscation="standard"))
        assert (status.state, status.bad_input) == ("failed", True)
        assert re.search(
            "a okamoto-uchiyama key of 1024 bits has 340: use .*a longer key or scheme = 'paillier'", status.error
        ), status.error
        assert "gradients" not in {message.word for message in federation.log}
        assert (await federation.train(spec(params, obfuscation="standard"), "other")).state == "finished"
        await federation.close()

    run(main())


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
    with pytest.raises(BadInput):
        check_spec(spec(PARAMS, scheme="magic"))


def test_no_part_of_the_secret_key_is_in_a_file_or_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """p, q and g stay in memory; n is in the parties' transcripts, so the search would find them."""
    made: list[OkamotoUchiyamaKey] = []
    generate = OkamotoUchiyamaKey.generate

    def remembered(bits: int, allow_breakable: bool) -> OkamotoUchiyamaKey:
        made.append(generate(bits, allow_breakable))
        return made[-1]

    monkeypatch.setattr(OkamotoUchiyamaKey, "generate", remembered)

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, record="both")
        assert (await federation.train(JOBS[OKAMOTO_UCHIYAMA])).state == "finished"
        await federation.close()

    run(main())
    (key,) = made
    raw, width = key.for_worker(), key.public.ciphertext_bytes
    parts = [int.from_bytes(raw[at * width : (at + 1) * width], "big") for at in range(3)]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    messages = [
        record.message
        for party in PARTIES
        for record in TranscriptReader(tmp_path / party / "state" / "transcripts" / "job")
    ]
    assert any(key.public.to_bytes() in message for message in messages)
    for part in parts:
        size = -(-part.bit_length() // 8)
        forms = [part.to_bytes(size, order)[: size // 2] for order in ("big", "little")]
        forms += [str(part).encode()[:60], f"{part:x}".encode()[:60]]
        assert not any(form in content for form in forms for content in (*files, *messages))
