"""Lists of blinded identifiers in files: any number of blocks, and nothing of them is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.alignment.test_protocol import NAMES, intersect, job, tables
from tests.simulator import Federation, failed
from treetap.party.alignment import lists as work
from treetap.party.runtime.context import Scratch
from treetap.psi import lists
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2


def _open_files(folder: Path) -> list[str]:
    """Files below a folder that this process has open without a name."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            path = os.readlink(each)
        except OSError:  # the one of this listing
            continue
        if path.startswith(str(folder)) and path.endswith("(deleted)"):
            found.append(path)
    return found


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("parties", [2, 3])
def test_lists_of_many_blocks(parties: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, messages, blocks and groups that end in the middle of each other give the records that all hold."""
    monkeypatch.setattr(work, "POINTS_PER_CALL", 3)
    monkeypatch.setattr(work, "POINTS_PER_MESSAGE", 4)
    monkeypatch.setattr(lists, "BLOCK", 5)
    common = [f"c{number}" for number in range(31)]
    ids = [[*common, *(f"{place}-{number}" for number in range(10 + place))] for place in range(parties)]
    found = intersect(tmp_path / "federation", ids)
    assert sorted(found[0]) == sorted(common)
    assert all(each == found[0] for each in found)
    assert _open_files(tmp_path) == []


@pytest.mark.parametrize("parties", [2, 3])
async def test_nothing_is_left_of_an_alignment_that_fails(parties: int, tmp_path: Path) -> None:
    """A party that has received a spoilt list closes its files with the attempt, and so do the others."""
    ids = [[f"i{number}" for number in range(12)]] * parties
    seen: list[int] = []

    federation = Federation(tmp_path, tables(ids))

    def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "blinded_ids" and parcel.stage == 3:
            seen.append(len(_open_files(tmp_path)))
            parcel.alignment.blinded_ids.points = bytes(32) + parcel.alignment.blinded_ids.points[32:]

    federation.tamper = tamper
    failed(await federation.train(job(parties)), "not a point of the group")
    assert _open_files(tmp_path) == []
    for name in NAMES[:parties]:
        assert not [path for path in federation.state(name).iterdir() if path.name.startswith("tmp")]
    await federation.close()
    assert min(seen) >= parties


def test_files_end_with_the_session(tmp_path: Path) -> None:
    """They have no name in the folder while they are open; a file that was closed before is no fault."""
    scratch = Scratch(tmp_path)
    one, other = scratch.file(), scratch.file()
    one.write(b"x")
    assert list(tmp_path.iterdir()) == []
    other.close()
    scratch.close()
    assert one.closed
    assert _open_files(tmp_path) == []
