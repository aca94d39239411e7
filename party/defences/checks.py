"""Checks that a job can have the defences of a party's labels and columns: refusals by name before it starts."""

from __future__ import annotations

from party.defences.clean_labels import LabelRules, Use
from party.defences.settings import Defences
from party.policy import Policy
from treetap.errors import ConfigError, Refused
from treetap.neural.params import SplitnnParams
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import TrainingProtocol, training, training_name
from treetap.tables.config import TableConfig
from treetap.trees.job_params import REGRESSIONS, JobParams
from treetap.trees.params import TreeParams
from treetap.wire.v2 import setup_pb2

#: Defences that treat labels as classes.
_OF_CLASSES = ("id_lmid", "label_dp", "grafting", "refit", "dimip")


def check_defences(
    party: str, defences: Defences, policy: Policy, own: TableConfig | None, spec: setup_pb2.JobSpec
) -> None:
    """Check a job that `check_spec` has passed. `own`: the party's table of the job; None where it has none.

    Raises:
        Refused: this party's labels would be used without label differential privacy, and its policy has a budget; or
            the policy bounds what sets of records tell, and the job's has no such bound; or its columns would be
            embedded with less sensitivity than its policy asks for.
        ConfigError: the job cannot have a defence that `[defences]` asks for.
    """
    name = training_name(spec)
    protocol = training(name)
    if spec.aggregator != party or protocol.one_role:
        _check_columns(party, defences, policy, own, spec, protocol)
    labelled = own is not None and own.label is not None if protocol.one_role else spec.aggregator == party
    if not labelled:
        return
    lacking = [each for each in defences.named() if each not in protocol.defences]
    if lacking:
        raise ConfigError(
            f"{', '.join(lacking)} under [defences]: protocol {name!r} has no such defence of labels; train with "
            f"another protocol, or leave it out of {party}'s file, which has table {spec.table!r} with a label column"
        )
    rules = LabelRules.of(party, defences, policy)
    for use in (Use.NOISE if rules.noisy else Use.TRAINING, *((Use.EVAL_TABLE,) if spec.eval_table else ())):
        rules.check(use)
    params = params_of(spec)
    if policy.max_leakage is not None and ("id_lmid" not in protocol.defences or params.objective in REGRESSIONS):
        what = f"protocol {name!r}" if "id_lmid" not in protocol.defences else params.objective
        raise Refused(
            f"{party} takes no part in a job whose sets of records have no bound on what they tell of its labels: its "
            f"policy says max_leakage = {policy.max_leakage:g}, and {what} has no such bound; train on classes by "
            "another protocol, or leave max_leakage out"
        )
    if params.objective in REGRESSIONS and (refused := [each for each in defences.named() if each in _OF_CLASSES]):
        raise ConfigError(
            f"{', '.join(refused)} under [defences]: protects classes, and the labels of {params.objective} are "
            f"numbers; train on classes, or leave it out of {party}'s file"
        )
    if spec.base_model and defences.private_values:
        raise ConfigError(
            f"grafting, refit under [defences]: repair trees from the first, and those of base_model "
            f"{spec.base_model!r} are finished; leave them out of {party}'s file, or train without base_model"
        )
    if defences.label_dp is not None and own is not None and own.weight is not None:
        raise ConfigError(
            f"label_dp under [defences]: sample weights would go into the training as they are, and they often follow "
            f"from labels; leave weight out of table {spec.table!r} in {party}'s file, or train without label_dp"
        )
    if strangers := [each for each in defences.dimip if each not in spec.feature_parties]:
        raise ConfigError(
            f"dimip of {', '.join(strangers)} under [defences]: the feature parties of the job are "
            f"{', '.join(spec.feature_parties)}; name some of these in {party}'s file, or leave it out"
        )
    limit = defences.id_lmid
    if limit is not None and limit.counts == "paper" and isinstance(params, TreeParams) and params.draws_twice:
        raise ConfigError(
            'id_lmid with counts = "paper" under [defences]: counts the draws of a tree, and with bootstrap = true a '
            f"class may have more of these than records; leave counts out of {party}'s file, or train without bootstrap"
        )
    if own is None or not own.columns:
        _check_without_columns(party, defences, spec)


def _check_columns(
    party: str,
    defences: Defences,
    policy: Policy,
    own: TableConfig | None,
    spec: setup_pb2.JobSpec,
    protocol: TrainingProtocol,
) -> None:
    """Raise for defences of the columns of a feature party that the job cannot have, or that its policy misses."""
    name, params = training_name(spec), params_of(spec)
    if lacking := [each for each in defences.named(columns=True) if each not in protocol.column_defences]:
        raise ConfigError(
            f"{', '.join(lacking)} under [defences]: protocol {name!r} has no such defence of columns; train a split "
            f"network, or leave it out of {party}'s file"
        )
    if not isinstance(params, SplitnnParams):
        return
    policy.check_sensitivity(party, defences.sensitivity)
    if defences.named(columns=True) and (own is None or not own.columns):
        raise ConfigError(
            f"{', '.join(defences.named(columns=True))} under [defences]: table {spec.table!r} of {party} has no "
            "columns to protect; leave it out"
        )
    bottom = params.bottom_of(party)
    if defences.dp_sgd is not None and bottom.kind != "mlp" and bottom.norm == "batch":
        raise ConfigError(
            f'dp_sgd under [defences]: the job has norm = "batch" for {party}, where a record has no gradient of its '
            f'own; train with norm = "group", or leave dp_sgd out of {party}\'s file'
        )


def check_own_trees(party: str, defences: Defences, params: JobParams, classes: int, before: int = 0) -> None:
    """Raise `ConfigError` if the label holder is to grow more trees alone than the model will have.

    `before`: the trees of a base model, which count as the first ones.
    """
    own = defences.reduced_leakage
    if own is None or not isinstance(params, TreeParams):
        return
    if own.trees > (planned := before + params.n_estimators * params.trees_per_round(classes)):
        raise ConfigError(
            f"reduced_leakage = {{trees = {own.trees}}} under [defences]: the job has {planned} trees; name fewer in "
            f"{party}'s file, or raise n_estimators"
        )


def _check_without_columns(party: str, defences: Defences, spec: setup_pb2.JobSpec) -> None:
    """Raise `ConfigError` for what needs columns of the label holder's own."""
    lacks = f"table {spec.table!r} of {party} has no columns of features"
    if defences.label_dp is not None and defences.label_dp.stages > 1:
        raise ConfigError(
            f"label_dp with stages = {defences.label_dp.stages} under [defences]: priors come from columns of the "
            f"label holder's own, and {lacks}; set stages = 1"
        )
    if defences.reduced_leakage is not None:
        raise ConfigError(
            f"reduced_leakage under [defences]: its trees have columns of the label holder's own, and {lacks}; leave "
            "it out"
        )
