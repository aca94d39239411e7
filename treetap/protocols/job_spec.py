"""A training job's description: its parameters, its parties, and the checks that every process makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

from treetap.errors import ConfigError, refuse
from treetap.names import NAME
from treetap.protocols import alignment
from treetap.protocols.codec import params_in, write_params
from treetap.protocols.exclusions import TRAININGS, Exclusion, Feature, broken
from treetap.protocols.key_options import KEY_FIELDS, LATTICE, KeyKind, bin_faults, key_faults
from treetap.protocols.messages import (
    INNER,
    JOB,
    JOINS,
    LEFT,
    MessageRow,
    Sent,
    all_report,
    label_holder_reports,
    members_of,
    sent_by,
)
from treetap.protocols.registry import TRAINING, training, training_name
from treetap.trees.job_params import BINARY, LOG_LINKED, REGRESSIONS, EarlyStoppingParams, JobParams
from treetap.trees.params import BoostingParams, TreeParams
from treetap.wire.v2 import protocols_pb2, setup_pb2

#: Forms of candidates' sums: opened by the label holder, or shared between it and a feature party.
SUMS = OPENED, SHARED = ("opened", "shared")
#: Words for what a training of trees shows its parties, the default first, and what each decides of a job.
PRIVACY = PUBLISHED, WITHHELD, PRIVATE = ("published", "withheld", "private")
DECIDES: dict[str, dict[str, str]] = {
    PUBLISHED: {"instance_spaces": "sent", "sums": OPENED},
    WITHHELD: {"scheme": LATTICE, "instance_spaces": "withheld", "sums": OPENED},
    PRIVATE: {"scheme": LATTICE, "instance_spaces": "withheld", "sums": SHARED},
}
Params = TypeVar("Params", bound=JobParams)
#: Methods of record alignment; the first is the default.
ALIGNMENTS = tuple(alignment.ALIGNMENTS)
#: Of every training.
MESSAGES = (
    *JOB,
    MessageRow("prepared", all_report, step="prepare", perhaps=frozenset({"METRIC"})),  # once a model is published
    MessageRow("published_model", label_holder_reports, step="publish"),
)


def privacy_of(instance_spaces: str, sums: str) -> str:
    """The word to which two of the keys come that it decides; "published" of two that no word decides so."""
    keys = {"instance_spaces": instance_spaces, "sums": sums or OPENED}
    return next((word for word, decided in DECIDES.items() if keys.items() <= decided.items()), PUBLISHED)


def params_of(spec: setup_pb2.JobSpec) -> JobParams:
    """The parameters of the job's protocol; `ConfigError` lists every value out of range."""
    return _valid_params(training_name(spec), spec.parameters.SerializeToString(deterministic=True))


@lru_cache(maxsize=64)
def _valid_params(protocol: str, parameters: bytes) -> JobParams:
    """Parameters from their serialised message; kept, since most steps of a job ask for them."""
    described = training(protocol)
    params = params_in(getattr(protocols_pb2.Parameters.FromString(parameters), described.field), described.params)
    params.validate()
    return params


def params_as(spec: setup_pb2.JobSpec, kind: type[Params]) -> Params:
    """The parameters of a job of the protocol that has parameters of this kind.

    Raises:
        ConfigError: the job is of another protocol, or a value is out of range.
    """
    params = params_of(spec)
    if not isinstance(params, kind):
        raise ConfigError(f"a job of protocol {training_name(spec)!r} has no parameters of {kind.__name__}")
    return params


def put_params(spec: setup_pb2.JobSpec, params: JobParams) -> None:
    """Write parameters into the job, in the field of their protocol."""
    field = next(training(name).field for name in TRAINING if training(name).params is type(params))
    write_params(params, getattr(spec.parameters, field))


def taking_part(spec: setup_pb2.JobSpec, tree: int) -> list[str]:
    """The feature parties that offer candidates to a tree, in the order of the job."""
    params = params_of(spec)
    if not isinstance(params, TreeParams):
        raise ConfigError(f"a job of protocol {training_name(spec)!r} grows no trees")
    return [party for party in spec.feature_parties if params.takes_part(tree, party)]


