"""What a job cannot have together: every row of the table is raised by the checks that parties and files are under."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainings import jobs_of
from tests.worlds import PARTIES, spec
from treetap.commands.jobs.job_file import JobTableOfFederation
from treetap.coordinator.prediction import opening_of
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.models.store import HIDES_CONSTANTS, SPACES
from treetap.neural.params import Bottom
from treetap.party.config import PartyConfig
from treetap.party.defences.checks import check_own, refuse_classes, refuse_sets_of_categories
from treetap.party.defences.settings import OF_COLUMNS, Defences
from treetap.party.policy import Policy
from treetap.party.prediction.opened_model import check_private_values
from treetap.protocols.exclusions import OTHERS, PREDICTIONS, TRAININGS, Exclusion, broken, gated
from treetap.protocols.exclusions import Feature as F
from treetap.protocols.job_spec import check_spec
from treetap.protocols.libraries import missing_library
from treetap.protocols.prediction import check_prediction, predict_request
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training
from treetap.tables.config import TableConfig

HOLDER, FEATURE_PARTY, _ = PARTIES
TABLE = TableConfig(path=Path("t.csv"), id="id", columns=["a"], label="y")
DP: dict[str, Any] = {"label_dp": {"epsilon": 1.0}}
ON_LATTICE: dict[str, Any] = {"scheme": "lattice", "key_bits": 0, "obfuscation": ""}
#: Feature of a training → what it changes in the parameters, the job, [defences], the policy and the party's table.
GIVEN: dict[F, dict[str, dict[str, Any]]] = {
    F.EVAL_TABLE: {"job": {"eval_table": "eval"}},
    F.VALIDATION_SHARE: {"params": {"validation_share": 0.2}},
    F.EARLY_STOPPING: {"params": {"early_stopping_rounds": 2}},
    F.EVALUATE_ROUNDS: {},
    F.EXPERIMENT: {},
    F.BASE_MODEL: {"job": {"base_model": "before"}},
    F.MAX_LEAVES: {"params": {"max_leaves": 4}},
    F.MULTI_OUTPUT: {"params": {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"}},
    F.BOOTSTRAP: {"params": {"bootstrap": True}},
    F.BATCH_NORM: {"params": {"bottom": {"default": Bottom("resnet", norm="batch", channels=(2,), blocks=(1,))}}},
    F.REGRESSION: {"params": {"objective": "reg:squarederror"}},
    F.NETWORK: {},
    F.LATTICE: {"job": ON_LATTICE},
    F.WITHHELD: {"params": {"instance_spaces": "withheld"}, "job": ON_LATTICE},
    F.PAD_TREES: {"params": {"instance_spaces": "withheld", "pad_trees": True}, "job": ON_LATTICE},
    F.SHARED: {
        "params": {"instance_spaces": "withheld"},
        "job": {**ON_LATTICE, "sums": "shared", "dealer": "dealer"},
    },
    F.PARTITIONS: {},
    F.SENT: {"params": {"instance_spaces": "sent"}},
    F.OPENED: {},
    F.ADDITIVE_OPENED: {"params": {"model": "additive", "max_depth": 1}},
    F.REG_ALPHA: {"params": {"reg_alpha": 0.5}},
    F.MAX_DELTA_STEP: {"params": {"max_delta_step": 0.5}},
    F.KEYED: {"job": {"scheme": "paillier", "key_bits": 1024, "obfuscation": "standard"}},
    F.LOSSGUIDE: {"params": {"grow_policy": "lossguide"}},
    F.SCHEME: {"job": {"scheme": "paillier"}},
    F.KEY_BITS: {"job": {"key_bits": 1024}},
    F.OBFUSCATION: {"job": {"obfuscation": "standard"}},
    F.MONOTONE: {"table": {"monotone_constraints": {"a": 1}}},
    F.CUTS: {"table": {"cuts": {"a": [1.0]}}},
    F.WEIGHT: {"table": {"weight": "w"}},
    F.BASE_MARGIN: {"table": {"base_margin": "m"}},
    F.EXPOSURE: {"table": {"exposure": "e"}},
    F.BASE_SCORE: {"params": {"base_score": 0.5}},
    F.SOFTPROB: {"params": {"objective": "multi:softprob"}},
    F.QUANTILES: {"params": {"objective": "reg:quantileerror"}},
    F.NOT_LOGARITHMIC: {},
    F.NO_COLUMNS: {"table": {"columns": []}},
    F.MAX_LEAKAGE: {"policy": {"labels": {"max_leakage": 0.3}}},
    F.MIN_INSTANCE_SPACE: {"policy": {"columns": {"min_instance_space": 2}}},
    F.WITHDRAW: {"policy": {"labels": {"max_leakage": 0.3, "on_max_leakage": "withdraw"}}},
    F.ID_LMID: {"defences": {"id_lmid": {"xi": 1.0}}},
    F.ID_LMID_PAPER: {"defences": {"id_lmid": {"xi": 1.0, "counts": "paper"}}},
    F.LABEL_DP: {"defences": DP},
    F.LABEL_DP_STAGES: {"defences": {"label_dp": {"epsilon": 1.0, "stages": 2}}},
    F.GRAFTING: {"defences": {**DP, "grafting": True}},
    F.REFIT: {"defences": {**DP, "refit": True}},
    F.REDUCED_LEAKAGE: {"defences": {"reduced_leakage": {"trees": 1}}},
    F.DIMIP: {"defences": {"dimip": {FEATURE_PARTY: 0.3}}},
    F.GRADIENT: {"defences": {"gradient": {"kind": "noise", "scale": 0.1}}},
    F.SENSITIVITY: {"defences": {"sensitivity": 0.1}},
    F.DP_SGD: {"defences": {"dp_sgd": {"clip": 1.0, "noise": 1.0}}},
    F.MIN_CELL_RECORDS: {"defences": {"min_cell_records": 3}},
    F.MIN_SIDE_RECORDS: {"defences": {"min_side_records": 3}},
    F.COLUMN_PRIVACY: {"defences": {"column_privacy": {"epsilon": 4.0, "delta": 1e-6, "trees": 100}}},
    F.BINS_PER_NODE: {"params": {"binning": "per-node"}},
    F.LEFT: {"job": {"alignment": "psi", "join": "left"}},
    F.SCREEN: {"job": {"screen": True}},
}
#: Features of the files of an experiment.
OF_EXPERIMENTS = {F.EXPERIMENT, F.EVALUATE_ROUNDS}
#: Features that a job has by its file alone, and their lines.
OF_JOB_FILES = {
    F.VALIDATION_SHARE: {"eval_table": "eval", "validation_share": 0.2},
}
#: Features of networks alone.
OF_NETWORKS = {F.NETWORK, F.BATCH_NORM}
#: Feature of a prediction → how it is asked for.
ASKED: dict[F, dict[str, Any]] = {
    F.SERVE: {"serve": True},
    F.DEGRADE: {"away_policy": "degrade", "away_deadline_s": 10},
    F.SERVE_DEGRADED: {"serve": True, "away_policy": "degrade", "away_deadline_s": 10},
    F.EXPLAIN: {"explain": True},
    F.ATTRIBUTIONS: {"attributions": True},
    F.REASONS: {"reasons": True},
    F.EVALUATE: {"evaluate": True},
    F.RECORDS: {"records_file": "some.txt"},
    F.FORMAT: {"format": "csv"},
    F.FORM: {"form": "batched"},
    F.PREDICTION_WEIGHTS: {"prediction_weights": "exact"},
    F.KEY_BITS: {"key_bits": 1024},
    F.OBFUSCATION: {"obfuscation": "standard"},
    F.HIDDEN_VALUES: {},
    F.WITHHELD_MODEL: {},
    F.LEFT_MODEL: {"join": "left"},
    F.LOOK_UP: {"look_up": True},
    F.TABLE: {"serve": False},
    F.SORTED_IDS: {"alignment": "sorted-ids"},
}


def _train(protocol: str, *features: F) -> None:
    """Check a job of a protocol with these features as every process does, and as the party that has them does."""
    given: dict[str, dict[str, Any]] = {}
    for feature in features:
        for part, changes in GIVEN[feature].items():
            given[part] = {**given.get(part, {}), **changes}
    params = {**given.get("params", {})}
    if protocol == "forest" and F.REGRESSION in features:
        params = {"criterion": "squared_error"}
    made = replace(jobs_of(protocol).PARAMS, **params)
    made = made.screened() if F.SCREEN in features and protocol == "boosting" else made
    job = spec(made, **given.get("job", {}))
    check_spec(job)
    if F.PARTITIONS in features:
        refuse_sets_of_categories(FEATURE_PARTY, job, ["a"])
    of_feature_parties = {*map(F, OF_COLUMNS), F.MIN_INSTANCE_SPACE}
    of_columns = of_feature_parties & set(features)
    if of_columns and {F.ID_LMID, F.WITHDRAW}.intersection(features):  # of two parties' files: the one finds the other
        refuse_classes(HOLDER, F.COLUMN_PRIVACY if F.COLUMN_PRIVACY in features else F.MIN_CELL_RECORDS)
    party = FEATURE_PARTY if of_columns else HOLDER
    own = TABLE.model_copy(update={**({"label": None} if of_columns else {}), **given.get("table", {})})
    defences, policy = Defences(**given.get("defences", {})), Policy(**given.get("policy", {}))
    check_own(party, defences, policy, own, None, job)


def _experiment(protocol: str, *features: F) -> None:
    """Read the file of an experiment with these features."""
    job = {"early_stopping_rounds": 2} if F.EARLY_STOPPING in features else {}
    job |= {"base_model": "before"} if F.BASE_MODEL in features else {}
    parties = [{"name": "clinic", "labels": True, "columns": ["a"]}, {"name": "lab", "columns": ["b"]}]
    data = {"path": "t.csv", "label": "y", "evaluate_rounds": F.EVALUATE_ROUNDS in features}
    ExperimentFile.model_validate({"data": data, "party": parties, "job": {"protocol": protocol, **job}})


#: Fields of an opening that follow from the training.
_OF_TRAINING = ("join", "alignment")


def _predict(protocol: str, *features: F) -> None:
    """Open a prediction with these features."""
    trained = next(name for name in TRAINING if protocol in training(name).predicts)
    asked = {name: value for feature in features for name, value in ASKED[feature].items()}
    job = spec(replace(jobs_of(trained).PARAMS, **({} if trained == "pivodl" else {"party_dropout": {}})))
    of_request = {name: value for name, value in asked.items() if name not in _OF_TRAINING}
    request = predict_request(protocol, model="job", **of_request)
    opening = opening_of(predict_request(protocol, model="job"), job, "", "")
    for name in ASKED.keys() & set(features):
        for field, value in ASKED[name].items():
            if field in opening.DESCRIPTOR.fields_by_name:
                setattr(opening, field, value)
    assert request.model == "job"
    check_prediction(opening)
    manifests = {F.HIDDEN_VALUES: {HIDES_CONSTANTS: True}, F.WITHHELD_MODEL: {SPACES: "withheld"}}
    for feature in manifests.keys() & set(features):
        config = PartyConfig.model_construct(name=HOLDER, serve=None)
        check_private_values(manifests[feature], config, opening)


def _protocols(row: Exclusion, table: tuple[Exclusion, ...]) -> Iterator[str]:
    """The protocols for which a row holds; of two features those that have both, or none that lacks another row's."""
    described, names = (training, TRAINING) if table is TRAININGS else (prediction, PREDICTION)
    both, own = set(_features(row)), {each.other for each in table if each.feature is row.feature}
    for name in names:
        has = described(name).capabilities if table is TRAININGS else prediction(name).features
        if isinstance(row.other, F):
            if both & gated(table) <= has and (name == "splitnn" or not both & OF_NETWORKS):
                yield name
        elif row.other == name or (row.other == OTHERS and name not in own and row.feature not in has):
            yield name


