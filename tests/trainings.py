"""The protocols that train, for the tests to which each of them is put.

A protocol's folder of tests has a module `jobs`: `PARAMS`, of four trees grown with `DROPOUT`; `WITHOUT_SPLITS`, the
same where no node can split; `EMITTING`, jobs that together send all that the protocol does, by what is special about
them; and `train_naively`, its oracle.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from tests.oracle import OracleModel
from tests.worlds import World
from treetap.protocols.registry import TRAINING, training
from treetap.trees.params import TreeParams

#: With the seed 0 every feature party takes part in some of four trees, and in others not.
DROPOUT = {"feature-b": 0.4, "feature-c": 0.6}


def jobs_of(protocol: str) -> ModuleType:
    """The jobs of a protocol's folder of tests."""
    return importlib.import_module(f"tests.{training(protocol).field}.jobs")


def oracle(here: World, params: TreeParams) -> OracleModel:
    """The model that a federation must find in this world."""
    protocol = next(name for name in TRAINING if training(name).params is type(params))
    found: OracleModel = jobs_of(protocol).train_naively(here.parties, list(here.y), params, here.classes)
    return found
