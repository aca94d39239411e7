"""CPU of the checks of shown records (`treetap.party.growth.feature_party`) in a training of two parties in one
process.

    python benchmarks/expected_records.py [--records 30000] [--trees 20]

Boosting on a lattice, the training that costs least beside its checks: 8 columns at each party, depth 5, four in five
records drawn, a tenth set aside. The checks are timed by themselves, draws of the seed included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulator import Federation, run
from tests.worlds import spec, world
from treetap.party.growth.feature_party import ExpectedRecords
from treetap.party.growth.feature_party_job import FeaturePartyJob
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams

CHECKS = ("check_draw", "check_shown", "check_sides")


class Spent:
    """Processor seconds of the checks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def checking(self, check: Callable[..., None]) -> Callable[..., None]:
        """The same check, timed."""

        def timed(*given: Any, **named: Any) -> None:
            before = time.process_time()
            check(*given, **named)
            self.seconds += time.process_time() - before

        return timed

    def drawing(self, draw: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same draw, timed; in the simulator nothing else is carried out meanwhile."""

        async def timed(*given: Any, **named: Any) -> Any:
            before = time.process_time()
            expected = await draw(*given, **named)
            self.seconds += time.process_time() - before
            return expected

        return timed


def main() -> None:
    """Train once, and say what the checks took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--trees", type=int, default=20)
    given = parser.parse_args()
    here, spent = world(given.records, (8, 8), seed=1), Spent()
    params = BoostingParams(
        n_estimators=given.trees, max_depth=5, max_bin=32, subsample=0.8, early_stopping_rounds=given.trees
    )

    async def train(folder: Path) -> float:
        federation = Federation(folder, here.tables)
        before = time.process_time()
        status = await federation.train(spec(params, parties=2, scheme=LATTICE))
        whole = time.process_time() - before
        await federation.close()
        if status.state != "finished":
            raise SystemExit(status.error)
        return whole

    with tempfile.TemporaryDirectory() as folder:
        for name in CHECKS:
            patch.object(ExpectedRecords, name, spent.checking(getattr(ExpectedRecords, name))).start()
        patch.object(FeaturePartyJob, "expected", spent.drawing(FeaturePartyJob.expected)).start()
        whole = run(train(Path(folder)))
    print(f"training {whole:.1f} CPU s, of which checks {spent.seconds:.2f}: {100 * spent.seconds / whole:.1f} %")


if __name__ == "__main__":
    main()
