"""A job on a lattice from the terminal: trained, shown, continued, resumed, and its model's predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.commands.command import Outcome, treetap, write
from tests.system.federations import settings
from tests.worlds import PARTIES, world
from treetap.lab.local_federation import LocalFederation

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("lattice jobs")]

HERE = world(40, (1, 1, 1), seed=3)
LABEL_HOLDER, FEATURE_B, FEATURE_C = PARTIES


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties whose policies name both schemes."""
    folder = tmp_path_factory.mktemp("lattice")
    own = settings(folder, {"train": HERE})
    for config in own.values():
        config["policy"]["keys"]["schemes"] = ["paillier", "lattice"]
    with LocalFederation(folder, own) as running:
        running.write_operator_file()
        yield running


def _run(federation: LocalFederation, *words: str | Path) -> Outcome:
    return treetap(*words, folder=federation.folder)  # where operator.toml is


def _train(federation: LocalFederation, name: str, **changes: Any) -> dict[str, Any]:
    job = {
        **{"label_holder": LABEL_HOLDER, "feature_parties": [FEATURE_B, FEATURE_C]},
        **{"n_estimators": 2, "max_depth": 2, "max_bin": 4, **changes},
    }
    file = write(federation.folder / f"{name}.toml", {"name": name, "job": job})
    outcome = _run(federation, "train", file, "--json")
    assert (outcome.status, outcome.err) == (0, f"{name}: running\n")
    status: dict[str, Any] = json.loads(outcome.out)
    assert status["state"] == "finished"
    return status


@pytest.fixture(scope="module")
def trained(federation: LocalFederation) -> dict[str, Any]:
    """The job `good`."""
    return _train(federation, "good", scheme="lattice")


def test_what_a_job_counts(federation: LocalFederation, trained: dict[str, Any]) -> None:
    """Operations and ciphertexts of every party by names of their own; the model is that of a job with a key."""
    del trained
    status = json.loads(_run(federation, "status", "good", "--json").out)["jobs"][0]
    costs = {account["party"]: account["account"] for account in status["accounts"]}
    counted = {
        party: {kind: {row["name"] for row in of_party[kind]} for kind in ("operations", "ciphertexts")}
        for party, of_party in costs.items()
    }
    assert {"encryptions", "openings"} <= counted[LABEL_HOLDER]["operations"]
    assert counted[LABEL_HOLDER]["ciphertexts"] == {"encrypted_words"}
    for party in (FEATURE_B, FEATURE_C):
        assert {"additions", "hidden", "answered"} <= counted[party]["operations"]
        assert counted[party]["ciphertexts"] == {"candidate_sums"}
    with_key = _train(federation, "key", key_bits=2048)
    assert with_key["metrics"] == pytest.approx(status["metrics"], rel=1e-12)  # records stand in other orders


def test_predictions(federation: LocalFederation, trained: dict[str, Any]) -> None:
    """Every protocol predicts by its model; of entries the key is the default one, since the training had none."""
    del trained
    tables = {}
    for protocol in ("interactive", "eini", "eini-lattice"):
        asked = ("predict", "good", "--table", "train-new", "--protocol", protocol, "--name", f"by-{protocol}")
        outcome = _run(federation, *asked, "--json")
        assert (outcome.status, outcome.err) == (0, f"by-{protocol}: running\n")
        tables[protocol] = pq.read_table(json.loads(outcome.out)["predictions"])
    expected = tables.pop("interactive")
    for protocol, table in tables.items():
        assert table.column("id").to_pylist() == expected.column("id").to_pylist()
        difference = table.column("score").to_numpy() - expected.column("score").to_numpy()
        assert abs(difference).max() <= (1e-4 if protocol == "eini-lattice" else 1e-9)


def test_a_training_goes_on_under_the_other_scheme(federation: LocalFederation, trained: dict[str, Any]) -> None:
    """A model is the same whatever summed it, so that a job with a key continues from one on a lattice, and back."""
    del trained
    both = _train(federation, "with-key", key_bits=2048, base_model="good")
    whole = _train(federation, "on-lattice", scheme="lattice", base_model="good")
    assert both["metrics"] == pytest.approx(whole["metrics"], rel=1e-12)
