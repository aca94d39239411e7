"""`treetap leakage`: the label holder's own account, of a job that trains and of a published model; and of previews."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.commands.command import refused, treetap
from treetap.models.store import LEAKAGE, MODEL_FORMAT, read_leakage
from treetap.party.runtime.job_store import JobStore
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of

MODEL = Path(__file__).parent.parent / "library" / "models" / f"v{MODEL_FORMAT}" / "bank"
CONFIG = """
name = "bank"
state = "state"

[tls]
ca = "ca.crt"
certificate = "bank.crt"
key = "bank.key"
"""


def _party(folder: Path) -> Path:
    (folder / "bank.toml").write_text(CONFIG)
    shutil.copytree(MODEL, folder / "state" / "models" / "experiment")
    return folder / "bank.toml"


def test_a_published_model_has_its_account(tmp_path: Path) -> None:
    """All trees as JSON; for people the largest bound of all trees and the signature after the last."""
    config = _party(tmp_path)
    found = json.loads(treetap("leakage", "experiment", "--config", config, "--json").out)
    assert found == {"job": "experiment", "published": True, "trees": read_leakage(MODEL)}
    bounds = [tree["parties"]["telco"]["bound_nats"] for tree in found["trees"]]
    shown = treetap("leakage", "experiment", "--config", config).out
    assert f"{max(bounds):.4f}" in shown
    assert f"{100 * found['trees'][-1]['parties']['telco']['excess_share']:.1f} % of H(Y)" in shown
    assert "per node, not joint" in shown


def test_a_job_that_trains_has_its_trees_so_far(tmp_path: Path) -> None:
    """The lines that are stored, before the model is published."""
    config = _party(tmp_path)
    store = JobStore(tmp_path / "state" / "jobs" / "new", tmp_path / "state" / "models" / "new")
    store.claim("nonce", "d")
    store.lines(LEAKAGE).put(read_leakage(MODEL)[0], 0)
    found = json.loads(treetap("leakage", "new", "--config", config, "--json").out)
    assert (found["published"], len(found["trees"])) == (False, 1)


def test_a_job_without_an_account_is_refused(tmp_path: Path) -> None:
    """Exit status 2 and the folder that has none."""
    said = refused(treetap("leakage", "other", "--config", _party(tmp_path)))
    assert "there is no account of a job 'other'" in said


def test_a_party_has_the_account_of_its_previews(tmp_path: Path) -> None:
    """All of them, or the one of a name: with whom, and what it told; one that broke down has no answer."""
    config, ledger = _party(tmp_path), ledger_of(tmp_path / "state")
    assert "there is no account of previews" in refused(treetap("leakage", "--config", config))
    for name, told in (("align-1", "fewer than 30"), ("align-2", "")):
        occasion = Occasion("train", ("shop", "telco"), "coordinator", name, 1)
        number = ledger.enter(Charge(Kind.PREVIEW, occasion, details={"answer": "count"}))
        if told:
            ledger.enter(Charge(Kind.ANSWER, occasion, 0, {"of": number, "told": told}))
    found = json.loads(treetap("leakage", "--config", config, "--json").out)["previews"]
    assert [(row["job"], row["partners"], row["told"]) for row in found] == [
        ("align-1", ["shop", "telco"], "fewer than 30"),
        ("align-2", ["shop", "telco"], ""),
    ]
    shown = treetap("leakage", "align-1", "--config", config).out
    for text in ("align-1", "shop, telco", "fewer than 30", "previews_per_day = 5"):
        assert text in shown
    assert "align-2" not in shown
    assert "no answer" in treetap("leakage", "align-2", "--config", config).out
    ledger.path.write_text(ledger.path.read_text().replace("shop", "shot"))
    assert "ledger.jsonl" in refused(treetap("leakage", "--config", config))
