"""The runs that a folder has for an audit: itself, or those of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from attacks.audit_file import FILE
from treetap.errors import BadInput

#: An experiment's folder holds this file, and its runs are the folders of this pattern.
EXPERIMENT, RUNS = "experiment.toml", "seed-*"


class Runs(NamedTuple):
    """The folders or files to audit, and the runs that kept nothing to audit. `several`: they are an experiment's."""

    audited: list[Path]
    silent: list[Path]
    several: bool


def audited_runs(run: Path) -> Runs:
    """The runs of a folder that holds an audit file, of such a file, or of an experiment's folder.

    Raises:
        BadInput: there is nothing to audit; the message says what records it.
    """
    if not run.is_dir() or (run / FILE).is_file():
        return Runs([run], [], several=False)
    folders = sorted((path for path in run.glob(RUNS) if path.is_dir()), key=lambda path: _numbers(path.name))
    kept = [path for path in folders if (path / FILE).is_file()]
    if kept:
        return Runs(kept, [path for path in folders if path not in kept], several=True)
    of_one = run.match(RUNS) and (run.parent / EXPERIMENT).is_file()
    if folders or of_one or (run / EXPERIMENT).is_file():
        raise BadInput(
            f"{run}: the experiment kept no transcripts to audit: add a line [audit] to its file and run it again"
        )
    raise BadInput(
        f"{run}: holds no {FILE}; treetap demo --workdir writes one, and an experiment with a line [audit] in its "
        "file, and docs/audit.md shows one"
    )


def _numbers(name: str) -> list[tuple[int, str]]:
    """Sort key of a run's name: seed 2 before seed 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split("-")]
