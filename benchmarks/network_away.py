"""A split network that is served while a feature party is killed and comes back: gaps in the answers, AUC, speed.

    python benchmarks/network_away.py [--dropout 0.2] [--epochs 3] [--deadline 3] [--json]

Needs TREETAP_DATA (the folder with credit_default.parquet). A federation of real processes under mutual TLS trains on
24,000 records of credit default, predicts the other 6,000, and serves them by `--away degrade`. A client asks about one
record after the other over gRPC. Then the party `status`, which has the six columns of repayment status, is killed, and
started again on its own disk. A gap is the longest time between two answers around the kill, and around the return.
`--dropout 0` trains without Party-wise Dropout: such a model is not served without a party, so that only its
predictions are made.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap import terminal
from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import LocalFederation
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams, Top
from treetap.protocols.job_spec import put_params
from treetap.protocols.prediction import predict_request
from treetap.trees import metrics
from treetap.wire.ports import Identity, Role
from treetap.wire.v2 import jobs_pb2, serving_pb2, serving_pb2_grpc, setup_pb2

LABEL, HOLDER, GOES, CLIENT = "default.payment.next.month", "label-holder", "status", "app"
COLUMNS = {
    HOLDER: ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"],
    GOES: ["PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"],
    "amounts": [f"{kind}_AMT{month}" for kind in ("BILL", "PAY") for month in range(1, 7)],
}
TRAINED, PREDICTED = 24_000, 6_000
#: Seconds within which a change must show in the answers, and the answers of each state.
WITHIN_S, ANSWERS = 120.0, 50


def write_tables(folder: Path) -> dict[str, Any]:
    """The parties' tables in a fixed random order; the labels (n,) of the records to predict are returned last."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
    order = np.random.default_rng(0).permutation(len(table))[: TRAINED + PREDICTED]
    rows = {"train": order[:TRAINED], "predict": order[TRAINED:]}
    settings: dict[str, Any] = {}
    for party, columns in COLUMNS.items():
        receivers = ["parties"] if party == HOLDER else [HOLDER]
        emits = {"EMBEDDING_GRADIENT" if party == HOLDER else "EMBEDDING": receivers}
        settings[party] = {"workers": 1, "policy": {"emits": emits}, "tables": {}}
        for name, wanted in rows.items():
            own = table.select(columns).take(pa.array(wanted))
            own = own.add_column(0, "id", pa.array([f"r{k:06d}" for k in range(len(wanted))]))
            config: dict[str, Any] = {"path": str(folder / f"{party}-{name}.parquet"), "id": "id", "columns": columns}
            if party == HOLDER and name == "train":
                own, config["label"] = own.append_column("y", table.column(LABEL).take(pa.array(wanted))), "y"
            pq.write_table(own, config["path"])
            settings[party]["tables"][name] = config
    settings[HOLDER]["serve"] = {"clients": [CLIENT], "listen": "127.0.0.1:0"}
    return {"settings": settings, "labels": table.column(LABEL).to_numpy()[rows["predict"]]}


def job(dropout: float, epochs: int) -> setup_pb2.JobSpec:
    """The training."""
    others = [party for party in COLUMNS if party != HOLDER]
    spec = setup_pb2.JobSpec(aggregator=HOLDER, feature_parties=others, table="train", alignment="sorted-ids")
    params = SplitnnParams(
        epochs=epochs,
        batch_size=64,
        learning_rate=0.02,
        schedule="cosine",
        party_dropout=dict.fromkeys(others, dropout) if dropout else {},
        bottom={DEFAULT: Bottom(hidden=(64,), width=32)},
        top=Top((64,)),
    )
    put_params(spec, params)
    return spec


def ended(federation: LocalFederation, name: str) -> jobs_pb2.JobStatus:
    """The status of a job that has finished."""
    status = federation.operator.watch(name, lambda _: None)
    if status.state != "finished":
        raise SystemExit(f"{name}: {status.error}")
    return status


def predicted(federation: LocalFederation, labels: Any, deadline_s: float) -> dict[str, Any]:
    """Seconds and AUC of a prediction that goes on without who is away."""
    began = time.perf_counter()
    asked = predict_request(model="network", away_policy="degrade", away_deadline_s=deadline_s)
    status = ended(federation, federation.operator.predict(asked))
    table = pq.read_table(status.predictions)
    auc = metrics.auc(table.column("probability_1").to_numpy(), labels == 1)
    phases = {row.name: row.amount for row in status.phases}
    return {"away": list(status.away), "seconds": time.perf_counter() - began, "phases": phases, "auc": auc}


