"""Small jobs of boosting and forests whose parties draw features: whatever goes together grows the oracle's model."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.defended import stored_labels
from tests.campaign.label_draws import Used, label_draws
from tests.growth.evaluated import with_eval_table
from tests.library.trees.repairs import by_number
from tests.oracle import OracleModel, oracle_train
from tests.simulator import Federation, run
from tests.worlds import PARTIES, World, assert_oracles_model, spec, weighted, world
from treetap.errors import ConfigError
from treetap.models.store import read_model
from treetap.party.defences.settings import Defences, IdLmid, LabelDp, ReducedLeakage
from treetap.party.policy import merged
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train_forest
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.v2 import setup_pb2

HOLDER, B, C = PARTIES
#: What a refused job says: its features do not go together, in a row of the table or by the rules of one of them.
REFUSED = ("do not go together", "withholds sets of records", "name fewer in", "repairs what noisy labels spoil")


@dataclass(frozen=True)
class Drawn:
    """A world, the parameters of a job, and the features of its parties; `before`: of the model that it continues."""

    here: World
    params: TreeParams
    labels: dict[str, Any]
    least: dict[str, int] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    constrained: bool = False
    evaluated: bool = False
    before: BoostingParams | None = None

    @property
    def federation(self) -> dict[str, Any]:
        """What a federation of it is made with."""
        columns = self.here.tables[B][0]
        return {
            "defences": {
                HOLDER: Defences(**self.labels),
                **{name: Defences(min_cell_records=least) for name, least in self.least.items()},
            },
            "policies": {
                HOLDER: merged({"labels": {"label_budget": 99.0 if "label_dp" in self.labels else None}}, self.policy)
            },
            "constraints": {B: {columns[0]: 1}} if self.constrained else {},
        }

    def job(self, params: TreeParams, **more: Any) -> setup_pb2.JobSpec:
        """A job of the world."""
        given = {"eval_table": "eval"} if self.evaluated else {}
        return spec(params, key_bits=512, obfuscation="standard", **given, **more)


def drawn(seed: int) -> Drawn:
    """The case of a seed."""
    chance = random.Random(f"features {seed}")

    def some(share: float) -> bool:
        return chance.random() < share

    classes = chance.choice((2, 2, 3))
    objective = "multi:softprob" if classes == 3 else "binary:logistic"
    here = world(
        chance.randint(16, 40), (1, 2, 1), objective=objective, classes=classes,
        missing=chance.choice((0.0, 0.2)), seed=seed, fresh=8,
    )  # fmt: skip
    shape: dict[str, Any] = {"n_estimators": 2, "max_depth": chance.choice((2, 3)), "max_bin": chance.choice((3, 5))}
    stops = {"early_stopping_rounds": 1, "validation_share": 0.25} if some(0.2) else {}
    params: TreeParams
    if some(0.3):
        params = ForestParams(**shape, bootstrap=some(0.5))
    else:
        strategy = "multi_output_tree" if some(0.5) else "one_output_per_tree"
        params = BoostingParams(
            **shape, **stops, objective=objective, multi_strategy=strategy, min_child_weight=0.1,
            subsample=chance.choice((1.0, 0.8)), party_dropout={C: 0.4} if some(0.3) else {},
            grow_policy=chance.choice(("depthwise", "lossguide")), max_sample_weight=3.0,
        )  # fmt: skip
    labels: dict[str, Any] = {}
    if some(0.3):
        labels["id_lmid"] = IdLmid(xi=chance.choice((0.1, 0.4)), counts=chance.choice(("shown", "paper")))
    if some(0.3):
        labels["reduced_leakage"] = ReducedLeakage(trees=chance.choice((1, 2)))
    if some(0.4):
        labels["label_dp"] = LabelDp(epsilon=chance.choice((1.0, 4.0)))
        labels |= {"refit": some(0.4), "grafting": some(0.4) and "id_lmid" not in labels}
    policy = (
        {"labels": {"max_leakage": 9.0, "on_max_leakage": chance.choice(("stop", "withdraw"))}} if some(0.3) else {}
    )
    policy |= {"people": {"record_sums": True, "record": "both"}} if some(0.2) else {}
    boosts = isinstance(params, BoostingParams)
    evaluated, weighs, continues = some(0.2), boosts and some(0.2), boosts and some(0.25)
    least = (
        {} if continues else {name: chance.choice((2, 3)) for name in (B, C) if some(0.25)}
    )  # merged bins: no base has a trainer
    evaluated &= not stops  # the oracle sets records aside, where an eval table is watched
    here = with_eval_table(here).here if evaluated else here
    here = weighted(here, np.random.default_rng(seed).integers(1, 4, len(here.y)).astype(float)) if weighs else here
    return Drawn(
        here,
        params,
        labels,
        least,
        policy,
        constrained=boosts and classes == 2 and some(0.2),
        evaluated=evaluated,
        before=replace(params, seed=9) if isinstance(params, BoostingParams) and continues else None,
    )


def trained(folder: Path, case: Drawn, kind: type[Federation] = Federation, seed: int = 0) -> tuple[Federation, str]:
    """The federation after the jobs of a case, and the error of the one that failed."""

    async def main() -> tuple[Federation, str]:
        made = kind(folder, case.here.tables, **case.federation)
        if case.before is None:
            jobs = {"job": case.job(case.params)}
        else:
            jobs = {"before": case.job(case.before), "job": case.job(case.params, base_model="before")}
        error = ""
        for name, job in jobs.items():
            try:
                status = await made.train(job, name)
            except ConfigError as refused:  # by the coordinator
                return made, str(refused)
            if status.state != "finished":
                error = status.error
                break
        await made.close()
        return made, error

    with ciphers(KeysMade(), transparent=True), label_draws(Used(), seed):
        return run(main())


def outcome(seed: int) -> tuple[str, Any]:
    """Train the case of a seed: refused by name, or equal to the oracle."""
    case = drawn(seed)
    with tempfile.TemporaryDirectory() as name:
        federation, error = trained(Path(name) / "f", case, seed=seed)
        if error:
            return ("refused" if any(word in error for word in REFUSED) else "finding"), error
        _check(federation.states, case)
    return "equal", None


def _check(states: dict[str, Path], case: Drawn) -> None:
    """Fail unless the model is the oracle's; with merged bins, the trainer's on the joined table."""
    here, labels = case.here, Defences(**case.labels)
    y = stored_labels(states) if labels.label_dp is not None else here.y
    if case.least:
        trees = [Tree.from_dict(line["tree"]) for line in read_model(states[HOLDER] / "models" / "job")[1]]
        assert [*map(by_number, trees)] == [*map(by_number, _central(case, y))], "trees are others"
        return
    limit = labels.withholding
    more: dict[str, Any] = {"xi": limit.xi, "own_trees": limit.own_trees, "counts_drawn": not limit.shown}
    if case.policy.get("on_max_leakage") == "withdraw":
        more |= {"xi": min(9.0, limit.xi or 9.0)}
    model: OracleModel | None = None
    if isinstance(case.params, ForestParams):
        from tests.forest.oracle import forest_train

        model = forest_train(here.parties, list(y), case.params, here.classes, **more)
    else:
        more["weights"] = None if here.weights is None else list(here.weights)
        more["monotone"] = {B: [1, 0]} if case.constrained else None
        for params in (case.before, case.params):
            if isinstance(params, BoostingParams):
                model = oracle_train(here.parties, list(y), params, here.classes, base=model, **more)
    assert model is not None
    assert_oracles_model(states, model)


def _central(case: Drawn, y: Any) -> Any:
    here, params, limit = case.here, case.params, Defences(**case.labels).withholding
    tables = []
    for name, block in here.parties:
        names = [str(j) for j in range(block.shape[1])]
        directions = np.array([int(case.constrained and name == B), *[0] * (len(names) - 1)])
        table = bin_table(block, names, params.max_bin)
        tables.append((name, replace(table, directions=directions if directions.any() else None)))
    given: dict[str, Any] = {"min_cell_records": case.least, "withholding": limit}
    if isinstance(params, ForestParams):
        return train_forest(here.parties, y, params, here.classes, tables, **given).ensemble.trees
    assert isinstance(params, BoostingParams)
    if here.weights is not None:
        given["weights"] = here.weights
    return centralised.train(tables, y, params, here.classes, **given).ensemble.trees
