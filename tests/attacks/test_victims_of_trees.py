"""The audit of a job of trees with its label holder as attacker: which files serve, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.recorded import federated, laid_out
from tests.commands.command import treetap_here
from tests.trainings import fitting, jobs_of, policies
from tests.worlds import PARTIES, spec, world
from treetap.attacks import audit_file
from treetap.attacks.audit import audit
from treetap.attacks.document import parse
from treetap.attacks.label_holder_audit import label_holder, read_holder
from treetap.attacks.registry import Needs
from treetap.errors import BadInput
from treetap.lab.local_federation import to_toml
from treetap.trees.params import BoostingParams

HOLDER, B, C = PARTIES
HERE = world(60, (1, 2, 2), seed=5)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


def _trained(place: Path, params: Any, **more: Any) -> None:
    """The parties' own folders after a training, and their tables."""
    here = fitting(HERE, params)
    job = spec(params, key_bits=512, obfuscation="standard")
    allowed = policies(job)
    for party, lines in more.get("policies", {}).items():
        allowed[party] = allowed.get(party, {}) | lines
    laid_out(place, federated(place / "federation", here.tables, job, policies=allowed), here.tables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After a training whose label holder recorded its sums."""
    place = tmp_path_factory.mktemp("trees")
    _trained(place, PARAMS, policies={HOLDER: {"people": {"record_sums": True}}})
    return place


def _file(folder: Path, *victims: dict[str, Any], **more: Any) -> audit_file.AuditFile:
    party = {"name": HOLDER, "transcript": HOLDER, "table": f"{HOLDER}.parquet"}
    (folder / "audit.toml").write_text(to_toml({"party": [party], "victim": list(victims)} | more))
    return audit_file.read(folder)


def _victim(party: str, **changes: Any) -> dict[str, Any]:
    given = {"name": party, "truth": f"{party}.parquet"} | changes
    return {key: value for key, value in given.items() if value is not None}


def test_the_label_holders_view_has_the_sums_alone(folder: Path) -> None:
    """No attack on labels is given it; the evidence is its own transcript."""
    file = _file(folder, _victim(B), _victim(C))
    assert label_holder(file) == HOLDER
    view = read_holder(file, file.party[0])
    assert view.opened is not None
    assert view.faults == ()
    assert [needs for needs in Needs if needs.given_by(view)] == [Needs.SUMS]


def test_feature_parties_are_audited_beside_it(folder: Path) -> None:
    """The attacks on labels are theirs; labels are no reason to read the label holder's."""
    parties = [{"name": name, "transcript": name, "table": f"{name}.parquet"} for name in (B, HOLDER)]
    label = {"path": f"{HOLDER}.parquet", "column": "y"}
    file = _file(folder, _victim(C), party=parties, label=label, attacks=["uni"])
    document = audit(file, by_tree=False, progress=lambda *_: None)
    assert document.parties[B].attacks.keys() == {"uni"}
    assert document.parties[HOLDER].attacks == {}
    assert document.parties[HOLDER].columns_read is not None
    assert document.columns_read.keys() == {C}
    assert document.advice is not None
    assert document.labelled
    assert document.trees == PARAMS.n_estimators


def test_an_audit_of_columns_judged_by_a_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without labels and feature parties' transcripts: the document has both victims, and the status is the limit's."""
    _file(folder, _victim(B), _victim(C))
    status = treetap_here("audit", str(folder), "--json", "--fail-above", "columns=0.01")
    printed = capsys.readouterr()
    document = parse(json.loads(printed.out))
    read = {name: figures.together for name, figures in document.columns_read.items()}
    assert read.keys() == {B, C}
    assert (document.labelled, document.classes, document.advice) == (False, None, None)
    above = [name for name, figures in read.items() if figures is not None and figures.placed > 0.01]
    assert above
    assert status == 1
    for name in above:
        assert f"{name}: {HOLDER} placed a share of" in printed.err
    assert treetap_here("audit", str(folder), "--fail-above", "columns=1", "--details") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{HOLDER} placed " in said
    assert "left sets alone (floor)" in said
    assert f"<bdi>{HOLDER}</bdi> placed " in (folder / "audit.html").read_text(encoding="utf-8")
    assert not [*folder.glob("**/audit-steps/*")]  # an audit that has ended leaves no steps


def test_one_attack_by_name_is_referred_to_the_audit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs the victim's table for its scores, which `treetap attack` is not given."""
    assert treetap_here("attack", "columns", str(folder / HOLDER)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "attack columns is on columns of a [[victim]]: name it in audit.toml, and run treetap audit" in said


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no truth": (
        {"truth": None},
        {},
        r"\[\[victim\]\] feature-b: a job of protocol 'boosting' needs truth = …, the table of that party, by which",
    ),
    "auxiliary records": (
        {"auxiliary": "known.parquet"},
        {},
        "feature-b: auxiliary is of split networks, and the job is of 'boosting': leave it out",
    ),
    "an epoch": ({"epoch": 1}, {}, "feature-b: epoch is of split networks, and the job is of 'boosting': leave it"),
    "another job's attack": (
        {"attacks": ["decode"]},
        {},
        "feature-b: attack 'decode' is not on jobs of protocol 'boosting'; those are ",
    ),
    "no table of the label holder's": (
        {},
        {"party": [{"name": HOLDER, "transcript": HOLDER}]},
        r"\[\[party\]\] label-holder: records are found by the ids of its own table: say table = …",
    ),
    "no label holder": (
        {},
        {"party": [{"name": B, "transcript": B}]},
        r'feature-b: the label holder label-holder attacks its columns.* name = "label-holder"',
    ),
    "a stranger": ({"name": "shop"}, {}, "shop: is no feature party of the job; name one of feature-b, feature-c"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, folder: Path) -> None:
    """Named by table and key, before any transcript is read as a whole."""
    changes, more, said = BAD[case]
    with pytest.raises(BadInput, match=said):
        label_holder(_file(folder, _victim(B, **changes), **more))


def test_a_label_holder_that_is_no_attacker(folder: Path) -> None:
    """Without [[victim]] its transcript is refused, and the error has the way out."""
    with pytest.raises(BadInput, match=r"label-holder, the label holder, which knows the labels; .*add \[\[victim\]\]"):
        audit(_file(folder, classes=2), by_tree=False, progress=lambda *_: None)


def test_a_job_in_which_all_parties_have_one_role(tmp_path: Path) -> None:
    """Victims are refused by name."""
    _trained(tmp_path, jobs_of("pivodl").PARAMS)
    with pytest.raises(BadInput, match="is of protocol 'pivodl', in which all parties have one role: leave"):
        label_holder(_file(tmp_path, _victim(B)))
