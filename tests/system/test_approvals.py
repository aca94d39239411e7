"""Jobs that people approve, over sockets: certificates of operators and approvers, and the approvers' own commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.command import Outcome, refused, treetap
from tests.system.federations import settings, until, write_operator_file
from tests.worlds import PARTIES, spec, world
from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import LocalFederation
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.xdist_group("approvals"), pytest.mark.second_tier]

HERE = world(20, (1, 1, 1))
SPEC = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2))
PARTY = "feature-b"
ANN = "ann"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """A federation one of whose parties has people decide, about jobs that `operator` has signed."""
    folder = tmp_path_factory.mktemp("approvals")
    parties = settings(folder, {"train": HERE})
    parties[PARTY]["policy"]["people"] = {"approval": "manual", "approvers": [ANN], "operators": ["operator"]}
    with LocalFederation(folder, parties) as running:
        yield running


@pytest.fixture(scope="module")
def approver(federation: LocalFederation) -> Path:
    """The file of an approver whom the policy names."""
    folder = federation.folder / f"people-{ANN}-{Role.APPROVER}"
    files = issue(folder, ANN, Role.APPROVER, ca_folder=federation.folder / "certs")
    path = folder / "approver.toml"
    path.write_text(
        f'name = "{ANN}"\nparty = "{federation.addresses[PARTY]}"\nparty_name = "{PARTY}"\n'
        f'[tls]\nca = "{files.ca}"\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
    )
    return path


def _waits(federation: LocalFederation, job: str) -> None:
    until(
        lambda: federation.operator.status(job)[0].error == f"waiting for approval of {PARTY}",
        f"job {job} waits for people",
    )


def _done(outcome: Outcome) -> str:
    assert outcome.status == 0, outcome.err
    return outcome.out


def test_a_job_is_shown_approved_and_trained(federation: LocalFederation, approver: Path) -> None:
    """The operator's signature counts; the digest is the one that was shown; the party has countersigned."""
    federation.operator.submit(jobs_pb2.SubmitRequest(job="shown", spec=SPEC))
    _waits(federation, "shown")
    shown = _done(treetap("jobs", "--approver", approver))
    assert "Operator operator has signed job shown; coordinator coordinator conducts it." in shown
    assert 'label-holder wants to train trees (boosting) on table "train"' in shown
    (listed,) = json.loads(_done(treetap("jobs", "shown", "--approver", approver, "--json")))["jobs"]
    assert listed["state"] == "waiting"
    wrong = refused(treetap("approve", "shown", "--digest", "0" * 12, "--approver", approver))
    assert wrong == "the party was asked for no job 'shown' of digest 000000000000\n"
    for days in ("0", "367"):
        said = treetap("approve", "shown", "--days", days, "--approver", approver)
        assert (said.status, said.err) == (2, f"treetap: days = {days}: an approval holds for 1 to 366 days\n")
    done = _done(treetap("approve", "shown", "--digest", listed["digest"][:16], "--days", "2", "--approver", approver))
    assert "approved by ann (command) on " in done
    assert done.rstrip().endswith(", countersigned")
    assert federation.operator.watch("shown", lambda _: None).state == "finished"
    again = treetap("approve", "shown", "--days", "5", "--approver", approver)  # shown, and then refused
    assert (again.status, again.err) == (2, "treetap: job shown has ended here; have its operator submit a new one\n")
    (decided,) = json.loads(_done(treetap("jobs", "shown", "--approver", approver, "--json")))["jobs"]
    assert decided["document"]["parameters"]["n_estimators"] == 1
    assert decided["decisions"][0]["signature"]
    for name in PARTIES:  # each keeps whose job it was
        (kept,) = (federation.state(name) / "approvals").glob(f"{listed['digest']}.json")
        assert json.loads(kept.read_text())["operator"] == "operator"


def test_a_refusal_ends_the_operators_command(federation: LocalFederation, approver: Path) -> None:
    """Exit status 2, and the reason."""
    federation.operator.submit(jobs_pb2.SubmitRequest(job="refused", spec=SPEC))
    _waits(federation, "refused")
    _done(treetap("refuse", "refused", "--why", "no contract", "--approver", approver))
    status = federation.operator.watch("refused", lambda _: None)
    assert (status.state, status.bad_input) == ("failed", True)
    assert status.error == f"{PARTY} has refused job refused: no contract (by {ANN})"
    names = ("one", "another")
    for name in names:
        federation.operator.submit(jobs_pb2.SubmitRequest(job=name, spec=SPEC))
        _waits(federation, name)
    nobody = refused(treetap("refuse", "--from", "rogue", "--approver", approver))
    assert nobody == "--from rogue: no job of this coordinator waits; see: treetap jobs\n"
    both = refused(treetap("refuse", "one", "--from", "coordinator", "--approver", approver))
    assert both == "give the name of a job, --standing NAME, or --from COORDINATOR: one of them\n"
    said = _done(treetap("refuse", "--from", "coordinator", "--why", "no contract", "--approver", approver))
    assert [line.partition(" (digest")[0] for line in said.splitlines()] == [f"{name}: refused" for name in names]
    for name in names:
        assert "no contract" in federation.operator.watch(name, lambda _: None).error


def test_standing_approvals_are_kept_shown_and_ended(federation: LocalFederation, approver: Path) -> None:
    """A job that one covers does not wait."""
    file = approver.with_name("standing.toml")
    file.write_text(
        'name = "weekly"\nuntil = 2100-01-01\ncount = 1\ncoordinator = "coordinator"\ntable = "train"\n'
        f"partners = {json.dumps([name for name in PARTIES if name != PARTY])}\n[document]\n"
        'aggregator = "label-holder"\nprotocol = "boosting"\nkey_bits = [512, 1024]\n'
        'alignment = ["psi", "sorted-ids"]\nobfuscation = ["short-exponent", "standard"]\n'
        '"parameters.n_estimators" = { most = 2 }\n"parameters.max_depth" = { most = 2 }\n'
        '"parameters.max_bin" = { most = 8 }\n'
    )
    assert "0 of 1 jobs, until 2100-01-01" in _done(treetap("approve", "--standing", file, "--approver", approver))
    federation.operator.submit(jobs_pb2.SubmitRequest(job="covered", spec=SPEC))
    assert federation.operator.watch("covered", lambda _: None).state == "finished"
    shown = _done(treetap("jobs", "--approver", approver))
    assert "standing approval weekly by ann: 1 of 1 jobs" in shown
    ended = _done(treetap("refuse", "--standing", "weekly", "--approver", approver))
    assert ended.rstrip().endswith("ended by ann")


def test_doctor_and_a_check_know_of_approvals(federation: LocalFederation, approver: Path) -> None:
    """The approver's own file is one of doctor's, and a check says who would wait."""
    assert f"ok       {PARTY}" in _done(treetap("doctor", "--config", approver))
    said = treetap("doctor", "--config", federation.folder / PARTY / "config.toml").out
    assert "every job waits for approval by ann" in said
    job = approver.with_name("job.toml")
    others = json.dumps([name for name in PARTIES if name != "label-holder"])
    job.write_text(f'[job]\nlabel_holder = "label-holder"\nfeature_parties = {others}\nkey_bits = 1024\n')
    operator = write_operator_file(federation)
    checked = _done(treetap("train", job, "--check", "--operator", operator))
    assert (
        f"{PARTY}: the job would wait for approval here, or for an operator's signature; its table was not" in checked
    )
    assert "feature-c: the job could begin here" in checked
