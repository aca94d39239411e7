"""A small job of PIVODL that has all that such a job can have: two trees, in each of which every party wins a split."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from tests.trainings import oracle
from tests.worlds import spec, spread, world
from treetap.party.pivodl import participant
from treetap.trees.pivodl_params import PivodlParams

#: A regression, so that the mean and the spread of its labels are added up too.
PARAMS = PivodlParams(
    n_estimators=2,
    max_depth=2,
    max_bin=4,
    objective="reg:squarederror",
    instance_threshold=2,
    min_samples=4,
)
#: 36 records, of which each party labels every third.
HERE = spread(world(36, (1, 1, 1), seed=35, fresh=6, objective="reg:squarederror"), [i % 3 for i in range(36)])
ORACLE = oracle(HERE, PARAMS)
JOB = spec(PARAMS, obfuscation="standard")


@contextmanager
def nonces(seed: int) -> Iterator[None]:
    """Within the block, the nonces of parties follow from a seed, and with them who opens whose sums."""
    drawn = SimpleNamespace(token_bytes=random.Random(f"nonces {seed}").randbytes)
    with patch.object(participant, "secrets", drawn):
        yield
