"""The protocols that train, for the tests to which each of them is put.

A protocol's folder of tests has a module `jobs`: `PARAMS`, of four trees grown with `DROPOUT`; `WITHOUT_SPLITS`, the
same where no node can split; `EMITTING`, jobs that together send all that the protocol does, by what is special about
them; and `train_naively`, its oracle.

Of a protocol in which all parties have one role, no party sits trees out, and the oracle is told besides which party
labels which records. Its module has besides `fitting`: a world with labels as its parameters need them; and `policies`:
what the parties' policies need for a job of it.

Of a protocol that grows no trees the module has `EMITTING` and `policies`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from tests.oracle import OracleModel
from tests.worlds import World
from treetap.protocols.registry import TRAINING, training, training_name
from treetap.trees.params import TreeParams
from treetap.wire.v2 import setup_pb2

#: Trainings of trees with a label holder and feature parties.
TWO_ROLES = [name for name in TRAINING if not training(name).one_role and training(name).grows_trees]
#: With the seed 0 every feature party takes part in some of four trees, and in others not.
DROPOUT = {"feature-b": 0.4, "feature-c": 0.6}


def jobs_of(protocol: str) -> ModuleType:
    """The jobs of a protocol's folder of tests."""
    return importlib.import_module(f"tests.{training(protocol).field}.jobs")


def oracle(here: World, params: TreeParams) -> OracleModel:
    """The model that a federation must find in this world."""
    protocol = protocol_of(params)
    more = {"ownership": here.ownership} if training(protocol).one_role else {}
    found: OracleModel = jobs_of(protocol).train_naively(here.parties, list(here.y), params, here.classes, **more)
    return found


def fitting(here: World, params: TreeParams) -> World:
    """A world as the protocol needs it: labels spread over the parties where all parties have one role."""
    jobs = jobs_of(protocol_of(params))
    found: World = jobs.fitting(here, params) if hasattr(jobs, "fitting") else here
    return found


def policies(job: setup_pb2.JobSpec) -> dict[str, dict[str, Any]]:
    """Lines of the parties' policies that a job needs beside those that the simulator gives to every party."""
    jobs = jobs_of(training_name(job))
    found: dict[str, dict[str, Any]] = jobs.policies(job) if hasattr(jobs, "policies") else {}
    return found


def protocol_of(params: TreeParams) -> str:
    """The protocol that has these parameters."""
    return next(name for name in TRAINING if training(name).params is type(params))
