"""Kernels run beside the event loop on the arrays of their callers: they change no argument, and keep none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from tests.pivodl import small_job
from tests.simulator import Federation, finished, run
from tests.trainings import jobs_of, oracle, policies
from tests.worlds import assert_oracles_model, assert_oracles_scores, lattice_tolerance, spec, world
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.workers.engines import Engine

T = TypeVar("T")
HERE = world(40, (2, 1, 1), seed=3, fresh=6, missing=0.1)
BOOSTING = BoostingParams(n_estimators=2, max_depth=2, max_bin=4, min_child_weight=0.0)
FOREST = replace(jobs_of("forest").DEEP, n_estimators=2)
SHARED = replace(small_job.PARAMS, n_estimators=1, max_depth=1, gain_comparison="secure")
JOBS = {
    "boosting": (HERE, spec(BOOSTING, alignment="psi"), BOOSTING),
    "boosting on a lattice": (HERE, spec(BOOSTING, scheme=LATTICE), BOOSTING),
    "forest": (HERE, spec(FOREST), FOREST),
    "forest on a lattice, bins per node": (
        HERE,
        spec(replace(FOREST, binning="per-node"), scheme=LATTICE),
        replace(FOREST, binning="per-node"),
    ),
    "labels of several parties": (small_job.HERE, spec(SHARED, obfuscation="standard"), SHARED),
}


def copied(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """The value with copies of its arrays, added to `arrays`; read-only ones may be kept, and are not copied."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        arrays.append(value.copy())
        arrays[-1].flags.writeable = False
        return arrays[-1]
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(copied(each, arrays) for each in value)
    return value


class Poisoned(Engine):
    """Two workers, each of whose calls gets arrays of its own; they and its results are overwritten afterwards."""

    def __init__(self) -> None:
        super().__init__(2)

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any, us: float = 0.0) -> T:
        given, made = list[np.ndarray[Any, Any]](), list[np.ndarray[Any, Any]]()
        theirs = copied(args, given)
        result = await super().call(worker, kernel, *theirs, us=us)
        returned: T = copied(result, made)
        np.testing.assert_equal(theirs, args)
        for array in (*given, *_arrays(result)):
            if array.flags.owndata:
                array.flags.writeable = True
            if array.flags.writeable:
                array.fill(np.array(0x5A, dtype=np.uint8).astype(array.dtype))
        for array in made:
            array.flags.writeable = True
        return returned


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, np.ndarray):
        return [value]
    return [array for each in value for array in _arrays(each)] if isinstance(value, list | tuple) else []


def test_the_engine_poisons() -> None:
    """A kernel that keeps an array, one that changes it, and one that goes on changing what it has returned."""
    made, engine = np.zeros(2, dtype=np.int64), Poisoned()
    state: dict[str, Any] = {}

    def keeps(array: Any) -> Any:
        state["kept"] = array[:1]
        return state.setdefault("own", np.zeros(1))

    def changes(array: Any) -> None:
        array[0][0][0] = 1

    found = run(engine.call(0, keeps, made))
    assert (state["kept"][0], state["own"][0]) == (0x5A, 0x5A)
    assert (made[0], found[0]) == (0, 0)
    with pytest.raises(ValueError, match="read-only"):
        run(engine.call(0, changes, [(made,)]))


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("what", JOBS)
async def test_trainings_find_the_oracles_model(what: str, tmp_path: Path) -> None:
    """The model is that of the joined table: no kernel has read an array after its call."""
    here, job, params = JOBS[what]
    federation = Federation(tmp_path, here.tables, policies=policies(job), engine=lambda _: Poisoned())
    finished(await federation.train(job))
    await federation.close()
    assert_oracles_model(federation.states, oracle(here, params))


@pytest.mark.second_tier
async def test_predictions_find_the_oracles_scores(tmp_path: Path) -> None:
    """Encrypted ones, by either arithmetic."""
    federation = Federation(tmp_path, HERE.tables, engine=lambda _: Poisoned())
    finished(await federation.train(JOBS["boosting"][1]))
    expected = oracle(HERE, BOOSTING)
    for protocol, within in (("eini", 1e-9), ("eini-lattice", lattice_tolerance(expected))):
        status = finished(await federation.predict(predict_request(protocol, model="job", block=2)))
        assert_oracles_scores(status.predictions, expected, HERE.newcomers, len(HERE.y), within)
    await federation.close()
