"""Messages of a job on a lattice that are false: named, and not kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.boosting.lattice_jobs import JOB, NO_SUM, N, flipped, resumes
from tests.lattice_ways import take_way
from tests.replay import HERE
from tests.simulator import Federation
from tests.tampered import with_fields
from tests.worlds import PARTIES
from treetap.lattice.histogram_scheme import self_test
from treetap.lattice.histogram_ways import Way
from treetap.native import histograms
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
Change = Callable[[Any], None]


def _bytes_of(field: str, other: Callable[[bytes], bytes]) -> Change:
    """Give a field of bytes other ones."""
    return lambda content: setattr(content, field, other(getattr(content, field)))


def _noise(data: bytes) -> bytes:
    return bytes((37 * place + 11) % 251 for place in range(len(data)))


# (content, sender, receiver, tree, stage, part, the change, what the operator reads)
FALSE: dict[str, tuple[str, str, str, tuple[int, int, int], Change, str]] = {
    "a modulus": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(modulus=b"\x05" * 128),
        "label-holder sent a modulus, and scheme 'lattice' has none",
    ),
    "a modulus of zeros": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(modulus=b"\0"),
        "label-holder sent a modulus, and scheme 'lattice' has none",
    ),
    "another scheme": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(scheme="paillier"),
        "the key of label-holder is one of scheme 'paillier', the job says 'lattice'",
    ),
    "wider slots": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(slot_widths=[39, 36, 6]),
        "the key of label-holder cannot be used: it comes with slots of 39, 36, 6 bits, the job implies 38, 36, 6",
    ),
    "slots beyond all": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(slot_widths=[63] * 49),
        "the key of label-holder cannot be used: one record needs 3087 bits",
    ),
    "too few candidates": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(candidates=1),
        "label-holder says that a party has at most 1 candidates, .* feature-b has 2 candidates",
    ),
    "no queries": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(queries=0),
        "and that 0 nodes are built; feature-b has 2 candidates",
    ),
    "bounds beyond all": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(candidates=1 << 31),
        "the layout of label-holder cannot be used: .*candidates 2147483648 is outside",
    ),
    "fewer nodes than are built": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(queries=2),
        f"label-holder asks for more than the 2 nodes that it said|{NO_SUM}",
    ),
    "more candidates than there may be": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(candidates=(1 << 32) - 1),
        "feature-b says that it has 4294967295 candidates",
    ),
    "sets that are hidden more than can be": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(hiding=65),
        "the layout of label-holder cannot be used: .*hiding 65 is outside of what the lattice scheme takes: 40 to 64",
    ),
    "more hiding than there is": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(hiding=65),
        "feature-b asks for 65 bits of hiding, a lattice gives 40 to 64",
    ),
    "another commitment": (
        *("seed_commitment", FEATURE, OTHER, (0, 0, 0)),
        _bytes_of("commitment", flipped),
        "Malformed: the nonce of feature-b is not the one that it has committed to",
    ),
    "no commitment": (
        *("seed_commitment", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(commitment=b""),
        "Malformed: the nonce of label-holder is not the one that it has committed to",
    ),
    "another nonce": (
        *("seed_nonce", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("nonce", flipped),
        "Malformed: the nonce of label-holder is not the one that it has committed to",
    ),
    "a nonce that is cut": (
        *("seed_nonce", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("nonce", lambda nonce: nonce[:-1]),
        "Malformed: the nonce of feature-b is not the one that it has committed to",
    ),
    "words of a later record": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(first=1),
        "label-holder sent words out of place in tree 0",
    ),
    "words of another node": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 1)),
        with_fields(node=2),
        "label-holder sent words out of place in tree 0",
    ),
    "words that are cut": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda words: words[:-1]),
        r"label-holder sent what are no words of node \d: words of 16 records from 0 on are not those that are due",
    ),
    "words of fewer records": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(count=N - 1),
        r"label-holder sent what are no words of node \d: words of 15 records from 0 on are not those that are due",
    ),
    "words of no records": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(count=0, ciphertexts=b""),
        r"label-holder sent what are no words of node \d: words of 0 records from 0 on are not those that are due",
    ),
    "zeros that are cut": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (1, 0, 1)),
        _bytes_of("ciphertexts", lambda words: words[: len(words) // 2]),
        r"label-holder sent what are no words of node \d: words of 4096 records from 16 on are not those that are due",
    ),
    "words of noise": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "zeros of noise": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 1)),
        _bytes_of("ciphertexts", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "first halves that are cut": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda halves: halves[:-1]),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "first halves twice": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 1, 0)),
        _bytes_of("ciphertexts", lambda halves: 2 * halves),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "first halves of zeros": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda halves: bytes(len(halves))),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "second halves that are cut": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 1)),
        _bytes_of("second_halves", lambda halves: halves[:-1]),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "no second halves": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 1)),
        with_fields(second_halves=b""),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "second halves of noise": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 1)),
        _bytes_of("second_halves", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "second halves that are not due": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 1, 0)),
        with_fields(second_halves=bytes(1000)),
        f"{NO_SUM}(sums of 2 candidates have other sizes|a sum has more noise than|.*above the last slot)",
    ),
    "other candidates than before": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(candidates=3),
        "feature-b .*candidates",
    ),
    "merged bins": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(min_cell_records=3),
        "feature-b does not say of tree 0 what it said with the key, whether it merges its bins",
    ),
    "bins that are merged by the key alone": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(merges_bins=True),
        "feature-b does not say of tree 0 what it said with the key, whether it merges its bins",
    ),
    "second halves that a party does not keep": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(keeps_second_halves=True),
        "label-holder does not say of all parties what feature-b has said of its sums",
    ),
    "second halves that the label holder is to keep": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(keeps_second_halves=True),
        f"{NO_SUM}(sums of 2 candidates have other sizes|a sum has more noise than|.*above the last slot)",
    ),
    "sums of another node": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(nodes=[7]),
        r"feature-b sent candidates of nodes \[7\], expected \[1\]",
    ),
}


#: Second halves come with every node by sets, whoever keeps them.
HARMLESS = ("second halves that the label holder is to keep", Way.SETS)


class Line:
    """A line on which one parcel is changed, whenever it comes; `seen` has the contents of all before."""

    def __init__(self, kind: str, sender: str, to: str, at: tuple[int, int, int], change: Change) -> None:
        self._which, self._change, self.changed = (kind, sender, to, at), change, False

    def __call__(self, sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        """Carry a parcel."""
        kind = name_of(parcel)
        if (kind, sender, to, (parcel.round, parcel.stage, parcel.part)) == self._which:
            self._change(content_of(parcel, kind))
            self.changed = True
        return parcel


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(("case", "way"), [(case, way) for case in FALSE for way in Way if (case, way) != HARMLESS])
async def test_false_contents_are_named_and_not_kept(
    case: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One parcel changed on its way: the party is named at once, none hangs, and resuming gives the oracle's model."""
    *which, change, message = FALSE[case]
    take_way(monkeypatch, way)

    federation = Federation(tmp_path, HERE.tables, silence_s=1000.0)
    line = federation.tamper = Line(*which, change)  # type: ignore[arg-type]
    status = await federation.train(JOB)
    assert line.changed
    assert status.state == "failed"
    assert status.error.startswith("Malformed: "), status.error
    assert re.search(message, status.error), status.error
    assert status.seconds < 100
    await resumes(federation)


async def test_transforms_that_are_not_exact_enough_end_the_attempt_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads at which party a limb was too far from a whole number, and can resume."""
    self_test()  # made of the same products, once

    federation = Federation(tmp_path, HERE.tables)
    with monkeypatch.context() as patch:
        patch.setattr(histograms, "FARTHEST", 1e-12)
        status = await federation.train(JOB)
    assert status.state == "interrupted"
    assert re.search("label-holder: encrypted histograms, encrypt: a limb is .* from a whole number", status.error)
    await resumes(federation)
