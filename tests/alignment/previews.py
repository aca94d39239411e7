"""Previews over the virtual network: records of some parties, and what is asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.alignment.test_protocol import NAMES, tables
from tests.simulator import Federation
from treetap.wire.v2 import jobs_pb2

COUNTS: dict[str, dict[str, Any]] = {name: {"columns": {"preview": "count"}} for name in NAMES}
ROWS: dict[str, dict[str, Any]] = {name: {"columns": {"preview": "records"}} for name in NAMES}


def drawn_ids(parties: int, seed: int) -> tuple[list[list[str]], set[str]]:
    """Ids of each party, and those that all hold; others are held by one party, or by all but one."""
    rng = random.Random(seed)
    common = [f"c{number:03d}" for number in range(5 + rng.randrange(20))]
    ids = [[*common] for _ in range(parties)]
    for number in range(30):
        for own in rng.sample(ids, rng.randrange(1, parties)):
            own.append(f"{number} {'z' * rng.randrange(40)}")
    return ids, set(common)


async def asked(
    folder: Path, ids: list[list[str]], policies: dict[str, dict[str, Any]], **request: Any
) -> jobs_pb2.JobStatus:
    return await Federation(folder, tables(ids), policies=policies).preview(**request)
