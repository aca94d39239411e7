"""`treetap capacity`: how long a training takes on machines that are not there yet, and what bounds it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from treetap.commands.capacity.question import CostOptions, Site, TrainingOptions
from treetap.commands.options import Json, from_dataclasses
from treetap.errors import BadInput

if TYPE_CHECKING:
    from treetap.commands.capacity.measuring import Measurements
    from treetap.protocols.key_options import KeyKind


@from_dataclasses
def capacity(asked: TrainingOptions, site: Site, costs: CostOptions, as_json: Json = False) -> None:
    """Estimate a boosting job on machines that you plan: time by phase, bytes, memory, and what saturates first.

    A model follows one tree stage by stage. Operations and sizes are the protocol's own; what each operation
    costs is measured on this machine, the first time and with --measure, and kept. Measure on a machine like those
    that you plan for, and take the file along: --measurements FILE. docs/operations.md#planning says more.

    treetap capacity --records 10000000 --columns 25,25 --nodes 4,4 --bandwidth 1000 --delay 5

    treetap capacity --records 10000000 --scheme okamoto-uchiyama --nodes 4,4 --cluster-holds-key

    treetap capacity --records 10000000 --scheme lattice --cores 4

    A demand is the time that a tree would take if that resource alone bounded it: the largest is what saturates first.
    More machines help only where the demand is on workers; a main process is one, whatever the number of machines.
    """
    key, file = asked.key(), costs.measurements or _cache()
    if asked.records:  # faults of the question come before the time of a measurement
        training, _ = asked.training(), site.machines
        if costs.measurements is not None and not costs.measure and not file.exists():
            raise BadInput(f"--measurements {file}: no such file; with --measure this machine's figures go there")
    elif not costs.measure:
        raise BadInput("--records: say how many records the parties have in common, or --measure to measure only")
    from treetap.commands.capacity import report

    measured = _measured(file, key, asked.randomisation, anew=costs.measure)
    said = report.document(report.estimate(training, site, measured), measured.machine) if asked.records else None
    if as_json:
        print(json.dumps(said or asdict(measured), indent=1, allow_nan=False), flush=True)
    elif said:
        report.show(said, site.memory)
    else:
        report.show_costs(measured)


def _cache() -> Path:
    """The file of measurements in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "treetap" / "measurements.json"


def _measured(path: Path, key: KeyKind, obfuscation: str, *, anew: bool) -> Measurements:
    """The file's measurements, of this machine where they are missing. Raises `BadInput` if the file is no good."""
    from treetap import terminal
    from treetap.commands.capacity.measuring import Measurements

    known = Measurements.load(path) if path.exists() and not anew else None
    if known is not None and known.has(key, obfuscation):
        return known
    from treetap.commands.capacity.measuring import measure

    terminal.err.print(
        f"measuring this machine under {key.scheme} {key.bits or ''}".strip() + f": some seconds, kept in {path}"
    )
    measured = measure(key, obfuscation, known, path)
    try:
        measured.save(path)
    except OSError as fault:
        raise BadInput(f"{path}: cannot be written: {fault.strerror or fault}; name a file: --measurements") from None
    return measured