def _raised(check: Callable[..., None], row: Exclusion, protocol: str, *features: F) -> None:
    with pytest.raises(Exception) as refusal:  # noqa: PT011 - each place has its own error
        check(protocol, *features)
    assert str(row) in str(refusal.value)


def _features(row: Exclusion) -> list[F]:
    return [row.feature, *([row.other] if isinstance(row.other, F) else [])]


def _named(row: Exclusion) -> str:
    return f"{row.feature.name}-{row.other.name if isinstance(row.other, F) else row.other}"


def _job_file(protocol: str, *features: F) -> None:
    """Read the file of a job with these features."""
    lines = {name: value for feature in features for name, value in OF_JOB_FILES.get(feature, {}).items()}
    named = {"label_holder": "a", "feature_parties": ["b"]}
    JobTableOfFederation.model_validate({"protocol": protocol, **named, **lines})


@pytest.mark.second_tier(but=len(TRAININGS))  # of both: an experiment needs the protocol's library
@pytest.mark.parametrize("row", TRAININGS, ids=_named)
def test_every_row_of_trainings_is_raised(row: Exclusion) -> None:
    """By the check of the job, of the party's own file and policy, or of the file that a person writes."""
    features = _features(row)
    wanted = {name for each in features if each is not F.REGRESSION for name in GIVEN[each].get("params", {})}
    protocols = [each for each in _protocols(row, TRAININGS) if wanted <= set(vars(jobs_of(each).PARAMS))]
    assert protocols or row.other == OTHERS
    check = _job_file if OF_JOB_FILES.keys() & set(features) else _train
    if OF_EXPERIMENTS.intersection(features):
        check, protocols = _experiment, [each for each in protocols if not missing_library(each, training(each))]
    for protocol in protocols:
        _raised(check, row if isinstance(row.other, F) else row._replace(other=protocol), protocol, *features)