class Client:
    """A client that asks about one record after the other, and notes when it had which answer."""

    def __init__(self, federation: LocalFederation, address: str) -> None:
        files = issue(federation.folder / "certs", CLIENT, Role.CLIENT, days=2)
        ca, certificate, key = files.read()
        named = (("grpc.ssl_target_name_override", Identity(HOLDER, Role.PARTY).dns),)
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate), named)
        self._stub, self._asked = serving_pb2_grpc.ServingStub(channel), 0

    def ask(self) -> tuple[float, list[str]] | None:
        """The seconds of an answer, and who was away; None where there is none now."""
        self._asked += 1
        began = time.perf_counter()
        with suppress(grpc.RpcError):
            request = serving_pb2.PredictRecords(ids=[f"r{self._asked % PREDICTED:06d}"])
            answer = self._stub.Predict(request, timeout=10)
            return time.perf_counter() - began, list(answer.away)
        return None

    def gap(self, away: list[str]) -> tuple[float, float]:
        """Ask until an answer lists these parties; the longest time without an answer, and that until then."""
        began = last = time.perf_counter()
        longest = 0.0
        while time.perf_counter() - began < WITHIN_S:
            found = self.ask()
            now = time.perf_counter()
            if found is None:
                time.sleep(0.1)
                continue
            longest, last = max(longest, now - last), now
            if found[1] == away:
                return longest, now - began
        raise SystemExit(f"no answer with away = {away} within {WITHIN_S:g} s")

    def times(self) -> float:
        """The median of some answers, seconds."""
        return float(np.median([found[0] for found in (self.ask() for _ in range(ANSWERS)) if found]))


@contextmanager
def served(federation: LocalFederation, deadline_s: float) -> Iterator[Client]:
    """The model, served by degrade."""
    asked = predict_request(model="network", job="s", serve=True, away_policy="degrade", away_deadline_s=deadline_s)
    operator = federation.operator
    operator.predict(asked)
    serves: Callable[[jobs_pb2.JobStatus], bool] = lambda status: status.HasField("serving")  # noqa: E731
    status = operator.watch("s", lambda _: None, serves)
    yield Client(federation, status.serving.grpc)
    operator.cancel("s")


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train, predict with and without a party, serve while it goes and comes back."""
    world = write_tables(folder)
    with LocalFederation(folder, world["settings"]) as federation:
        federation.operator.submit(jobs_pb2.SubmitRequest(job="network", spec=job(given.dropout, given.epochs)))
        trained = ended(federation, "network")
        found: dict[str, Any] = {"training_s": trained.seconds, "dropout": given.dropout}
        found["all"] = predicted(federation, world["labels"], given.deadline)
        found["records_per_s"] = PREDICTED / found["all"]["phases"]["predict"]
        if given.dropout:
            with served(federation, given.deadline) as client:
                client.ask()
                found["answer_s"] = client.times()
                federation.kill(GOES)
                found["gap_kill_s"], _ = client.gap([GOES])
                found["answer_without_s"] = client.times()
                federation.restart(GOES)
                found["gap_return_s"], found["healed_s"] = client.gap([])
        federation.kill(GOES)
        found["without"] = predicted(federation, world["labels"], given.deadline)
    return found


def show(found: Mapping[str, Any]) -> None:
    """Print the figures."""
    echo = terminal.out.print
    echo(f"training {found['training_s']:.0f} s, party_dropout {found['dropout']:g}")
    echo(f"prediction {found['records_per_s']:,.0f} records/s, AUC {found['all']['auc']:.4f} by all parties")
    echo(f"AUC {found['without']['auc']:.4f} without {GOES}")
    if "answer_s" in found:
        echo(f"answers {found['answer_s'] * 1000:.0f} ms, without {GOES} {found['answer_without_s'] * 1000:.0f} ms")
        echo(f"no answer for {found['gap_kill_s']:.1f} s after the kill")
        echo(f"no answer for {found['gap_return_s']:.1f} s at the return")
        echo(f"whole again {found['healed_s']:.1f} s after the restart")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="A served split network while a party is away.")
    parser.add_argument("--dropout", type=float, default=0.2, help="of both feature parties")
    parser.add_argument("--epochs", type=int, default=3, help="of the training")
    parser.add_argument("--deadline", type=float, default=3.0, help="--away-deadline, seconds")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(given, Path(folder))
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
