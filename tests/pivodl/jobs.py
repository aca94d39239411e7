"""Jobs of PIVODL: see `tests.trainings`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pivodl.oracle import pivodl_train
from tests.simulator import COORDINATOR
from tests.worlds import World, spec, spread, world
from treetap.party.policy import Policy, merged
from treetap.protocols.job_spec import sent_in_training
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import setup_pb2

PARAMS = PivodlParams(n_estimators=4, max_depth=2, max_bin=3, instance_threshold=1, min_samples=1)
WITHOUT_SPLITS = replace(PARAMS, gamma=1e6, n_estimators=2)
DEEP = replace(PARAMS, max_depth=3)
NUMBERS = replace(DEEP, objective="reg:squarederror")
EMITTING = {
    "gains announced": spec(DEEP),
    "gains announced, by psi": spec(DEEP, alignment="psi"),
    "gains compared in secret": spec(replace(PARAMS, gain_comparison="secure", n_estimators=1)),
    "moments of the labels": spec(NUMBERS),
    "as published": spec(replace(DEEP, as_published=True)),
    "noise": spec(replace(DEEP, epsilon=8.0)),
}
train_naively = pivodl_train
#: A world in which all three parties label records and win splits, in both trees of `SMALL`.
SMALL = replace(PARAMS, n_estimators=2)
SPREAD = spread(world(30, (1, 1, 1), seed=33, fresh=6), [i % 3 for i in range(30)])
#: Modules of the party's roles in this protocol's package.
ROLES = ("party",)


def fitting(here: World, params: PivodlParams) -> World:
    """The world with labels by turns."""
    del params
    return spread(here, [i % len(here.tables) for i in range(len(here.y))])


def policies(job: setup_pb2.JobSpec, **changes: Any) -> dict[str, dict[str, Any]]:
    """What the parties' policies need for a job beside what every policy has: all classes that no party gets unasked.

    `changes`: tables of each policy.
    """
    defaults = Policy(people={"label_holders": [job.aggregator], "peers": list(job.feature_parties)})
    found: dict[str, dict[str, Any]] = {}
    for sent in sent_in_training(job, COORDINATOR):
        emits = found.setdefault(sent.sender, {})
        for name in sent.classes:
            if not defaults.may_emit(sent.receiver, name):
                emits.setdefault(name, set()).add(sent.receiver)
    return {
        party: merged({"emits": {name: sorted(receivers) for name, receivers in sorted(emits.items())}}, changes)
        for party, emits in found.items()
    }
