"""The federations of the campaign, with their oracles; each is trained once without faults and copied from then on."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.label_draws import Used, label_draws
from tests.campaign.plans import SECOND
from tests.grafted import naive_scores
from tests.oracle import OracleModel, oracle_predict, oracle_train, oracle_without
from tests.pivodl import small_job
from tests.replay import HERE, PARAMS
from tests.serving.served import CLIENT
from tests.simulator import COORDINATOR, DEALER, Federation, run
from tests.splitnn import small_job as network
from tests.trainings import oracle, policies
from tests.worlds import PARTIES, World, spec, world
from treetap.native import arithmetic
from treetap.party.config import ServeConfig
from treetap.party.defences.settings import ColumnPrivacyTable, Defences, IdLmid, LabelDp, ReducedLeakage
from treetap.protocols.key_options import LATTICE
from treetap.trees.job_params import JobParams
from treetap.trees.params import ForestParams, TreeParams
from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class Stage:
    """A world, a job over it, the model that it must have of the labels as they are, and the label holder's defences.

    Attributes:
        model: the oracle's trees; none of a network, see `tests.splitnn.small_job`.
        budget: the most ε that its policy has for noisy labels; None without these.
        of_columns: the second party's defences.
    """

    name: str
    here: World
    params: JobParams
    job: setup_pb2.JobSpec
    model: OracleModel
    defences: Defences = field(default_factory=Defences)
    budget: float | None = None
    of_columns: Defences = field(default_factory=Defences)

    @property
    def dealers(self) -> list[str]:
        """The names of the job's dealers."""
        return [DEALER] if self.job.dealer else []

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """The oracle's scores (N, outputs) of the new records; of repairs those that a faultless training left."""
        if self.defences.private_values:
            states = {party: after_training(self.name) / party / "state" for party in PARTIES}
            return naive_scores(states, self.here.newcomers)
        return np.array(oracle_predict(self.model, self.here.newcomers))

    @cached_property
    def scores_without(self) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """For one or two feature parties that are away: the oracle's scores, and the shares that are guessed."""
        found = []
        for away in (set(names) for count in (1, 2) for names in combinations(PARTIES[1:], count)):
            values, shares = oracle_without(self.model, self.here.newcomers, away)
            found.append((np.array(values), np.array(shares)))
        return found


#: In which no two candidates tie, since private set intersection orders the records by chance.
UNTIED = world(16, (1, 1, 1), seed=31, fresh=6)
#: A tree of the label holder alone, and two of which it withdraws one side of the root, and shows the other.
WITHHELD = Defences(id_lmid=IdLmid(xi=0.15), reduced_leakage=ReducedLeakage(trees=1))
#: Noisy labels, and repairs of which the published model uses the grafts.
NOISY = Defences(label_dp=LabelDp(epsilon=0.5), grafting=True)
#: Weak enough that noised candidates win on a small table, and an ε for as many attempts as a job has.
NOISED, MOST_NOISED = Defences(column_privacy=ColumnPrivacyTable(epsilon=20_000.0, delta=1e-6, trees=2)), 1e6
#: For the draw and for those that crashes make void: each of these costs as much.
BUDGET = 30.0


@cache
def stage(name: str) -> Stage:
    """A stage by its name in `plans.STAGES`. Of one with noise the model is not known before."""
    if name == "splitnn":
        return Stage(name, HERE, network.PARAMS, network.JOB, OracleModel([], 0))
    own, of_columns = Defences(), Defences()
    here, more = HERE, dict[str, Any](obfuscation="standard")
    params: TreeParams = PARAMS
    if name in ("boosting-psi", "boosting-proven"):
        here, more = UNTIED, more | {"alignment": "psi"}
    elif name == "boosting-noised":
        of_columns = NOISED
    elif name in ("boosting-hidden", "boosting-private"):
        params, more = replace(PARAMS, instance_spaces="withheld"), {"scheme": LATTICE}
        more |= {"sums": "shared", "dealer": DEALER} if name == "boosting-private" else {}
    elif name == "stopping":
        params = replace(PARAMS, n_estimators=4, early_stopping_rounds=1, validation_share=0.3)
    elif name == "forest":
        params = ForestParams(n_estimators=2, max_depth=2, max_bin=3)
    elif name == "boosting-withheld":
        params, own = replace(PARAMS, n_estimators=3, max_depth=3), WITHHELD
        limit = own.withholding
        found = oracle_train(here.parties, list(here.y), params, here.classes, limit.xi, limit.own_trees)
        return Stage(name, here, params, spec(params, obfuscation="standard"), found, own)
    elif name == "forest-noisy":
        params, own = ForestParams(n_estimators=2, max_depth=2, max_bin=3), NOISY
    elif name == "pivodl":
        here, params = small_job.HERE, small_job.PARAMS
    elif name == "pivodl-published":
        here, params = small_job.HERE, replace(small_job.PARAMS, as_published=True)
        more |= {"alignment": "psi"}
    elif name == "pivodl-secure":
        here, params = small_job.HERE, replace(small_job.PARAMS, gain_comparison="secure")
    elif name == "pivodl-noise":
        here, params = small_job.HERE, replace(small_job.PARAMS, epsilon=8.0)
    job, budget = spec(params, **more), BUDGET if own.label_dp else None
    return Stage(name, here, params, job, oracle(here, params), own, budget, of_columns)


def playable(name: str) -> bool:
    """True if the libraries that a stage needs are there, and compiled kernels where it has proofs."""
    if name == "boosting-proven":
        return arithmetic.form_in_use() is not None
    return name != "splitnn" or network.INSTALLED


def federation(folder: Path, name: str, *, record: bool, **more: Any) -> Federation:
    """The stage's parties, their coordinator and a second one whom they obey too."""
    here = stage(name)
    needed = policies(here.job) or {party: {"emits": {"EXPLANATION": ["parties"]}} for party in PARTIES[1:]}
    own: dict[str, dict[str, Any]] = {PARTIES[0]: {"labels": {"label_budget": here.budget}}} if here.budget else {}
    if here.of_columns.column_privacy is not None:
        own = {PARTIES[1]: {"columns": {"column_budget": MOST_NOISED}}}
    elif name == "boosting-proven":
        own = {party: needed.get(party, {}) | {"keys": {"alignment_proof": True}} for party in PARTIES}
    return Federation(
        folder,
        here.here.tables,
        record="both" if record else "off",
        policies={**needed, **own},
        defences={PARTIES[0]: here.defences, PARTIES[1]: here.of_columns},
        serve={PARTIES[0]: ServeConfig(clients=[CLIENT], listen="127.0.0.1:0")},
        coordinators=(COORDINATOR, SECOND),
        dealer=bool(here.dealers),
        **more,
    )


@cache
def after_training(name: str) -> Path:
    """The disks of all processes after a training; made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="treetap-campaign-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    async def main() -> None:
        made = federation(folder, name, record=False)
        assert (await made.train(stage(name).job)).state == "finished"
        await made.close()

    with ciphers(KeysMade(), transparent=True), label_draws(Used()):
        run(main())
    return folder


def lay_out(folder: Path, name: str, *, trained: bool) -> None:
    """The disks of all processes as a faultless training leaves them, or empty."""
    if trained:
        shutil.copytree(after_training(name), folder)
    else:
        folder.mkdir(parents=True)
