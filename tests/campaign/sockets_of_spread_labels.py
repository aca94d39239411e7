"""The processes of a federation whose labels are spread over its parties, suspended and killed in jobs by PIVODL."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.campaign.disturbances import SILENCE_S, Sockets, disturb_all, logs
from tests.system.federations import settings, states
from tests.trainings import oracle, policies
from tests.worlds import assert_oracles_model, spec, spread, world
from treetap.lab.local_federation import LocalFederation
from treetap.trees.pivodl_params import PivodlParams

N = 120
HERE = spread(world(N, (2, 2, 1), seed=8, missing=0.1), [i % 3 for i in range(N)])
PARAMS = PivodlParams(n_estimators=6, max_depth=3, max_bin=8, instance_threshold=2, min_samples=8)
JOB = spec(PARAMS)


def conduct(folder: Path, seed: int, tell: Callable[[str], None]) -> Sockets:
    """All of them once; returns what was found and measured.

    Who opens whose sums is drawn anew in every job, and with it the shards: each job is compared with the oracle.
    """
    parties = settings(folder, {"train": HERE})
    for party, lines in policies(JOB).items():
        parties[party] = {**parties[party], "silence_s": SILENCE_S, "policy": parties[party]["policy"] | lines}
    expected = oracle(HERE, PARAMS)
    with LocalFederation(folder / "federation", parties, {"silence_s": SILENCE_S}) as federation:

        def wrong(job: str) -> str:
            try:
                assert_oracles_model(states(federation, HERE), expected, job)
            except (AssertionError, OSError, KeyError, ValueError) as failure:
                return f"is not the oracle's model: {type(failure).__name__} {failure}"
            return ""

        here = Sockets(federation, JOB, PARAMS.n_estimators, wrong, random.Random(seed))
        tell("labels spread over parties")
        disturb_all(here, 1, tell)
        logs(here)
    return here
