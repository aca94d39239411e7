"""A party's own rules: what a policy file may say, and what it forbids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treetap.errors import ConfigError, Refused
from treetap.names import CLIENTS, COORDINATORS, PARTIES
from treetap.party.policy import EVERYBODY, Policy
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
        *("EXPLANATION", "EMBEDDING", "EMBEDDING_GRADIENT"),
    }
    receivers = {receiver for declared in CLASSES.values() for receiver in declared.default_receivers}
    assert receivers <= {EVERYBODY, COORDINATORS, PARTIES, CLIENTS}
    policy = Policy(label_holders=["telco"])
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
        'coordinators = ["boss"]\npeers = ["telco"]\n[emits]\nCIPHERTEXT = ["telco"]\nMETRIC = []\nAGGREGATE = ["*"]\n',
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
        Policy(peers=["telco", "shop"]).check_job("bank", sends)
    assert str(caught.value).splitlines()[1:] == ['  AGGREGATE = ["telco", "shop"]', '  LEAF_WEIGHT = ["shop"]']
    lines = {"AGGREGATE": ["telco", "shop"], "LEAF_WEIGHT": ["shop"]}
    Policy(peers=["telco", "shop"], emits=lines).check_job("bank", sends)
    with pytest.raises(Refused, match="does not send LEAF_WEIGHT to shop: its policy does not let LEAF_WEIGHT go"):
        Policy(peers=["telco", "shop"], emits={"AGGREGATE": ["parties"]}).check_job("bank", sends)
    with pytest.raises(Refused, match=r"AGGREGATE to shop: its policy says emits.AGGREGATE = \['telco'\]"):
        Policy(peers=["telco", "shop"], emits={"AGGREGATE": ["telco"], "LEAF_WEIGHT": []}).check_job("bank", sends)


def test_parties_that_share_labels() -> None:
    """A policy asks for three parties with labels, and for its own word before a job has the paper's steps."""
    with pytest.raises(Refused, match=r"job of 2 parties that share labels: its policy says min_label_parties = 3"):
        Policy().check_parties("bank", 2)
    Policy().check_parties("bank", 3)
    Policy(min_label_parties=2).check_parties("bank", 2)
    Policy().check_permissions("bank", [])
    Policy(pivodl_as_published=True).check_permissions("bank", ["pivodl_as_published"])
    with pytest.raises(
        Refused, match="a job with as_published = true: its policy says pivodl_as_published = false; if it"
    ):
        Policy().check_permissions("bank", ["pivodl_as_published"])
    with pytest.raises(Refused, match="job with reproducible = true: its policy says reproducible = false; if it"):
        Policy(pivodl_as_published=True).check_permissions("bank", ["reproducible"])
    Policy(reproducible=True).check_permissions("bank", ["reproducible"])


def test_floors() -> None:
    """Short keys and small instance spaces are refused by the rule's name; an empty space tells nothing."""
    policy = Policy(min_key_bits=2048, min_instance_space=5)
    policy.check_key("bank", KeyKind(PAILLIER, 2048))
    with pytest.raises(Refused, match="key of 1024 bits: its policy says min_key_bits = 2048"):
        policy.check_key("bank", KeyKind(PAILLIER, 1024))
    with pytest.raises(Refused, match=r'write schemes = \["paillier", "lattice"\] above the tables of bank'):
        policy.check_key("bank", KeyKind(LATTICE, 0))
    Policy(schemes=list(SCHEMES)).check_key("bank", KeyKind(LATTICE, 0))
    lattices = Policy(min_lattice_bits=140, min_hiding_bits=50)
    lattices.check_secrecy("bank", "a lattice", 140.0)
    lattices.check_hiding("bank", "its sets", 50.0)
    with pytest.raises(Refused, match=r"on the lattice with some 139 bits .*: its policy says min_lattice_bits = 140"):
        lattices.check_secrecy("bank", "the lattice", 139.9)
    with pytest.raises(Refused, match=r"on the lattice with the secrecy of two words: its policy says"):
        lattices.check_secrecy("bank", "the lattice", 139.9, "of two words")
    with pytest.raises(Refused, match="hides its sets by 49 bits: its policy says min_hiding_bits = 50"):
        lattices.check_hiding("bank", "its sets", 49.9)
    for records in (0, 5, 6):
        policy.check_space("bank", "telco", 3, records)
    with pytest.raises(
        Refused, match=r"bank does not send telco the records of node 3: .* min_instance_space = 5"
    ) as caught:
        policy.check_space("bank", "telco", 3, 4)
    assert " 4" not in str(caught.value)
    Policy().check_paths("bank", np.array([-50.0]), "")
    Policy(min_candidate_bits=40).check_paths("bank", np.array([40.0, 77.0]), "")
    with pytest.raises(Refused, match=r"its policy says min_candidate_bits = 40, and there are few; a model of more"):
        Policy(min_candidate_bits=40).check_paths("bank", np.array([77.0, 39.9]), "there are few")
    with pytest.raises(Refused, match="min_candidate_bits = 0"):
        Policy(min_candidate_bits=0).check_paths("bank", np.array([-0.1]), "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[emits]\nCYPHERTEXT = []", "emits: 'CYPHERTEXT' is no disclosure class"),
        ("[emits]\nDISCLOSURE_UNSPECIFIED = ['*']", "is no disclosure class"),
        ('[emits]\nMETRIC = ["The Boss"]', "METRIC: 'The Boss' is no receiver"),
        ('[emits]\nMETRIC = "boss"', "emits.METRIC"),
        ("coordinators = []", "coordinators"),
        ('label_holders = ["The Bank"]', "label_holders"),
        ('coordinators = ["clients"]', "'clients' is no name for a process: in policies it means a kind of receivers"),
        ('label_holders = ["parties"]', "'parties' is no name for a process"),
        ('peers = ["coordinators"]', "'coordinators' is no name for a process"),
        ('peers = "bank"', """peers: a list of names, such as ["bank"] (it is 'bank')"""),
        ('coordinators = ["a", "b"]\npeers = ["b"]', "'b' is under coordinators: a coordinator is never a party"),
        ("min_key_bits = 100", "min_key_bits"),
        ("min_lattice_bits = 127", "min_lattice_bits"),
        ("min_hiding_bits = 39", "min_hiding_bits"),
        ("min_hiding_bits = 65", "min_hiding_bits"),
        ('schemes = ["elgamal"]', "schemes"),
        ("schemes = []", "schemes"),
        ("min_instance_space = 0", "min_instance_space"),
        ("min_common_records = 0", "min_common_records"),
        ("min_common_records = 134217729", "min_common_records"),
        ("min_prediction_records = 0", "min_prediction_records"),
        ("min_candidate_bits = -1", "min_candidate_bits"),
        ('record = "sometimes"', "record"),
        ("record_sums = true", 'record_sums = true, but record = "off" keeps no transcript for the sums: say record'),
        ('approval = "manual"', 'approval = "manual", but nobody could approve a job: name approvers'),
        ("forbid = 1", "forbid: unknown key"),
    ],
)
def test_faults_of_a_policy_file(text: str, fault: str, tmp_path: Path) -> None:
    """A rule that is not understood is an error, never a rule that does nothing."""
    with pytest.raises(ConfigError, match=r"policy\.toml: 1 wrong") as caught:
        _load(tmp_path, text)
    assert fault in str(caught.value)
