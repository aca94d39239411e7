"""Requests to the HTTP endpoint, drawn by schemathesis from its OpenAPI document, some of which do not fit it.

The endpoint is the real one, on a socket; the model behind it answers every id at once.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.campaign.checks import logged
from tests.serving.gateways import behind_gateway
from treetap.party.config import PartyConfig, ServeConfig
from treetap.party.policy import Policy
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.serving.registry import ServedModels
from treetap.wire.tls import NAME_KEY
from treetap.wire.v2 import serving_pb2

CLIENT = "app"


class _Model:
    """Answers every id: some predicted, some unknown."""

    model, job, ready = "model", "job", True

    def __init__(self, config: ServeConfig) -> None:
        self.config = config

    async def predict(
        self,
        _client: str,
        ids: Sequence[str],
        records: Sequence[serving_pb2.NewRecord],
        _within_s: float,
        _reasons: int,
    ) -> serving_pb2.PredictedRecords:
        answer = serving_pb2.PredictedRecords(model=self.model, job=self.job, classes=["no", "yes"])
        for id_ in [*ids, *(record.id for record in records)]:
            known = serving_pb2.RecordPrediction(
                id=id_, status=serving_pb2.PREDICTED, label="yes", scores=[0.5], probabilities=[0.62]
            )
            unknown = serving_pb2.RecordPrediction(id=id_, status=serving_pb2.UNKNOWN_ID)
            answer.predictions.append(known if len(id_) % 2 else unknown)
        return answer

    def describe(self) -> serving_pb2.ModelDescription:
        return serving_pb2.ModelDescription(
            model=self.model, job=self.job, protocol="interactive", objective="binary:logistic", classes=["no", "yes"],
            records=6, most_ids=self.config.most_ids, deadline_s=self.config.deadline_s,
        )  # fmt: skip

    def recorded(self, _client: str, _request: serving_pb2.PredictRecords) -> None:
        """Keep nothing."""

    refuse = close = lambda self: None


@contextmanager
def endpoint(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a running endpoint, and its OpenAPI document."""
    serve = ServeConfig(clients=[CLIENT], listen="127.0.0.1:0", gateway="gateway")
    config = PartyConfig(name="label-holder", state=folder / "state", insecure=True, serve=serve).under(Policy())
    models = ServedModels(config, PartyMetrics(config.name))
    models.take(_Model(serve))
    held = AsyncExitStack()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opening = held.enter_async_context(behind_gateway(config, models))
    address = asyncio.run_coroutine_threadsafe(opening, loop).result(10)
    try:
        with urlopen(f"http://{address}/openapi.json", timeout=10) as document:
            yield address, json.load(document)
    finally:
        asyncio.run_coroutine_threadsafe(held.aclose(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def conduct(folder: Path, examples: int, seed: int = 0) -> dict[str, Any]:
    """As many requests of each kind to each operation; the figures as a file holds them."""
    statuses: Counter[str] = Counter()
    findings: list[str] = []
    with logged() as log, endpoint(folder) as (address, document):
        schema = schemathesis.openapi.from_dict(document)
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                try:
                    strategy = operation.as_strategy(generation_mode=mode)
                    _ask(strategy, examples, seed, address, statuses)
                except hypothesis.errors.Unsatisfiable:
                    continue  # it takes nothing that could not fit
                except (FailureGroup, AssertionError) as failure:
                    findings.append(f"{operation.label}, {mode.value}: {failure}"[:1500])
    findings += log.faults
    return {
        "cases": statuses.total(),
        "kinds": dict(sorted(statuses.items())),
        "seed": seed,
        "findings": len(findings),
        "failing": findings,
    }


def _ask(strategy: Any, examples: int, seed: int, address: str, statuses: Counter[str]) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=strategy)
    def asked(case: Any) -> None:
        answer = case.call(base_url=f"http://{address}", headers={NAME_KEY: CLIENT})
        statuses[str(answer.status_code)] += 1
        # for JSON Schema 7.0 is a whole number; for the endpoint no number with a point is an id
        ids = case.body.get("ids") if isinstance(case.body, dict) else None
        pointed = isinstance(ids, list) and any(isinstance(each, float) for each in ids)
        case.validate_response(answer, excluded_checks=[positive_data_acceptance] if pointed else None)

    asked()
