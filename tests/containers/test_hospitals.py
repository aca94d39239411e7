"""examples/pivodl-hospitals: files that fit together, hospitals that reach each other alone, labels that are whole."""

from __future__ import annotations

import re
import runpy
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tests.containers.composed import ROOT
from treetap.commands.jobs.job_file import JobFile
from treetap.party import config as party_config
from treetap.protocols.job_spec import sent_in_training
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import members_of
from treetap.strict import load, read_toml
from treetap.tables.labels import read_partial_labels
from treetap.tables.reading import Table, read_table

pytestmark = pytest.mark.second_tier

FOLDER = ROOT / "examples" / "pivodl-hospitals"
JOB = load(FOLDER / "operator" / "job.toml", JobFile).job
HOSPITALS = ("north", "south", "east", "west")


def _table(hospital: str, folder: Path = FOLDER / "data") -> Table:
    """A hospital's training table, as its configuration describes it."""
    described = party_config.read(FOLDER / hospital / "party.toml").tables["train"]
    here = described.model_copy(update={"path": folder / hospital / "train.csv"})
    return read_table(here, with_label=True, missing=None)


@pytest.mark.parametrize(("folder", "tables"), [(FOLDER, 8), (FOLDER.with_name("compose"), 6)])
def test_the_committed_tables_are_those_of_their_script(folder: Path, tables: int, tmp_path: Path) -> None:
    """tables.py writes, byte for byte, what lies in data/."""
    runpy.run_path(str(folder / "tables.py"))["write"](tmp_path)
    made, there = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*.csv")} for top in (tmp_path, folder / "data")
    )
    assert made == there
    assert len(made) == tables


def test_one_hospital_labels_each_common_patient() -> None:
    """The labels are a partition of the patients that all have, and no hospital has most of them."""
    tables = {hospital: _table(hospital) for hospital in HOSPITALS}
    common = sorted(set.intersection(*(set(table.ids) for table in tables.values())))
    assert len(common) > 400
    times = np.zeros(len(common), dtype=int)
    for table in tables.values():
        place = {each: row for row, each in enumerate(table.ids)}
        selected = np.array([place[each] for each in common])
        labels = read_partial_labels(table, "diagnosis", JOB.objective or "binary:logistic", JOB.classes)
        own = labels.take(selected)
        assert 0.2 < len(own.rows) / len(common) < 0.3
        assert set(own.values.tolist()) == {0, 1}
        times[own.rows] += 1
    assert (times == 1).all()


@pytest.mark.parametrize("hospital", HOSPITALS)
def test_the_policies_let_the_job_pass(hospital: str) -> None:
    """Each hospital's policy permits every message of the job, and asks for all four."""
    spec = load(FOLDER / "operator" / "job.toml", JobFile).to_spec()
    policy = party_config.read(FOLDER / hospital / "party.toml").policy
    members = members_of(spec, "coordinator")
    assert members.parties == HOSPITALS
    policy.check(hospital, "min_label_parties", len(members.parties))
    policy.check_key(hospital, KeyKind.of(spec))
    policy.check_job(hospital, sent_in_training(spec, "coordinator"))
    assert set(policy.people.peers) == set(HOSPITALS) - {hospital}


def test_each_pair_has_a_network() -> None:
    """A hospital is on a network with each other one, and on one with the coordinator; names and ports fit."""
    text = (FOLDER / "docker-compose.yml").read_text()
    networks = {
        service: set(re.search(r"networks: \[(.*)\]", body).group(1).split(", "))  # type: ignore[union-attr]
        for service, body in re.findall(r"\n  ([a-z-]+):\n    <<: \*treetap\n(.*?)(?=\n\n)", text, re.DOTALL)
        if "networks:" in body
    }
    assert set(networks) == {*HOSPITALS, "coordinator", "job"}
    for pair in combinations(HOSPITALS, 2):
        assert networks[pair[0]] & networks[pair[1]] == {f"data-{pair[0]}-{pair[1]}"}
    for hospital in HOSPITALS:
        assert networks[hospital] & networks["coordinator"] == {f"control-{hospital}"}
        assert not networks[hospital] & networks["job"]
        mounted = re.search(rf"\n  {hospital}:\n.*?\n    volumes:\n(.*?)    healthcheck", text, re.DOTALL)
        assert mounted is not None
        assert re.findall(r"- ([\w./-]+):", mounted.group(1)) == [
            f"./{hospital}",
            f"./data/{hospital}",
            f"tls-{hospital}",
            f"state-{hospital}",
        ]
    listed = read_toml(FOLDER / "coordinator" / "coordinator.toml")["parties"]
    assert listed == {hospital: f"{hospital}:7101" for hospital in HOSPITALS}
