"""Jobs on a lattice by either way, whatever their layout says: small worlds choose by few candidates otherwise."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests import worlds
from tests.simulator import Federation, run
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_ways import Needs, Way
from treetap.party.growth import lattice_sums, lattice_values
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import ForestParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

#: Instances of a test that are carried out on a lattice too whenever all tests are.
EVERY_TIME = 2


def take_way(patch: pytest.MonkeyPatch, way: Way) -> list[Way]:
    """Have all parties choose this way, unless nodes have bins of their own; returns what they choose."""
    chosen: list[Way] = []

    def way_of(_: HistogramParameters, __: int, needs: Needs, ___: int) -> Way:
        chosen.append(Way.SETS if needs.both_children else way)
        return chosen[-1]

    patch.setattr(lattice_values, "way_of", way_of)
    patch.setattr(lattice_sums, "way_of", way_of)
    return chosen


def predict_by_eini(patch: pytest.MonkeyPatch) -> None:
    """Have predictions that would be interactive carried out by Fed-EINI, as models without spaces need."""
    predict = Federation.predict

    async def encrypted(federation: Federation, request: jobs_pb2.PredictRequest) -> Any:
        if request.parameters.WhichOneof("protocol") in (None, "interactive"):
            request.parameters.CopyFrom(predict_request("eini", key_bits=1024).parameters)
        return await predict(federation, request)

    patch.setattr(Federation, "predict", encrypted)


def instances(features: Sequence[Callable[..., Any]], *, of_forests: bool) -> Iterator[Any]:
    """Each of these tests with the values of its parameters, if these name a forest, or if they do not.

    Those of a test beyond `EVERY_TIME` are of the campaign.
    """
    for test in features:
        cases = getattr(sys.modules[test.__module__], "CASES", {})
        marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        choices = [
            [{names: value} if isinstance(names, str) else dict(zip(names, value, strict=True)) for value in values]
            for names, values in marks
        ]
        taken = 0
        for number, chosen in enumerate(product(*choices)):
            given = {key: value for part in chosen for key, value in part.items()}
            values = list(given.values())
            parts = [*values, *(part for v in values if isinstance(v, str) and v in cases for part in cases[v])]
            if of_forests == any(isinstance(part, ForestParams) or part == "forest" for part in parts):
                marks_of = [pytest.mark.campaign] if taken >= EVERY_TIME else []
                yield pytest.param(test, given, id=f"{test.__name__}-{number}", marks=marks_of)
                taken += 1


def in_own_loop(test: Callable[..., Any], given: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Carry out a test with those fixtures that it wants, under virtual time if it is a coroutine."""
    fixtures = {"tmp_path": folder, "monkeypatch": patch}
    wanted = inspect.signature(test).parameters
    found = test(**given, **{name: fixture for name, fixture in fixtures.items() if name in wanted})
    if inspect.iscoroutine(found):
        run(found)


def carry_out(
    feature: Callable[..., Any], given: dict[str, Any], way: Way, folder: Path, patch: pytest.MonkeyPatch
) -> list[Way]:
    """One of these tests, whose jobs name no scheme, on a lattice; returns the ways that its parties choose."""
    schemes: set[str] = set()
    chosen = take_way(patch, way)
    train = Federation.train

    async def noted(federation: Federation, job: setup_pb2.JobSpec, *args: Any, **more: Any) -> Any:
        schemes.add(job.scheme)
        return await train(federation, job, *args, **more)

    patch.setattr(worlds, "default_scheme", LATTICE)
    patch.setattr(Federation, "train", noted)
    in_own_loop(feature, given, folder, patch)
    assert schemes == {LATTICE}
    return chosen
