"""The cost of a state key: trainings with the key and without it, in pairs.

    python benchmarks/state_key.py [--records 4000] [--trees 5] [--repeat 5]

Three parties train by boosting in the simulator of the tests, record all messages, and predict every record: the least
processor seconds of the repeats, which alternate, of all processes in one, and the bytes of the state folders.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulator import Federation, run
from tests.worlds import World, spec, world
from treetap import terminal
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.secret import Secret
from treetap.trees.params import BoostingParams


def measured(folder: Path, here: World, trees: int, key: Secret | None) -> tuple[float, float]:
    """Processor seconds, and bytes of all state folders."""
    job = spec(BoostingParams(n_estimators=trees, max_depth=4, max_bin=16), scheme=LATTICE)

    async def main() -> tuple[float, float]:
        federation = Federation(folder, here.tables, record="both", state_key=key)
        began = time.process_time()
        assert (await federation.train(job)).state == "finished"
        asked = predict_request(model="job", job="predict", table="train")
        assert (await federation.predict(asked)).state == "finished"
        spent = time.process_time() - began
        await federation.close()
        return spent, sum(path.stat().st_size for state in federation.states.values() for path in state.rglob("*"))

    return run(main())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--records", 4000), ("--trees", 5), ("--repeat", 5)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    table, here = terminal.table("state key", "CPU s", "bytes of state"), world(given.records, (5, 5, 5), seed=1)
    with tempfile.TemporaryDirectory() as held:
        (file := Path(held, "state.key")).write_text(secrets.token_hex(32))
        keys: dict[str, Secret | None] = {"no": None, "yes": Secret(file=file)}
        pairs = [(i, name) for i in range(given.repeat) for name in keys]
        runs = [(name, measured(Path(held, f"{name}{i}"), here, given.trees, keys[name])) for i, name in pairs]
    for name in keys:
        rows = [row for of, row in runs if of == name]
        table.add_row(name, f"{min(row[0] for row in rows):.2f}", f"{rows[-1][1]:.0f}")
    terminal.out.print(table)
