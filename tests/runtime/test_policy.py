"""A party's own rules: what a policy file may say, and what it forbids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetap.errors import ConfigError, Refused
from treetap.names import KINDS
from treetap.party.policy import EVERYBODY, Policy
from treetap.party.policy_tables import PLACES, TABLES, PeoplePolicy, toml
from treetap.protocols.key_options import LATTICE, PAILLIER, SCHEMES, KeyKind
from treetap.protocols.messages import Sent
from treetap.strict import load
from treetap.wire.disclosure import CLASSES


def _load(folder: Path, text: str) -> Policy:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, Policy)


def test_the_default_policy_emits_what_boosting_and_inference_need_and_no_more() -> None:
    """No plaintext sum, bin, leaf weight, feature name, explanation or embedding leaves; predictions go to parties."""
    assert {name for name, declared in CLASSES.items() if not declared.default_receivers} == {
        *("DISCLOSURE_UNSPECIFIED", "BIN_ASSIGNMENT", "AGGREGATE", "LEAF_WEIGHT", "MASKED_SHARE", "FEATURE_NAME"),
        *("EXPLANATION", "EMBEDDING", "EMBEDDING_GRADIENT", "REASON", "COLUMN_BINS"),
    }
    receivers = {receiver for declared in CLASSES.values() for receiver in declared.default_receivers}
    assert receivers <= {EVERYBODY, *KINDS}
    policy = Policy(people={"label_holders": ["telco"]})
    policy.check_emits("bank", "telco", ["CONTROL", "CIPHERTEXT", "INSTANCE_SPACE"])
    policy.check_emits("bank", "coordinator", ["CONTROL", "TOPOLOGY", "METRIC"])
    with pytest.raises(Refused, match=r"send CIPHERTEXT to coordinator: its policy does not let CIPHERTEXT go"):
        policy.check_emits("bank", "coordinator", ["CONTROL", "CIPHERTEXT"])
    with pytest.raises(Refused, match="bank does not send PREDICTION to coordinator"):
        policy.check_emits("bank", "coordinator", ["PREDICTION"])
    with pytest.raises(Refused, match="bank does not send METRIC to telco"):
        policy.check_emits("bank", "telco", ["METRIC"])
    policy.check_emits("bank", "app", ["CONTROL", "PREDICTION"], client=True)
    with pytest.raises(Refused, match="bank does not send SPLIT_DIRECTION to telco"):
        policy.check_emits("bank", "telco", ["SPLIT_DIRECTION"], client=True)
    with pytest.raises(Refused, match="bank does not send CIPHERTEXT to shop"):
        policy.check_emits("bank", "shop", ["CIPHERTEXT"])  # only the coordinator names it as a party
    with pytest.raises(Refused, match="DISCLOSURE_UNSPECIFIED"):
        policy.check_emits("bank", "telco", ["DISCLOSURE_UNSPECIFIED"])


def test_a_class_in_the_file_replaces_its_default(tmp_path: Path) -> None:
    """The classes that the file names get its receivers, by name or by kind; the others keep the defaults."""
    policy = _load(
        tmp_path,
        '[people]\ncoordinators = ["boss"]\npeers = ["telco"]\n'
        '[emits]\nCIPHERTEXT = ["telco"]\nMETRIC = []\nAGGREGATE = ["*"]\n',
    )
    policy.check_emits("bank", "telco", ["CIPHERTEXT", "AGGREGATE", "INSTANCE_SPACE"])
    policy.check_emits("bank", "boss", ["AGGREGATE", "CONTROL"])
    with pytest.raises(Refused, match=r"CIPHERTEXT to shop: its policy says emits.CIPHERTEXT = \['telco'\]"):
        policy.check_emits("bank", "shop", ["CIPHERTEXT"])
    with pytest.raises(Refused, match=r"METRIC to boss: its policy says emits.METRIC = \[\]"):
        policy.check_emits("bank", "boss", ["METRIC"])
    with pytest.raises(Refused, match="METRIC to coordinator"):
        policy.check_emits("bank", "coordinator", ["METRIC"])


@pytest.mark.parametrize("kind", ["parties", "clients", "coordinators"])
def test_a_rule_for_a_kind_is_none_for_a_process_of_that_name(kind: str) -> None:
    """A certificate made elsewhere may say anything."""
    policy = Policy(emits={"METRIC": [kind], "CONTROL": ["*"]})
    with pytest.raises(Refused, match=f"METRIC to {kind}"):
        policy.check_emits("bank", kind, ["METRIC"], client=kind != "clients")
    policy.check_emits("bank", kind, ["CONTROL"])


def test_all_lines_that_a_job_lacks() -> None:
    """A policy without several classes that no party gets by default is told all lines at once, with the receivers."""
    sends = [
        Sent("bank", "telco", "best_gains", frozenset({"TOPOLOGY", "AGGREGATE"})),
        Sent("bank", "shop", "best_gains", frozenset({"TOPOLOGY", "AGGREGATE"})),
        Sent("bank", "shop", "leaf_weights", frozenset({"LEAF_WEIGHT"})),
        Sent("telco", "shop", "record_bins", frozenset({"BIN_ASSIGNMENT"})),
    ]
    with pytest.raises(Refused) as caught:
        Policy(people={"peers": ["telco", "shop"]}).check_job("bank", sends)
    assert str(caught.value).splitlines()[1:] == ['  AGGREGATE = ["telco", "shop"]', '  LEAF_WEIGHT = ["shop"]']
    lines = {"AGGREGATE": ["telco", "shop"], "LEAF_WEIGHT": ["shop"]}
    Policy(people={"peers": ["telco", "shop"]}, emits=lines).check_job("bank", sends)
    with pytest.raises(Refused, match="does not send LEAF_WEIGHT to shop: its policy does not let LEAF_WEIGHT go"):
        Policy(people={"peers": ["telco", "shop"]}, emits={"AGGREGATE": ["parties"]}).check_job("bank", sends)
    with pytest.raises(Refused, match=r"AGGREGATE to shop: its policy says emits.AGGREGATE = \['telco'\]"):
        Policy(people={"peers": ["telco", "shop"]}, emits={"AGGREGATE": ["telco"], "LEAF_WEIGHT": []}).check_job(
            "bank", sends
        )


#: Key → a value of the policy, and what a job needs that this value does not let it have, with words of its sentence.
NEEDS: dict[str, tuple[Any, Any, dict[str, str]]] = {
    "schemes": ([PAILLIER], LATTICE, {}),
    "min_key_bits": (2048, 1024, {}),
    "min_lattice_bits": (140, 139, {"lattice": "the histogram lattice", "secrecy": "some 139 bits of secrecy"}),
    "min_hiding_bits": (50, 49, {"hidden": "its sets"}),
    "alignment_proof": (True, False, {"fault": "it is by sorted-ids"}),
    "expansion_order": (False, True, {}),
    "min_evaluated_records": (30, 4, {"records": "records have a label"}),
    "score_training_records": (False, True, {"model": "job"}),
    "min_label_parties": (3, 2, {}),
    "pivodl_as_published": (False, True, {}),
    "noised_sums": (False, True, {"owners": "telco"}),
    "min_common_records": (30, 4, {"records": "records are common to all parties"}),
    "min_prediction_records": (30, 4, {"records": "records are common to all parties"}),
    "min_instance_space": (5, 4, {"to": "telco", "node": "3"}),
    "min_candidate_bits": (40.0, 39.9, {"fault": "there are few"}),
    "preview": ("count", "records", {}),
    "category_partitions": (False, True, {"deed": "partition them", "instead": ""}),
    "withheld_spaces": (False, True, {}),
    "left_join": (False, True, {}),
    "min_sensitivity": (0.1, 0.05, {}),
    "reproducible": (False, True, {}),
}
#: Keys that no single need of a job breaks: names, budgets over jobs, and what a party does rather than lets be.
OTHERS = {
    *PeoplePolicy.model_fields,
    *("second_halves", "label_budget", "evaluate_clean_labels", "max_leakage", "on_max_leakage", "column_budget"),
    "references",
}


def _with(key: str, value: Any) -> Policy:
    return Policy.model_validate({PLACES[key]: {key: value}})


@pytest.mark.parametrize("key", NEEDS)
def test_a_need_is_refused_with_the_line_that_lets_it_be(key: str, tmp_path: Path) -> None:
    """The key, its value and its table; the line, pasted, is accepted and enough. What is counted is not told."""
    own, value, words = NEEDS[key]
    name = PLACES[key]
    table = getattr(_with(key, own), name)
    said = str(table.refusal("bank", key, value, words))
    assert re.match(f"bank .*: its policy says {key} = {re.escape(toml(own))}", said)
    found = re.search(rf"if it should, write (.*) under \[{name}\] of bank's policy file and send bank SIGHUP$", said)
    assert found is not None, said
    counted = found[1] == f"a smaller {key}"
    assert not counted or not re.search(rf"\b{value}\b", said)
    pasted = f"{key} = {int(value)}" if counted else found[1]
    again = getattr(_load(tmp_path, f"[{name}]\n{pasted}\n"), name)
    assert key == "alignment_proof" or (table.permits(key, value), again.permits(key, value)) == (False, True)


def test_every_key_is_in_one_table_and_has_its_need() -> None:
    """Or is one of those that no need of a job breaks."""
    keys = [key for table in TABLES.values() for key in table.model_fields]
    assert len(keys) == len(set(keys)) == len(PLACES)
    assert {*NEEDS, *OTHERS} == set(keys)
    assert [*TABLES, "limits", "partners", "emits"] == list(Policy.model_fields)


@pytest.mark.parametrize("key", [*PLACES, "previews_per_day", "trees"])
def test_a_key_at_another_place_is_refused_with_its_own(key: str, tmp_path: Path) -> None:
    """At the top, in another table, and below the table that is the last one of most files."""
    tables = {"addresses": "people.addresses", "previews_per_day": 'partners."*"', "trees": "limits"}
    table = tables.get(key) or PLACES[key]
    last = [] if key == "previews_per_day" else ["[partners.coordinator]\n"]
    for head in ("", "[networks]\n" if PLACES.get(key) != "networks" else "[people]\n", *last):
        with pytest.raises(ConfigError, match=re.escape(f"{key}: unknown key; write it under [{table}]")):
            _load(tmp_path, f"{head}{key} = 1\n")


def test_a_line_that_no_policy_could_have_is_not_proposed() -> None:
    """Of what is below the least that a key can say."""
    with pytest.raises(Refused, match=r"do without a lattice$"):
        _with("min_hiding_bits", 50).check("bank", "min_hiding_bits", 39, hidden="its sets")


def test_floors() -> None:
    """An empty space tells nothing; a lattice has no key; of many records the worst counts."""
    policy = _with("min_instance_space", 5)
    for records in (0, 5, 6):
        policy.check_space("bank", "telco", 3, records)
    with pytest.raises(Refused, match="records of node 3"):
        policy.check_space("bank", "telco", 3, 4)
    _with("schemes", list(SCHEMES)).check_key("bank", KeyKind(LATTICE, 0))
    with pytest.raises(Refused, match="key of 1024 bits"):
        policy.check_key("bank", KeyKind(PAILLIER, 1024))
    Policy().check_paths("bank", np.array([-50.0]), "")
    _with("min_candidate_bits", 40).check_paths("bank", np.array([40.0, 77.0]), "")
    for least, bits in ((40, [77.0, 39.9]), (0, [-0.1])):
        with pytest.raises(Refused, match=rf"its policy says min_candidate_bits = {least}, and there are few; a model"):
            _with("min_candidate_bits", least).check_paths("bank", np.array(bits), "there are few")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[emits]\nCYPHERTEXT = []", "emits: 'CYPHERTEXT' is no disclosure class"),
        ("[emits]\nDISCLOSURE_UNSPECIFIED = ['*']", "is no disclosure class"),
        ('[emits]\nMETRIC = ["The Boss"]', "METRIC: 'The Boss' is no receiver"),
        ('[emits]\nMETRIC = "boss"', "emits.METRIC"),
        ("[people]\ncoordinators = []", "coordinators"),
        ('[people]\nlabel_holders = ["The Bank"]', "label_holders"),
        (
            '[people]\ncoordinators = ["clients"]',
            "'clients' is no name for a process: in policies it means a kind",
        ),
        ('[people]\nlabel_holders = ["parties"]', "'parties' is no name for a process"),
        ('[people]\npeers = ["coordinators"]', "'coordinators' is no name for a process"),
        ('[people]\npeers = "bank"', """people.peers: a list of names, such as ["bank"] (it is 'bank')"""),
        (
            '[people]\ncoordinators = ["a", "b"]\npeers = ["b"]',
            "'b' is under coordinators: a coordinator is never",
        ),
        ("[keys]\nmin_key_bits = 100", "min_key_bits"),
        ("[keys]\nmin_lattice_bits = 127", "min_lattice_bits"),
        ("[keys]\nmin_hiding_bits = 39", "min_hiding_bits"),
        ("[keys]\nmin_hiding_bits = 65", "min_hiding_bits"),
        ('[keys]\nschemes = ["elgamal"]', "schemes"),
        ("[keys]\nschemes = []", "schemes"),
        ("[columns]\nmin_instance_space = 0", "min_instance_space"),
        ("[columns]\nmin_common_records = 0", "min_common_records"),
        ("[columns]\nmin_common_records = 134217729", "min_common_records"),
        ("[columns]\nmin_prediction_records = 0", "min_prediction_records"),
        ("[columns]\nmin_candidate_bits = -1", "min_candidate_bits"),
        ('[people]\nrecord = "sometimes"', "record"),
        (
            "[people]\nrecord_sums = true",
            'record_sums = true, but record = "off" keeps no transcript for the sums: say',
        ),
        ('[people]\napproval = "manual"', 'approval = "manual", but nobody could approve a job: name approvers'),
        ("forbid = 1", "forbid: unknown key"),
    ],
)
def test_faults_of_a_policy_file(text: str, fault: str, tmp_path: Path) -> None:
    """A rule that is not understood is an error, never a rule that does nothing."""
    with pytest.raises(ConfigError, match=r"policy\.toml: 1 wrong") as caught:
        _load(tmp_path, text)
    assert fault in str(caught.value)
