"""A training job's description: its parameters, its parties, and the checks that every process makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from treetap.errors import ConfigError
from treetap.names import NAME
from treetap.protocols import alignment, codec
from treetap.protocols.key_options import KEY_FIELDS, SCHEMES, KeyKind, key_faults
from treetap.protocols.messages import JOB, MessageRow, Sent, all_report, label_holder_reports, members_of, sent_by
from treetap.protocols.registry import TRAINING, training, training_name
from treetap.trees.job_params import JobParams
from treetap.trees.params import TreeParams
from treetap.wire.v2 import protocols_pb2, setup_pb2

Params = TypeVar("Params", bound=JobParams)
#: Methods of record alignment; the first is the default.
ALIGNMENTS = tuple(alignment.ALIGNMENTS)
#: Of every training. That early stopping had ended it is said only when such a job is resumed.
MESSAGES = (
    *JOB,
    MessageRow("prepared", all_report, step="prepare", perhaps=frozenset({"METRIC"})),  # once a model is published
    MessageRow("binned", label_holder_reports, step="bin", perhaps=frozenset({"METRIC"})),
    MessageRow("published_model", label_holder_reports, step="publish"),
)


def params_of(spec: setup_pb2.JobSpec) -> JobParams:
    """The parameters of the job's protocol; `ConfigError` lists every value out of range."""
    return _valid_params(training_name(spec), spec.parameters.SerializeToString(deterministic=True))


@lru_cache(maxsize=64)
def _valid_params(protocol: str, parameters: bytes) -> JobParams:
    """Parameters from their serialised message; kept, since most steps of a job ask for them."""
    found = training(protocol)
    params = codec.read(getattr(protocols_pb2.Parameters.FromString(parameters), found.field), found.params)
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
    codec.put(params, getattr(spec.parameters, field))


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
    faults += _key_faults(spec) + _base_faults(spec)
    name = training_name(spec)
    if spec.eval_table and name and (reason := training(name).no_eval_table):
        faults.append(f"eval_table: a job of protocol {name!r} has none, because {reason}")
    names = [spec.aggregator, *spec.feature_parties]
    faults += _too_few_or_many(spec, names)
    faults += [
        f"{name!r} is named twice among the parties" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if faults:
        raise ConfigError("\n".join(faults))


def job_key_faults(protocol: str, scheme: str, key_bits: int, obfuscation: str) -> list[str]:
    """The faults of a key in a job of a protocol that sums ciphertexts, by the names of a job file."""
    faults = key_faults(scheme, key_bits, obfuscation)
    if protocol and scheme in SCHEMES and scheme not in (has := training(protocol).schemes):
        faults.append(
            f"scheme = {scheme!r}: a job of protocol {protocol!r} sums ciphertexts of {' or '.join(has)} only"
        )
    return faults


def _key_faults(spec: setup_pb2.JobSpec) -> list[str]:
    """Faults of the scheme, the key and its obfuscation, which only trees need."""
    name = training_name(spec)
    if not name or training(name).grows_trees:
        return job_key_faults(name, KeyKind.of(spec).scheme, spec.key_bits, spec.obfuscation)
    given = [field for field in KEY_FIELDS if getattr(spec, field)]
    return [f"{field}: a job of protocol {name!r} encrypts nothing; leave it out" for field in given]


def _base_faults(spec: setup_pb2.JobSpec) -> list[str]:
    """Faults of the model from which a job continues."""
    if not spec.base_model:
        return []
    name = training_name(spec)
    if name and (why := training(name).no_continuation):
        return [f"base_model: a job of protocol {name!r} cannot continue from a model: {why}; leave it out"]
    if spec.eval_table:
        return [
            "eval_table: a job that continues from a base_model has none, because no party has scores of its records "
            "under that model; leave it out, or have validation_share of the records set aside"
        ]
    return [] if NAME.match(spec.base_model) else [f"base_model = {spec.base_model!r}: is not the name of a model"]


def _too_few_or_many(spec: setup_pb2.JobSpec, names: Sequence[str]) -> list[str]:
    """Faults of the number of parties, by the names of a job file; none if the protocol is not known."""
    name = training_name(spec)
    faults = []
    if name and training(name).one_role:
        found, most = len([each for each in names if each]), training(name).most_parties
        if not 2 <= found <= most:
            faults.append(f"parties: are {found}; a job of protocol {name!r} has 2 to {most}, each with features")
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
