"""Keys and sums of a training under either scheme: wrong keys, foreign ciphertexts, sums that no records have.

Bounds of what a job needs, and its memory.

- Messages of a tree are no longer than its nodes and candidates make them; those that are right are never refused.
- Memory of a training in the parties' main processes: it grows by few bytes with each record, and with no copies.
"""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign.small_jobs import FOREST
from tests.replay import HERE, PARAMS
from tests.simulator import Federation, failed, finished
from tests.tampered import with_fields
from tests.worlds import PARTIES, spec, world
from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import power
from treetap.additive.sums.kernels import HeldTree
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import ConfigError, Malformed
from treetap.lattice.histogram_scheme import parameters_of
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import SCORES, resumed
from treetap.party.runtime import mailbox
from treetap.party.runtime.job_store import Store
from treetap.protocols.growth import GROWTH, TreeSizes, sums_of_nodes, words_of_nodes
from treetap.protocols.job_spec import check_spec
from treetap.protocols.key_options import LATTICE, PAILLIER, KeyKind
from treetap.protocols.messages import Members, Series
from treetap.protocols.prediction import predict_request
from treetap.tables.labels import Labels
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.expansion import ExpansionRules
from treetap.trees.forest_criterion import ForestCriterion, targets
from treetap.trees.growing_tree import GrowingTree, with_zeros
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.slots import Slots, width_for
from treetap.trees.tree_bins import left_sums_of
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, growth_pb2

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
    """Refused before any party is asked: an unknown scheme, a size that is not offered."""
    check_spec(JOB)
    check_spec(spec(PARAMS, scheme=""))  # of before there was a choice: Paillier
    for changes, message in (
        ({"scheme": "magic"}, "scheme = 'magic': must be one of paillier, lattice"),
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


COLUMNS, BLOCK = 8, 256


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("params", "scheme"),
    [(PARAMS, PAILLIER), (FOREST, PAILLIER), (PARAMS, LATTICE), (FOREST, LATTICE)],
    ids=["boosting", "forest", "boosting on a lattice", "forest on a lattice"],
)
async def test_what_a_job_needs_is_within_its_bounds(
    params: TreeParams, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they leave next to nothing beside the contents, in a training and an encrypted prediction."""
    monkeypatch.setattr(mailbox, "ALLOWANCE", 3 * mailbox.OVERHEAD)

    federation = Federation(tmp_path, HERE.tables)
    finished(await federation.train(spec(params, scheme=scheme)))
    asked = predict_request(model="job", protocol="eini")
    asked.parameters.eini.key_bits = 1024
    finished(await federation.predict(asked))


def test_a_party_without_candidates_may_name_all_nodes_of_a_level() -> None:
    """Its columns are constant: a level's message has the numbers of its nodes, three bytes each from 16,384 on."""
    params = ForestParams(1, max_depth=17, max_bin=4)
    members, key = Members("coordinator", PARTIES[0], PARTIES[1:]), KeyKind.of(spec(params))
    sizes = TreeSizes(members=members, key=key, params=params, records=1 << 20, offered={PARTIES[1]: (0, 0)})
    sums = growth_pb2.CandidateSums(nodes=range(1 << 16, 1 << 17))
    bound = mailbox.expected_of(GROWTH, PARTIES[0], sizes)["candidate_sums"]
    assert bound.most(PARTIES[1], 0, 16) > len(sums.SerializeToString())


async def test_sums_below_the_root_are_bounded_by_those_of_the_root(tmp_path: Path) -> None:
    """A party's number of candidates, which the label holder cannot know, is known from the tree's first level on."""
    federation = Federation(tmp_path, HERE.tables)

    def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "candidate_sums" and parcel.stage == 1:
            parcel.growth.candidate_sums.ciphertexts += bytes(1 << 20)
        return parcel

    federation.tamper = tamper
    status = await federation.train(spec(PARAMS, obfuscation="standard"))
    assert status.state != "finished"
    assert "round 0, stage 1 has more than the" in status.error


@pytest.mark.parametrize("records", [40, 50_000])
def test_words_and_halves_of_a_lattice_are_bounded_by_their_layout(records: int) -> None:
    """What is due passes, and bounds are no more than some times as much."""
    params = BoostingParams(n_estimators=5, max_depth=5, max_bin=32)
    members, (holder, party) = Members("coordinator", PARTIES[0], PARTIES[1:]), PARTIES[:2]
    slots = Slots((width_for(records, 1 << 32), width_for(records, 1 << 30), width_for(records, 1)))
    agreed = parameters_of(records, slots, 32, 64, 128, 1)
    key, words, nodes = KeyKind(LATTICE, 0), agreed.words, 8  # as many as are built of 16
    sizes = TreeSizes(members=members, key=key, params=params, records=records, words=words, offered={party: (0, 62)})
    query = sum(
        growth_pb2.EncryptedWords(node=31, first=first, count=count, ciphertexts=bytes(13 * words * count)).ByteSize()
        for first, count in ((0, records), (records, 4096))
    )
    due, bound = nodes * query, words_of_nodes(sizes, Series(holder, party, 0, 4))
    assert due <= bound <= 2 * due + nodes * 64  # of siblings both, by the nodes that may be compared
    firsts = bytes(nodes * -(-62 * words * agreed.reply_bits // 8))
    seconds = bytes(nodes * 62 * agreed.second_half_bytes)
    halves = growth_pb2.CandidateSums(nodes=range(16, 32), candidates=62, ciphertexts=firsts, second_halves=seconds)
    assert halves.ByteSize() <= sums_of_nodes(sizes, Series(party, holder, 0, 4)) <= 4 * halves.ByteSize()
    # at the root a party has said how many candidates it has
    root, first = Series(party, holder, 0, 0), 62 * (agreed.second_half_bytes + 8 * words)
    sizes.announced[party] = 62
    assert first <= sums_of_nodes(sizes, root) <= 2 * first


def by_records(peak: Callable[[int], int]) -> float:
    """Bytes by which the peak grows with a record; modules that the first call imports do not count."""
    few, many = 20_000, 40_000
    peak(few)
    return (peak(many) - peak(few)) / (many - few)


def traced(work: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy hold at once for some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def split_table(records: int) -> SplitTable:
    """Columns of 30 values, in bins."""
    values = np.random.default_rng(records).integers(0, 30, (records, COLUMNS)).astype(np.float64)
    names = [f"x{column}" for column in range(COLUMNS)]
    return SplitTable("label-holder", names, bin_table(values, names, 32))


def test_a_tree_at_the_label_holder(tmp_path: Path) -> None:
    """Gradients, the sums of the own columns and the scores after a tree take less than 115 bytes a record."""
    params = BoostingParams(max_depth=2)

    def peak(records: int) -> int:
        table = split_table(records)
        labels = Labels(np.arange(records) % 2, ["0", "1"])
        store = Store(tmp_path / str(records)).job("job")

        def tree() -> None:
            state = resumed(BoostingRounds(params, len(labels.classes), labels.values), store)
            values, scale, _ = state.derivatives(0)
            values = with_zeros(values, records)
            columns = table.columns_of_tree(0, params, permuted=False)
            growing = GrowingTree(values, BoostingCriterion(scale, params), params.expansion, subtract=True)
            left_sums_of(columns.bins, values, growing.build, [growing.rows[node] for node in growing.build])
            store.save_arrays(SCORES, state.state())

        return traced(tree)

    assert by_records(peak) < 115


class Workers:
    """Two workers that keep no ciphertext: they count those that each got."""

    workers = 2

    def __init__(self) -> None:
        self._kept = [0, 0]

    async def call(self, worker: int, kernel: Callable[..., Any], *args: Any, us: float = 0.0) -> Any:
        if kernel is not HeldTree.add:
            return None
        _, codes, _ = args
        self._kept[worker] += len(codes)
        return self._kept[worker] - len(codes), 0

    def begin(self, worker: int, kernel: Callable[..., Any], *args: Any) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is left."""


def test_a_tree_at_a_feature_party() -> None:
    """Beside its bins the main process takes less than 20 bytes for each record whose ciphertext went to a worker."""
    public = PublicKey((1 << 1023) + 1)  # no worker computes with it

    def peak(records: int) -> int:
        columns = split_table(records).columns_of_tree(0, BoostingParams(), permuted=True)
        block = bytes(BLOCK * public.ciphertext_bytes)

        async def tree() -> None:
            shapes = columns.candidates.shapes
            sums = EncryptedSums(Workers(), public, Slots((60, 60, 30)), columns.codes, shapes)
            for first in range(0, records, BLOCK):
                rows = np.arange(first, min(first + BLOCK, records))
                await sums.add_block(rows, block[: len(rows) * public.ciphertext_bytes])
            await sums.close()

        return traced(lambda: asyncio.run(tree()))

    assert by_records(peak) < 20
