"""A federation whose jobs are previews, the smallest there are; and what a test does to a party's disk meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from party.runtime.ledger import ledger_of
from party.trail.journal import TRAIL, Trail
from party.trail.verify import approvals_of
from tests.approvals.people import configured
from tests.replay import HERE
from tests.simulator import Federation
from tests.worlds import PARTIES
from treetap.wire.tls import TlsFiles

HOLDER, B, C = PARTIES


def federation_of(folder: Path, certificates: Mapping[str, TlsFiles] | None = None) -> Federation:
    """Three parties that let previews out; with certificates they sign."""
    policies = {name: {"preview": "count", "previews_per_day": 100} for name in PARTIES}
    if certificates is None:
        return Federation(folder, HERE.tables, policies=policies)
    return Federation(folder, HERE.tables, policies=policies, tls=lambda name: configured(certificates[name]))


async def previewed(federation: Federation, *jobs: str, parties: tuple[str, ...] = PARTIES) -> None:
    """Previews that end well, one after the other."""
    for job in jobs:
        status = await federation.preview(*parties, job=job)
        assert (status.state, status.error) == ("finished", "")


async def failed(federation: Federation, job: str) -> str:
    """The error of a preview that must not end well."""
    status = await federation.preview(job=job)
    assert status.state == "failed"
    return str(status.error)


def trail_of(federation: Federation, party: str) -> Trail:
    """A party's trail, read from its disk."""
    return Trail(party, federation.state(party))


def lines_of(federation: Federation, party: str, kind: str) -> list[dict[str, Any]]:
    """The lines of a kind in a party's trail."""
    return [line for line, _ in trail_of(federation, party).lines() if line["kind"] == kind]


def changed(federation: Federation, party: str, change: Callable[[Path], None]) -> None:
    """Change the disk of a party that is killed and started again."""
    federation.kill(party)
    change(federation.state(party))
    ledger_of.cache_clear()
    federation.start(party)


def kept(federation: Federation, party: str) -> Path:
    """A copy of a party's state folder."""
    copy = federation.folder / f"copy of {party}"
    shutil.copytree(federation.state(party), copy, dirs_exist_ok=True)
    return copy


def brought_back(copy: Path, *names: str) -> Callable[[Path], None]:
    """Bring a copy of the state back, or of some files and folders in it alone."""

    def change(state: Path) -> None:
        for name in names or [path.name for path in copy.iterdir()]:
            if (copy / name).is_dir():
                shutil.rmtree(state / name)
                shutil.copytree(copy / name, state / name)
            else:
                shutil.copy(copy / name, state / name)

    return change


def without_last(lines: int) -> Callable[[Path], None]:
    """Cut the last lines off a trail."""

    def change(state: Path) -> None:
        whole = (state / TRAIL).read_bytes().splitlines(keepends=True)
        (state / TRAIL).write_bytes(b"".join(whole[:-lines]))

    return change


def rewritten(changes: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Path], None]:
    """Change lines of a trail and compute all checksums anew, as its operator can."""

    def change(state: Path) -> None:
        trail = Trail("", state)
        lines = changes(json.loads(json.dumps([line for line, _ in trail.lines()])))
        trail._file.fill(lines)

    return change


def acknowledged(federation: Federation, party: str, why: str) -> None:
    """Do what `treetap trail --restored` does."""
    config = federation.configs[party]

    def change(state: Path) -> None:
        Trail(party, state).restore(ledger_of(state).head(), approvals_of(config).digests(), why)

    changed(federation, party, change)