def check_spec(spec: setup_pb2.JobSpec) -> None:
    """`ConfigError` listing everything in a job that no party can do."""
    faults = []
    try:
        faults += params_of(spec).party_faults(spec.aggregator, list(spec.feature_parties))
    except ConfigError as failure:
        faults.append(str(failure))
    if spec.alignment not in ALIGNMENTS:
        faults.append(f"alignment = {spec.alignment!r}: must be one of {', '.join(ALIGNMENTS)}")
    if spec.join not in ("", *JOINS):
        faults.append(f"join = {spec.join!r}: must be one of {', '.join(JOINS)}")
    faults += _key_faults(spec)
    for key, model in {"base_model": spec.base_model, "replaces": spec.replaces}.items():
        if model and not NAME.match(model):
            faults.append(f"{key} = {model!r}: is not the name of a model")
    if spec.replaces and spec.base_model:
        faults.append(
            f"replaces = {spec.replaces!r}: a model that goes on from another keeps what that learned, also from "
            "records that no table has any more; leave base_model out"
        )
    faults += _dealer_faults(spec) + _screening_faults(spec)
    faults += map(str, broken_by(spec, features_of(spec)))
    names = parties_of(spec)
    faults += _too_few_or_many(spec, names)
    faults += [
        f"{name!r} is named twice among the parties" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if faults:
        raise ConfigError("\n".join(faults))


def features_of(spec: setup_pb2.JobSpec) -> set[Feature]:
    """The features of a job that exclude others, or that not every protocol has; without those of parameters that are
    out of range.
    """
    name = training_name(spec)
    used = {
        Feature.EVAL_TABLE: bool(spec.eval_table),
        Feature.BASE_MODEL: bool(spec.base_model),
        Feature.LATTICE: spec.scheme == LATTICE,
        Feature.KEYED: spec.scheme != LATTICE,
        Feature.SHARED: spec.sums == SHARED,
        Feature.OPENED: spec.sums != SHARED,
        Feature.LEFT: spec.join == LEFT,
        Feature.SCREEN: spec.screen,
        Feature.NETWORK: bool(name) and not training(name).grows_trees,
        **{Feature(field): bool(getattr(spec, field)) for field in KEY_FIELDS},
    }
    with suppress(ConfigError):
        params = params_of(spec)
        used |= {
            Feature.REGRESSION: params.objective in REGRESSIONS,
            Feature.EARLY_STOPPING: isinstance(params, EarlyStoppingParams)
            and params.early_stopping_rounds is not None,
            Feature.WITHHELD: isinstance(params, TreeParams) and params.withheld,
            Feature.SENT: isinstance(params, TreeParams) and not params.withheld,
            Feature.PAD_TREES: isinstance(params, TreeParams) and params.pad_trees,
            Feature.ADDITIVE_OPENED: isinstance(params, BoostingParams) and params.additive and spec.sums != SHARED,
            Feature.LOSSGUIDE: isinstance(params, TreeParams) and params.expansion.one_by_one,
            Feature.MAX_LEAVES: isinstance(params, BoostingParams) and params.max_leaves > 0,
            Feature.REG_ALPHA: isinstance(params, BoostingParams) and params.reg_alpha > 0,
            Feature.MAX_DELTA_STEP: isinstance(params, BoostingParams) and params.largest_step > 0,
            Feature.BASE_SCORE: isinstance(params, BoostingParams) and params.base_score is not None,
            Feature.SOFTPROB: params.objective == "multi:softprob",
            Feature.QUANTILES: params.objective == "reg:quantileerror",
            Feature.NOT_LOGARITHMIC: params.objective not in LOG_LINKED,
            Feature.MULTI_OUTPUT: isinstance(params, BoostingParams) and params.outputs_per_tree(2) > 1,
            Feature.BOOTSTRAP: isinstance(params, TreeParams) and params.draws_twice,
            Feature.BINS_PER_NODE: isinstance(params, TreeParams) and params.bins_per_node,
        }
    return {feature for feature, has in used.items() if has}


def screening_of(spec: setup_pb2.JobSpec) -> setup_pb2.JobSpec:
    """The screening that a training job stands for, of its parties and tables; `ConfigError` if it can have none."""
    made = setup_pb2.JobSpec()
    made.CopyFrom(spec)
    made.screen, made.eval_table, made.base_model, made.replaces = True, "", "", ""
    params = params_of(spec)
    if isinstance(params, BoostingParams):
        put_params(made, params.screened())
    check_spec(made)
    return made


def broken_by(spec: setup_pb2.JobSpec, used: set[Feature]) -> list[Exclusion]:
    """The rows of `treetap.protocols.exclusions` that a job with these features breaks."""
    name = training_name(spec)
    return broken(TRAININGS, used, name, training(name).capabilities if name else ())


def continued_from(spec: setup_pb2.JobSpec) -> str:
    """The name of the model from which a training continues; empty if it begins anew."""
    return spec.base_model


def check_continuation(spec: setup_pb2.JobSpec, protocol: str, trained: setup_pb2.JobSpec) -> None:
    """Raise `ConfigError` unless a training continues with the protocol, parties and join of its base model.

    `trained`: the job of the base model.
    """
    refuse(
        (
            trained.join != spec.join,
            f"base_model = {spec.base_model!r}: was trained with join = {trained.join or INNER!r}, and trees "
            "of both have no common side for records that a party lacks: continue with that",
        ),
        (
            protocol != training_name(spec),
            f"base_model = {spec.base_model!r}: was trained by {protocol}, not by {training_name(spec)}",
        ),
        kind=ConfigError,
    )
    check_same_parties(f"base_model = {spec.base_model!r}", spec, trained)


def check_same_parties(named: str, spec: setup_pb2.JobSpec, trained: setup_pb2.JobSpec) -> None:
    """Raise `ConfigError` unless a training has the parties of an earlier one. `named`: the key that names that."""
    first, *others = parties_of(trained)
    if first != spec.aggregator or sorted(others) != sorted(spec.feature_parties):
        raise ConfigError(
            f"{named}: was trained with label holder {first} and feature parties {', '.join(others)}; a training "
            "continues with the same parties, or replaces a model of the same"
        )


def _key_faults(spec: setup_pb2.JobSpec) -> list[str]:
    """Faults of the scheme, the key and its obfuscation, which only trees need."""
    name = training_name(spec)
    if name and not training(name).grows_trees:
        return []
    key, faults = KeyKind.of(spec), []
    with suppress(ConfigError):  # of other parameters, which are named apart
        params = params_of(spec)
        faults += bin_faults(key.scheme, params.max_bin) if isinstance(params, TreeParams) else []
    return key_faults(key.scheme, spec.key_bits, spec.obfuscation) + faults


def tables_of(spec: setup_pb2.JobSpec) -> tuple[str, str]:
    """The names of the tables that each party uses, the training's first; the second is empty without an eval table."""
    return spec.table, spec.eval_table


def parties_of(spec: setup_pb2.JobSpec) -> list[str]:
    """The parties of a job, the aggregator first; a dealer is none."""
    return [spec.aggregator, *spec.feature_parties]


def processes_of(spec: setup_pb2.JobSpec) -> list[str]:
    """All that the coordinator conducts in a job: the parties, and the dealer if there is one."""
    return [*parties_of(spec), *filter(None, [spec.dealer])]


def _dealer_faults(spec: setup_pb2.JobSpec) -> list[str]:
    """Faults of the form of sums, and of who deals their randomness."""
    if spec.sums not in ("", *SUMS):
        return [f"sums = {spec.sums!r}: must be one of {', '.join(SUMS)}"]
    if spec.sums != SHARED:
        return [f"dealer = {spec.dealer!r}: deals for sums = {SHARED!r} alone; leave it out"] if spec.dealer else []
    if not NAME.match(spec.dealer):
        return [
            f"sums = {SHARED!r}: needs a dealer, a process of an organisation that is none of the parties'; write "
            'dealer = "NAME" under [job], and dealers = ["NAME"] under [people] of every party\'s policy file'
        ]
    if spec.dealer in parties_of(spec):
        return [f"dealer = {spec.dealer!r}: is a party of the job, and would know what it deals to itself"]
    return []


def _screening_faults(spec: setup_pb2.JobSpec) -> list[str]:
    """Faults of the parameters of a screening, which are those of no training."""
    with suppress(ConfigError):  # of parameters out of range, which are named apart
        params = params_of(spec)
        if not (spec.screen and isinstance(params, BoostingParams)):
            return []
        if params.objective not in BINARY:
            return [f"objective = {params.objective!r}: a screening tells two classes apart, by binary:logistic alone"]
        if spec.eval_table or spec.base_model or spec.replaces or params.to_dict() != params.screened().to_dict():
            return ["screen: has one tree of depth 1 over all records of one table, and nothing else of a model"]
    return []


def _too_few_or_many(spec: setup_pb2.JobSpec, names: Sequence[str]) -> list[str]:
    """Faults of the number of parties, by the names of a job file; none if the protocol is not known."""
    name = training_name(spec)
    faults = []
    if name and training(name).one_role:
        number, most = len([party for party in names if party]), training(name).most_equals
        if not 2 <= number <= most:
            faults.append(f"parties: are {number}; a job of protocol {name!r} has 2 to {most}, each with features")
        return faults
    if not spec.aggregator:
        faults.append("label_holder: is missing")
    if not spec.feature_parties:
        faults.append("feature_parties: is empty; a federation has at least one feature party")
    return faults


def sent_in_training(spec: setup_pb2.JobSpec, coordinator: str) -> Iterator[Sent]:
    """All that a training job has its parties send, once `check_spec` has passed it."""
    return sent_by(rows_of_training(spec), members_of(spec, coordinator))


def rows_of_training(spec: setup_pb2.JobSpec) -> list[MessageRow]:
    """The rows of all messages of a training job that `check_spec` has passed."""
    own = [row for row in training(training_name(spec)).sends if row.when(spec)]
    return [*alignment.ALIGNMENTS[spec.alignment], *MESSAGES, *own]
