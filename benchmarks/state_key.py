"""The cost of a state key: trainings with the key and without it, in pairs.

    python benchmarks/state_key.py [--records 4000] [--trees 5] [--repeat 5]

Three parties train by boosting in the simulator of the tests, record all messages, and predict every record: the least
processor seconds of the repeats, which alternate, of all processes in one, and those of sealing alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulator import Federation, run
from tests.worlds import World, spec, world
from treetap import terminal
from treetap.models.sealed import Frames
from treetap.process.secret import Secret
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2.setup_pb2 import JobSpec


def measured(folder: Path, here: World, job: JobSpec, key: Secret | None) -> tuple[float, float]:
    """Processor seconds, and those of sealing."""
    sealing, seal = [0.0], Frames.sealed

    def sealed(*given: Any, **more: Any) -> bytes:
        sealing[0] -= process_time()
        frame = seal(*given, **more)
        sealing[0] += process_time()
        return frame

    async def main() -> tuple[float, float]:
        federation, began = Federation(folder, here.tables, record="both", state_key=key), process_time()
        assert (await federation.train(job)).state == "finished"
        await federation.predict(predict_request(model="job", job="predict", table="train"))
        await federation.close()
        return process_time() - began, sealing[0]

    with patch.object(Frames, "sealed", sealed):
        return run(main())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--records", 4000), ("--trees", 5), ("--repeat", 5)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    table, here = terminal.table("state key", "CPU s", "sealing"), world(given.records, (5, 5, 5), seed=1)
    job = spec(BoostingParams(n_estimators=given.trees, max_depth=4, max_bin=16), scheme=LATTICE)
    with tempfile.TemporaryDirectory() as held:
        (file := Path(held, "state.key")).write_text("5a" * 32)
        keys: dict[str, Secret | None] = {"no": None, "yes": Secret(file=file)}
        names = [*keys] * given.repeat
        runs = [(name, measured(Path(held, str(i)), here, job, keys[name])) for i, name in enumerate(names)]
    for name in keys:
        table.add_row(name, *(f"{seconds:.3f}" for seconds in min(row for of, row in runs if of == name)))
    terminal.out.print(table)
