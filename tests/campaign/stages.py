"""The federations of the campaign, with their oracles; each is trained once without faults and copied from then on."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from party.config import ServeConfig
from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.plans import SECOND
from tests.oracle import OracleModel, oracle_predict, oracle_without
from tests.pivodl import small_job
from tests.replay import HERE, PARAMS
from tests.serving.served import CLIENT
from tests.simulator import COORDINATOR, Federation, run
from tests.trainings import oracle, policies
from tests.worlds import PARTIES, World, spec, world
from treetap.trees.params import ForestParams, TreeParams
from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class Stage:
    """A world, a job over it and the model that it must have."""

    here: World
    params: TreeParams
    job: setup_pb2.JobSpec
    model: OracleModel

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """The oracle's score of each new record."""
        return np.array(oracle_predict(self.model, self.here.newcomers))[:, 0]

    @cached_property
    def scores_without(self) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """For one or two feature parties that are away: the oracle's scores, and the shares that are guessed."""
        found = []
        for away in (set(names) for count in (1, 2) for names in combinations(PARTIES[1:], count)):
            values, shares = oracle_without(self.model, self.here.newcomers, away)
            found.append((np.array(values)[:, 0], np.array(shares)))
        return found


#: In which no two candidates tie, since private set intersection orders the records by chance.
UNTIED = world(16, (1, 1, 1), seed=31, fresh=6)


@cache
def stage(name: str) -> Stage:
    """A stage by its name in `plans.STAGES`. Of one with noise the model is not known before."""
    here, more = HERE, {}
    params: TreeParams = PARAMS
    if name == "boosting-psi":
        here, more = UNTIED, {"alignment": "psi"}
    elif name == "stopping":
        params = replace(PARAMS, n_estimators=4, early_stopping_rounds=1, validation_share=0.3)
    elif name == "forest":
        params = ForestParams(n_estimators=2, max_depth=2, max_bin=3)
    elif name == "pivodl":
        here, params = small_job.HERE, small_job.PARAMS
    elif name == "pivodl-paper":
        here, params = small_job.HERE, replace(small_job.PARAMS, wire_form="paper", child_sums="paper")
        more = {"alignment": "psi"}
    elif name == "pivodl-secure":
        here, params = small_job.HERE, replace(small_job.PARAMS, gain_comparison="secure")
    elif name == "pivodl-noise":
        here, params = small_job.HERE, replace(small_job.PARAMS, epsilon=8.0)
    return Stage(here, params, spec(params, obfuscation="standard", **more), oracle(here, params))


def federation(folder: Path, name: str, *, record: bool, **more: Any) -> Federation:
    """The stage's parties, their coordinator and a second one whom they obey too."""
    needed = policies(stage(name).job) or {party: {"emits": {"EXPLANATION": ["parties"]}} for party in PARTIES[1:]}
    return Federation(
        folder,
        stage(name).here.tables,
        record="both" if record else "off",
        policies=needed,
        serve={PARTIES[0]: ServeConfig(clients=[CLIENT], listen="127.0.0.1:0")},
        coordinators=(COORDINATOR, SECOND),
        **more,
    )


@cache
def _trained(name: str) -> Path:
    """The disks of all processes after a training; made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="treetap-campaign-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    async def main() -> None:
        made = federation(folder, name, record=False)
        assert (await made.train(stage(name).job)).state == "finished"
        await made.close()

    with ciphers(KeysMade(), transparent=True):
        run(main())
    return folder


def lay_out(folder: Path, name: str, *, trained: bool) -> None:
    """The disks of all processes as a faultless training leaves them, or empty."""
    if trained:
        shutil.copytree(_trained(name), folder)
    else:
        folder.mkdir(parents=True)
