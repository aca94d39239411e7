"""Federations of PIVODL that keep transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.recorded import federated, transcript
from tests.pivodl.federations import job_of, transparent
from tests.pivodl.jobs import policies
from tests.worlds import World, spread, world
from treetap.attacks.pivodl.evidence import SharedLabelEvidence, exact_weights
from treetap.attacks.registry import Needs, rows
from treetap.attacks.view.view import View, read_view
from treetap.tables.labels import Labels
from treetap.trees.pivodl_params import PivodlParams

PARAMS = PivodlParams(n_estimators=3, max_depth=3, max_bin=8, instance_threshold=3, min_samples=10)


def shared_world(records: int = 400, parties: int = 4, seed: int = 3, **given: Any) -> World:
    """A world whose labels are spread evenly."""
    here = world(records, (2,) * parties, seed=seed, **given)
    return spread(here, np.random.default_rng(seed).integers(0, parties, records))


def trained(
    folder: Path, here: World, params: PivodlParams, record: Any = "received", **policy: Any
) -> dict[str, Path]:
    """Train with ciphertexts that hide nothing, which changes no plaintext message; the parties' states.

    `policy`: other lines of every party's policy.
    """

    job = job_of(here, params)
    with transparent():
        return federated(folder, here.tables, job, record, policies=policies(job, **policy))


def views(states: dict[str, Path]) -> dict[str, View]:
    """Every party's view."""
    return {party: read_view(transcript(states, party)) for party in states}


def labels_of(here: World) -> Labels:
    """All labels, as an auditor has them."""
    return Labels(here.y.astype(np.int64), ["0", "1"])


def found(here: World, seen: dict[str, View]) -> dict[str, dict[str, Any]]:
    """All attacks on all parties."""
    exact = exact_weights({name: view.pivodl for name, view in seen.items() if view.pivodl is not None})
    blocks = dict(here.parties)
    evidence = {
        name: SharedLabelEvidence(view.pivodl, view.records, blocks[name], labels_of(here), exact)
        for name, view in seen.items()
        if view.pivodl is not None
    }
    attacks = rows(Needs.SHARED_LABELS)
    return {name: {key: row.run(it).plain() for key, row in attacks.items()} for name, it in evidence.items()}