@pytest.mark.parametrize("row", PREDICTIONS, ids=_named)
def test_every_row_of_predictions_is_raised(row: Exclusion) -> None:
    """By the request, or by the check of the opening."""
    protocols = list(_protocols(row, PREDICTIONS))
    assert protocols or row.other == OTHERS
    for protocol in protocols:
        said = row if isinstance(row.other, F) else row._replace(other=protocol)
        _raised(_predict, said, protocol, *_features(row))


@pytest.mark.parametrize("table", [TRAININGS, PREDICTIONS], ids=["trainings", "predictions"])
def test_a_protocol_lacks_what_it_does_not_name(table: tuple[Exclusion, ...]) -> None:
    """Each feature that not every protocol has is refused to a new one; what a protocol names is not refused to it."""
    for feature in gated(table):
        (row,) = broken(table, {feature}, "new")
        assert (row.feature, row.other) == (feature, "new")
        assert str(row).startswith(f"{feature} and protocol 'new' do not go together: ")
    described, names = (training, TRAINING) if table is TRAININGS else (prediction, PREDICTION)
    for name in names:
        has = described(name).capabilities
        assert has <= gated(table)
        for feature in has:
            assert not broken(table, {feature}, name, has)
        assert not [row for row in table if row.other == name and row.feature in has], "a row that holds for nothing"


def test_the_table_is_whole_and_says_everything_once() -> None:
    """Every feature has a row; no two rows are about the same; protocols in it exist."""
    rows = [*TRAININGS, *PREDICTIONS]
    assert {row.feature for row in rows} | {row.other for row in rows if isinstance(row.other, F)} == set(F)
    for table, names in ((TRAININGS, TRAINING), (PREDICTIONS, PREDICTION)):
        pairs = [(row.feature, row.other) for row in table]
        assert len(set(pairs)) == len({frozenset(pair) for pair in pairs}) == len(pairs)
        assert {row.other for row in table if not isinstance(row.other, F)} <= {OTHERS, *names}
