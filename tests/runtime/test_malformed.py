"""Contents that cannot be what they claim to be: every protocol ends with an error that says whose, what and where.

One parcel of a small job is changed on its way. Afterwards, on an honest line, the same training, resumed, finds the
oracle's model, and another prediction the right scores: nothing of the false content has been kept.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign.small_jobs import TRAININGS, begin, go_on, play, wrong
from tests.pivodl.federations import transparent
from tests.replay import HERE
from tests.tampered import Change, edited, key_of, with_fields, within
from tests.worlds import PARTIES
from treetap.lattice.parameters import PARAMETERS_BYTES, Parameters
from treetap.lattice.scheme import LatticeKey
from treetap.wire.frame import content_of, name_of
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.v2 import exchange_pb2, types_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")

LABEL_HOLDER, FEATURE, OTHER = PARTIES
N = len(HERE.y)
WIDTH = 256  # bytes of a ciphertext under a key of 1024 bits
#: Sender, receiver, "" for any, and kind of a parcel, what is changed in its content, and what the operator reads.
Lie = tuple[str, str, str, Change, str]


def chunk(*rows: int) -> types_pb2.RecordChunk:
    """A set of records of the job as one message."""
    (only,) = chunks_of(np.array(rows, dtype=np.int64), N)
    return only


def _twice(field: str) -> Change:
    """Repeat the first of several entries."""
    return lambda content: getattr(content, field).append(getattr(content, field)[0])


def _without(field: str) -> Change:
    return lambda content: content.ClearField(field)


def _of_every(field: str, change: Change) -> Change:
    """Change every entry of a field."""
    return lambda content: [change(each) for each in getattr(content, field)]


def _lattice_key(other: Callable[[Parameters], bytes]) -> Change:
    return edited(public=lambda public: other(Parameters(*struct.unpack("<5Q", public[:PARAMETERS_BYTES]))))


def _of_the_last_release(own: Parameters) -> bytes:
    """Its parameters had primes of 60 bits and the size of a special one."""
    sizes = (own.degree, own.data_primes // 2, 38, own.plain_bits, own.columns, own.members)
    return struct.pack("<6Q", *sizes) + bytes(1000)


def _a_column_less(content: Any) -> None:
    columns = content.trees[1].columns
    first = next(column.branches[0] for column in columns if column.branches)
    kept = [column for column in columns if list(column.branches) != [type(first)(handle=first.handle, left=True)]]
    assert len(kept) < len(columns)
    with_fields(columns=kept)(content.trees[1])


def _random(ciphertexts: bytes) -> bytes:
    """Below every n², since the two top bits of both primes are set."""
    return b"".join(b"\x10" + os.urandom(WIDTH - 1) for _ in range(len(ciphertexts) // WIDTH))


def _moved(child: Any) -> None:
    """The last record that went left goes right."""
    child.left.CopyFrom(chunk(*rows_of([child.left], N)[:-1]))


_SHORTER = edited(ciphertexts=lambda old: old[:-WIDTH])
_GAP = _of_every("trees", edited(incoming=lambda old: [entry + (entry > 0) for entry in old]))
_SUM_OF_SOME = _of_every("trees", lambda tree: with_fields(outgoing=[int(entry > 0) for entry in tree.incoming])(tree))
_GAP_BEHIND = _of_every("trees", lambda tree: with_fields(outgoing=[5 * (entry > 0) for entry in tree.incoming])(tree))
_FAR_OFF = edited(outgoing=lambda old: [2**32 - 1 if goal else 0 for goal in old])  # as a list it takes 128 GiB
_FURTHER = _of_every("trees", edited(outgoing=lambda old: [5 + goal for goal in old]))
_BY_KEY = (LABEL_HOLDER, FEATURE, "public_key")
_SAMPLED = (LABEL_HOLDER, FEATURE, "sampled_records")
_GRADIENTS = (LABEL_HOLDER, FEATURE, "gradients")
_SPACES = (LABEL_HOLDER, OTHER, "instance_spaces")  # feature-b splits the root
_SUMS = (FEATURE, LABEL_HOLDER, "candidate_sums")
_CHILDREN = (FEATURE, LABEL_HOLDER, "children")
_QUERIES, _ANSWERS = (LABEL_HOLDER, FEATURE, "route_queries"), (FEATURE, LABEL_HOLDER, "route_answers")
_LABELS = (LABEL_HOLDER, FEATURE, "encrypted_labels")
_ENTRIES, _FURTHER_ENTRIES = (LABEL_HOLDER, FEATURE, "leaf_entries"), (FEATURE, OTHER, "leaf_entries")
_LAYOUT, _LAST_LAYOUT = ((LABEL_HOLDER, party, "entry_layout") for party in (FEATURE, OTHER))
_PARTS, _LAST_PARTS = ((LABEL_HOLDER, party, "attribution_layout") for party in (FEATURE, OTHER))
_COLUMNS, _FURTHER_COLUMNS = (LABEL_HOLDER, FEATURE, "lattice_columns"), (FEATURE, OTHER, "lattice_columns")
_SHAPE, _LAST_SHAPE = ((LABEL_HOLDER, party, "column_layout") for party in (FEATURE, OTHER))
_KEY, _LAST_KEY = ((LABEL_HOLDER, party, "lattice_key") for party in (FEATURE, OTHER))
_ARRIVED = (FEATURE, "", "arrived_records")

LIES: dict[str, list[Lie]] = {
    "boosting": [
        (*_BY_KEY, key_of(2048), "the key of label-holder has 2048 bits, the job says 1024"),
        (*_BY_KEY, edited(modulus=lambda old: old[:-3]), "the key of label-holder has 1000 bits, the job says 1024"),
        (*_BY_KEY, edited(modulus=lambda old: old[:-1] + b"\x02"), "the key .* cannot be used: a Paillier modulus is"),
        (*_BY_KEY, _without("slot_widths"), "the key of label-holder cannot be used: slots need widths"),
        (*_BY_KEY, edited(slot_widths=lambda old: [64, *old[1:]]), "cannot be used: slots need widths"),
        (
            *_BY_KEY,
            edited(slot_widths=lambda old: [39, *old[1:]]),
            "39, 36, 6 bits, the job implies 38, 36, 6",
        ),
        (*_BY_KEY, edited(slot_widths=lambda old: [*old[:2], 5]), "38, 36, 5 bits, the job implies 38, 36, 6"),
        (*_BY_KEY, edited(slot_widths=lambda old: [38, 38, 36, 36, 6]), "5 slots are not g and h of each output and a"),
        (*_BY_KEY, edited(slot_widths=lambda old: [*old, *[60] * 20]), "cannot be used: one record needs"),
        (*_SAMPLED, within("chunks", 0, with_fields(span=N + 1)), "a range of 17 from 0 cannot follow 0 of 16"),
        (*_SAMPLED, within("chunks", 0, with_fields(span=N - 1, deltas=b"")), "the ranges end at 15 of 16 records"),
        (*_SAMPLED, _without("chunks"), "records: the ranges end at 0 of 16 records"),
        (*_SAMPLED, with_fields(chunks=[chunk(*range(N - 1))]), "a draw that differs from that of the job's seed in 1"),
        (*_GRADIENTS, with_fields(first=1), "label-holder sent ciphertexts out of place in tree 0"),
        (
            *_GRADIENTS,
            edited(count=lambda old: old - 1, ciphertexts=lambda old: old[:-WIDTH]),
            "label-holder sent 15 ciphertexts for 16 records in tree 0",
        ),
        (*_GRADIENTS, edited(count=lambda old: old - 1), "15 records need 3840 bytes of ciphertexts, got 4096"),
        (*_GRADIENTS, edited(ciphertexts=lambda old: bytes(WIDTH) + old[WIDTH:]), "a ciphertext is zero or not below"),
        (*_GRADIENTS, edited(ciphertexts=lambda old: b"\xff" * WIDTH + old[WIDTH:]), "is zero or not below n²"),
        (*_SPACES, _without("spaces"), "OutOfOrder: the records of node 2 of tree 0 are not known at this party"),
        (
            *_SPACES,
            within("spaces", 0, "records", with_fields(span=3, deltas=b"\x01")),
            "records: the ranges end at 3 of 16 records",
        ),
        (*_SUMS, _SHORTER, "candidates are 1 ciphertexts of 256 bytes, got 0 bytes"),
        (*_SUMS, edited(ciphertexts=lambda old: 2 * old), "candidates are 1 ciphertexts of 256 bytes, got 512 bytes"),
        (*_SUMS, edited(ciphertexts=lambda old: old[:-1]), "candidates are 1 ciphertexts of 256 bytes, got 255 bytes"),
        (*_SUMS, edited(ciphertexts=lambda old: bytes(len(old))), "a ciphertext is zero or not below n²"),
        (*_SUMS, edited(ciphertexts=_random), "has bits left above the last slot"),
        (*_SUMS, edited(nodes=lambda old: [7, *old[1:]]), r"feature-b sent candidates of nodes \[7\], expected \[1\]"),
        (*_SUMS, _without("nodes"), r"feature-b sent candidates of nodes \[\], expected \[1\]"),
        (*_SUMS, with_fields(candidates=0), "0 candidates are 0 ciphertexts of 256 bytes, got 256"),
        (*_CHILDREN, within("children", 0, with_fields(node=5)), r"feature-b sent children of nodes \[5\], expected"),
        (*_CHILDREN, _without("children"), r"feature-b sent children of nodes \[\], expected \[1\]"),
        (
            *_CHILDREN,
            within("children", 0, _moved),
            "node 1 do not have the sums that its owner offered",
        ),
        (
            *_CHILDREN,
            lambda it: (_twice("children")(it), edited(handle=lambda old: old + 1)(it.children[1])),
            "two handles for the split of node 1",
        ),
        (*_CHILDREN, _twice("children"), "records: a range of 16 from 0 cannot follow 16 of 16 records"),
        (
            *_CHILDREN,
            within("children", 0, "left", lambda it: (it.ClearField("coding"), with_fields(span=N)(it))),
            "records: the range from 0 needs a bitmap or deltas, one of them",
        ),
        (
            *(OTHER, LABEL_HOLDER, "children"),
            within("children", 0, lambda child: child.left.CopyFrom(chunk(*range(N)))),
            "the children of node 3 hold records that never reached it",
        ),
    ],
    "forest": [
        (*_LABELS, with_fields(first=1), "label-holder sent encrypted labels out of place"),
        (
            *_LABELS,
            edited(count=lambda old: old - 1, ciphertexts=lambda old: old[:-WIDTH]),
            "sent encrypted labels of 15 of 16 records",
        ),
        (
            *_LABELS,
            edited(count=lambda old: old + 1, ciphertexts=lambda old: old + old[:WIDTH]),
            "not the ciphertexts of records that are still to come",
        ),
        (*_LABELS, edited(count=lambda old: old - 1), "out of place"),
        (*_LABELS, edited(ciphertexts=lambda old: bytes(WIDTH) + old[WIDTH:]), "zero or not below n²"),
        (*_SAMPLED, with_fields(times=2), "records drawn 2 times that were not drawn 1 times"),
        (*_SAMPLED, with_fields(chunks=[chunk()]), "records drawn 1 times that were not drawn 0 times"),
    ],
    "pivodl": [
        ("", "", "party_nonce", with_fields(nonce=bytes(32)), "is not the one that it has committed to"),
        ("", "", "labelled_records", _twice("chunks"), "records: a range of 30 from 0 cannot follow 30 of 30"),
        (
            *("", "", "record_bins"),
            within("columns", 0, edited(codes=lambda old: b"\x7f" * len(old))),
            "sent a bin outside column 0's",
        ),
        ("", "", "record_bins", _without("columns"), "sent bins of no column"),
        ("", "", "label_sums", edited(ciphertexts=lambda old: old[: len(old) // 2]), "another number of ciphertexts"),
        (
            "",
            "",
            "candidate_shares",
            edited(ciphertexts=lambda old: old[: len(old) // 2]),
            "its threshold permits",
        ),
        ("", "", "forwarded_sums", edited(ciphertexts=lambda old: bytes(len(old))), "zero or not below n²"),
        (
            *("", "", "node_sums"),
            within("nodes", 0, edited(sums=lambda old: [old[0], 2**62, *old[2:]])),
            "that no records of this job have",
        ),
        (
            "",
            "",
            "best_gains",
            lambda it: it.gains.add(node=2**20, source=LABEL_HOLDER, gain=2**30),
            "is not open",
        ),
        ("", "", "winning_candidates", within("nodes", 0, with_fields(places=[9999])), "not among those that were"),
        ("", "", "divided_nodes", within("nodes", 0, edited(node=lambda old: old + 1)), "divides nodes"),
        ("", "", "node_records", _without("spaces"), "records: the ranges end at 0 of 30 records"),
        ("", "", "leaf_weights", within("leaves", 0, with_fields(weight=[float("nan")])), "weight of leaf .* is none"),
        ("", "", "metric_share", lambda it: it.values.append(1), "figures, not 2"),
    ],
    "interactive": [
        (*_QUERIES, within("queries", 0, with_fields(handle=99)), "feature-b has no split 99 in model job"),
        (
            *_QUERIES,
            within("queries", 0, "records", with_fields(span=100)),
            "records: a range of 100 from 0 cannot follow 0 of 6 records",
        ),
        (*_QUERIES, within("queries", 0, "records", with_fields(start=2)), "a query whose records do not begin at 0"),
        (*_QUERIES, _twice("queries"), "two queries about split 0"),
        (*_QUERIES, with_fields(answers=1), "asks for 1 directions, its queries name more records"),
        (*_QUERIES, with_fields(answers=2**62), "asks for 4611686018427387904 directions, its queries can have"),
        (*_ANSWERS, with_fields(count=0, left=b""), "feature-b answered 0 bits, not those of the queries"),
        (
            *_ANSWERS,
            edited(count=lambda old: old - 1, left=lambda old: b"\xff" * len(old)),
            "records: bits are set beyond the last of 7",
        ),
        (*_ANSWERS, edited(left=lambda old: old + b"\0"), "records: 8 bits take 1 bytes, not 2"),
    ],
    "eini": [
        (*_ENTRIES, _SHORTER, r"label-holder, block 0: .* got \d+"),
        (*_FURTHER_ENTRIES, _SHORTER, r"feature-b, block 0: .*got \d+"),
        (*_ENTRIES, edited(ciphertexts=lambda old: old + old[:WIDTH]), r"block 0: 4 records of .* or more"),
        (*_ENTRIES, edited(ciphertexts=lambda old: old[:-1]), r"label-holder, block 0: .*got \d+\.99"),
        (*_FURTHER_ENTRIES, edited(ciphertexts=lambda old: b"\xff" * len(old)), "feature-b, block 0: .* another key"),
        (LABEL_HOLDER, OTHER, "public_key", key_of(1024), "a Paillier modulus that its proof does not fit"),
        (*_BY_KEY, key_of(2048), "has 2048 bits, the job says 1024"),
        (
            *(LABEL_HOLDER, FEATURE, "constant_entries"),
            edited(ciphertexts=lambda old: old[WIDTH:]),
            "constant entries need",
        ),
        (
            *_LAYOUT,
            within("trees", 1, edited(incoming=lambda old: old[:-1])),
            r"tree 1 has \d leaves at label-holder, \d in this party's shard: the shards are of different jobs",
        ),
        (
            *_LAST_LAYOUT,
            within("trees", 1, with_fields(tree=2)),
            "tree 2, this party's shard has 2 trees",
        ),
        (
            *_LAST_LAYOUT,
            _of_every("trees", edited(incoming=lambda old: [1] * len(old))),
            "in one entry that differ here",
        ),
        (*_LAST_LAYOUT, _GAP, "has numbered the entries wrongly"),
        (*_LAYOUT, within("trees", 0, _FAR_OFF), "the entries that go on wrongly"),
        (*_LAST_LAYOUT, _SUM_OF_SOME, "the entries that go on wrongly"),
        (*_LAYOUT, _GAP_BEHIND, "the entries that go on wrongly"),
        (*_LAST_LAYOUT, within("trees", 1, with_fields(outputs=[1])), "has named columns of the score wrongly"),
        (*_BY_KEY, edited(slot_widths=lambda old: [old[0] + 1]), "slots of 63 bits, the job implies 62"),
        (
            *(LABEL_HOLDER, OTHER, "public_key"),
            edited(slot_widths=lambda old: 2 * [*old]),
            "has laid out 2 columns of the score, not all of which have a tree",
        ),
        (*_LAST_LAYOUT, lambda it: it.constant.append(1), "to the first of the"),
        (LABEL_HOLDER, FEATURE, "block_records", within("chunks", 0, with_fields(span=99)), "chunk|record"),
        (
            *(LABEL_HOLDER, OTHER, "block_records"),
            with_fields(chunks=list(chunks_of(np.zeros(0, dtype=np.int64), 6))),
            "label-holder, block 0: a block of no records",
        ),
        (*_LAYOUT, _twice("trees"), "label-holder has named tree 0 twice"),
        (
            OTHER,
            LABEL_HOLDER,
            "leaf_sums",
            with_fields(ciphertexts=b""),
            "are 1 ciphertexts of 256 bytes, got 0",
        ),
        # attributions
        (FEATURE, OTHER, "attribution_entries", _SHORTER, r"feature-b, block 0: .* got \d+"),
        (
            *_LAST_PARTS,
            within("trees", 0, edited(leaves=lambda old: [99, *old[1:]])),
            "leaves that feature-c does not decide",
        ),
        (*_PARTS, _FURTHER, "the attributions that go on wrongly"),
        (*_LAST_PARTS, _FURTHER, "the attributions that go on wrongly"),
        (*_LAST_PARTS, within("trees", 0, with_fields(tree=7)), "feature-c: label-holder predicts with tree 7"),
        (*_LAST_PARTS, _twice("trees"), "label-holder has named tree 0 twice"),
        (*_LAST_PARTS, _of_every("trees", _without("players")), r"has sent wrong players of a tree, of \d"),
        (*_PARTS, with_fields(players=0), "label-holder has announced 0 players"),
        (*_LAST_PARTS, edited(players=lambda old: old + 8), r"\d+ players, not all of which have a tree"),
        (
            *_LAST_PARTS,
            lambda it: (_of_every("trees", with_fields(players=[0]))(it), with_fields(players=1)(it)),
            "announced 1 players, not all of which have a tree",
        ),
        (*_LAST_PARTS, lambda it: it.constant.append(1), "to the first of the chain only"),
        (*_LAST_PARTS, within("trees", 0, with_fields(outputs=[1])), "has named columns of the score wrongly"),
        (
            OTHER,
            LABEL_HOLDER,
            "attribution_sums",
            with_fields(ciphertexts=b""),
            "ciphertexts of 256 bytes, got 0",
        ),
    ],
    "eini-lattice": [
        (
            *_COLUMNS,
            edited(ciphertexts=lambda old: old[:-1]),
            r"label-holder, block 0: 4 records and \d columns are 1 ciphertexts, got 0",
        ),
        (
            *_FURTHER_COLUMNS,
            edited(ciphertexts=lambda old: old[:-1]),
            r"feature-b, block 0: 4 records and \d columns are 1 ciphertexts, got 0",
        ),
        (*_COLUMNS, _twice("ciphertexts"), "are 1 ciphertexts, got 2"),
        (
            *_COLUMNS,
            edited(ciphertexts=lambda old: [*old[:-1], old[-1][:70_000]]),
            "label-holder, block 0: a ciphertext of 70000 bytes, this job's parameters give",
        ),
        (
            *_FURTHER_COLUMNS,
            edited(ciphertexts=lambda old: [*old[:-1], b"\xff" * len(old[-1])]),
            "feature-b, block 0: not a ciphertext of this job's parameters: a number beyond its prime",
        ),
        (
            *_LAST_KEY,
            _lattice_key(lambda own: LatticeKey(own).public_bytes()),
            "feature-c, block 0: .* more noise",
        ),
        (*_KEY, _lattice_key(lambda own: LatticeKey(own).public_bytes()), "feature-c, block 0: .* more noise"),
        (
            *_KEY,
            _lattice_key(lambda own: LatticeKey(replace(own, columns=own.columns + 1)).public_bytes()),
            "other lattice parameters than this job agreed on",
        ),
        (
            *_LAST_KEY,
            edited(public=lambda old: (4096).to_bytes(8, "little") + old[8:]),
            "other lattice parameters than this job agreed on",
        ),
        (*_LAST_KEY, edited(public=lambda old: old[:-1000]), r"a public key of \d+ bytes, its parameters give \d+"),
        (*_LAST_KEY, _lattice_key(_of_the_last_release), "other lattice parameters than this job agreed on"),
        (*_SHAPE, _a_column_less, "feature-b: 1 of this party's splits in tree 1 have no column at label-holder"),
        (
            *_LAST_SHAPE,
            within("trees", 1, lambda it: it.columns.remove(next(each for each in it.columns if not each.branches))),
            "other lattice parameters than this job agreed on",
        ),
        (
            *_LAST_SHAPE,
            within("trees", 1, lambda it: [it.columns.add() for _ in range(8)]),
            r"has \d+ columns of tree 1, which has \d splits",
        ),
        (
            *_SHAPE,
            within("trees", 1, edited(leaves=lambda old: old - 1)),
            r"tree 1 has \d leaves at label-holder, \d in this party's shard: the shards are of different jobs",
        ),
        (*_LAST_SHAPE, within("trees", 1, with_fields(tree=2)), "tree 2, this party's shard has 2 trees"),
        (*_LAST_SHAPE, lambda it: it.trees[1].CopyFrom(it.trees[0]), "label-holder has named tree 0 twice"),
        (
            *_LAST_SHAPE,
            within("trees", 1, "columns", 0, lambda it: it.branches.add(handle=77, left=True)),
            "a column of tree 1 to which no way leads",
        ),
        (*_LAST_SHAPE, within("trees", 1, with_fields(outputs=[2])), "has named columns of the score wrongly"),
        (LABEL_HOLDER, FEATURE, "block_records", within("chunks", 0, with_fields(span=99)), "chunk|record"),
        (OTHER, LABEL_HOLDER, "lattice_sums", _without("ciphertexts"), "feature-c, block 0: 0 sums of 1 outputs"),
    ],
    "masked": [
        (FEATURE, "", "score_shares", edited(values=lambda old: old[:-8]), "bytes of shares, 4 outputs have 32"),
        (*_ARRIVED, _of_every("nodes", edited(node=lambda old: old + 2)), "records of other nodes than those of"),
        (*_ARRIVED, lambda it: it.nodes.add(tree=1, node=2, records=b"\0"), "records of other nodes than those of"),
        (*_ARRIVED, _of_every("nodes", with_fields(records=b"")), "4 bits take 1 bytes, not 0"),
        (
            *_ARRIVED,
            _of_every("nodes", with_fields(records=b"\x0f")),
            "has passed on the same record to two nodes of tree|records that .* did not pass on to node . above",
        ),
        (FEATURE, "", "mask_key", with_fields(key=bytes(32)), "is no X25519 key of 32 bytes and full order"),
    ],
}
#: One lie of each story first.
CASES = [(story, lies[0]) for story, lies in LIES.items()] + [
    (story, lie) for story, lies in LIES.items() for lie in lies[1:]
]


@pytest.mark.second_tier(but=len(LIES))
@pytest.mark.parametrize(("story", "lie"), CASES, ids=[f"{story}-{lie[2]}-{lie[4][:20]}" for story, lie in CASES])
async def test_false_content_is_told_and_not_kept(story: str, lie: Lie, tmp_path: Path) -> None:
    """The status is failed, by name and to the point, nobody's fault of input; no file is there, nothing is open."""
    sender, receiver, kind, change, named = lie
    changed: list[str] = []

    def tamper(by: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == kind and sender in ("", by) and receiver in ("", to) and not changed:
            before = parcel.SerializeToString()
            change(content_of(parcel, kind))
            changed.extend([kind] if parcel.SerializeToString() != before else [])

    with transparent() if story == "pivodl" else nullcontext():
        federation = begin(tmp_path, story)
        federation.tamper = tamper
        status = await play(federation, story, "lie")
        assert changed
        assert status.state in ("failed", "interrupted")
        assert re.search(named, status.error), status.error
        if story in ("boosting", "interactive"):
            assert status.error.startswith(("Malformed: ", "OutOfOrder: "))
            assert not status.bad_input
        federation.tamper = None
        for state in federation.states.values():
            assert list((state / "predictions").iterdir()) == []
            assert federation.node(state.parent.name)._sessions == {}
        again = await (go_on(federation, story) if story in TRAININGS else play(federation, story))
        assert (again.state, again.error) == ("finished", "")
        assert wrong(federation, story) == ""
