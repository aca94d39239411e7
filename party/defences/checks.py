"""Checks that a job can have what a party's file and policy ask for: refusals by name before it starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NoReturn

from treetap.errors import ConfigError, Refused
from treetap.names import OFFSETS
from treetap.party.defences.clean_labels import LabelRules, Use
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.protocols.exclusions import Feature, between
from treetap.protocols.job_spec import SHARED, broken_by, features_of, params_of
from treetap.protocols.registry import training, training_name
from treetap.tables.config import TableConfig
from treetap.trees.job_params import JobParams
from treetap.trees.params import TreeParams
from treetap.wire.v2 import setup_pb2

#: Features that a party's policy asks for.
_OF_POLICIES = (Feature.MAX_LEAKAGE, Feature.MIN_INSTANCE_SPACE)


def check_own(
    party: str,
    defences: Defences,
    policy: Policy,
    own: TableConfig | None,
    further: TableConfig | None,
    spec: setup_pb2.JobSpec,
) -> None:
    """Check a job that `check_spec` has passed against this party's own file.

    `own`, `further`: the party's table of the job, and its eval table; None where it has none.

    Raises:
        ConfigError: the job cannot have a defence, a constraint or cuts that the file asks for, or has more trees than
            a defence is for.
        Refused: this party's labels would be used without label differential privacy, and its policy has a budget; or
            the policy bounds what sets of records tell, and the job's has no such bound; or its columns would be
            embedded with less sensitivity than its policy asks for; or the policy lets no constraints go to the label
            holder.
    """
    one_role = training(training_name(spec)).one_role
    labelled = own is not None and own.label is not None if one_role else spec.aggregator == party
    embeds = spec.aggregator != party or one_role
    tables = [table for table in (own, further) if table is not None]
    of_tables = {
        Feature.MONOTONE: own is not None and bool(own.directions),
        Feature.CUTS: own is not None and bool(own.cuts),
        Feature.WEIGHT: any(table.weight is not None for table in tables),
        **{Feature(key): labelled and any(key in table.offsets for table in tables) for key in OFFSETS},
        Feature.NO_COLUMNS: own is None or not own.columns,
    }
    used = features_of(spec) | {feature for feature, has in of_tables.items() if has}
    used |= _of_labels(defences, policy) if labelled else set()
    used |= _of_columns(party, defences, policy, spec) if embeds else set()
    if rows := broken_by(spec, used):
        said = "\n".join(map(str, rows))
        # a policy refuses a job; what only this party's file asks for is a fault of the file
        if all(row.feature in _OF_POLICIES for row in rows):
            raise Refused(f"{party} takes no part in this job by its policy: {said}")
        raise ConfigError(said)
    # the marks of constrained columns go to the label holder with the sums
    if Feature.MONOTONE in used and spec.aggregator != party:
        policy.check_emits(party, spec.aggregator, ["MONOTONE_DIRECTION"])
    params = params_of(spec)
    if own is not None and isinstance(params, TreeParams):
        try:
            own.check_bins(params.max_bin)
        except ValueError as fault:
            raise ConfigError(f"{party}: [tables.{spec.table}], {own.title}: {fault}") from None
    if embeds and defences.column_privacy is not None and isinstance(params, TreeParams):
        # of two classes and of more, every number is possible: the label holder looks again
        least = range(params.n_estimators * params.trees_per_round(2))
        check_noised_trees(party, defences.column_privacy.trees, params, least)
    if embeds and not isinstance(params, TreeParams):
        policy.check(party, "min_sensitivity", defences.sensitivity)
    if labelled:
        rules = LabelRules.of(party, defences, policy)
        for use in (Use.NOISE if rules.noisy else Use.TRAINING, *((Use.EVAL_TABLE,) if spec.eval_table else ())):
            rules.check(use)
        if strangers := [name for name in defences.dimip if name not in spec.feature_parties]:
            raise ConfigError(
                f"dimip of {', '.join(strangers)} under [defences]: the feature parties of the job are "
                f"{', '.join(spec.feature_parties)}; name some of these in {party}'s file, or leave it out"
            )


def _of_labels(defences: Defences, policy: Policy) -> set[Feature]:
    """The features by which a party with labels protects them."""
    limit, noise, bounded = defences.id_lmid, defences.label_dp, policy.labels.max_leakage is not None
    used = {
        **{Feature(name): True for name in defences.named()},
        Feature.ID_LMID_PAPER: limit is not None and limit.counts == "paper",
        Feature.LABEL_DP_STAGES: noise is not None and noise.stages > 1,
        Feature.MAX_LEAKAGE: bounded,
        Feature.WITHDRAW: bounded and policy.labels.on_max_leakage != "stop",
    }
    return {feature for feature, has in used.items() if has}


def _of_columns(party: str, defences: Defences, policy: Policy, spec: setup_pb2.JobSpec) -> set[Feature]:
    """The features by which a party protects columns of which others learn."""
    used, params = {Feature(name) for name in defences.named(columns=True)}, params_of(spec)
    used |= {Feature.MIN_INSTANCE_SPACE} if policy.columns.min_instance_space > 1 else set()
    return used | ({Feature.BATCH_NORM} if params.norms_batches(party) else set())


def refuse_classes(label_holder: str, feature: Feature) -> NoReturn:
    """Refuse sums with classes of records, some not drawn by the tree, at a party with this defence of its columns."""
    rows = [between(feature, other) for other in (Feature.ID_LMID, Feature.WITHDRAW)]
    raise ConfigError(f"{label_holder} withholds sets of records by one of these:\n" + "\n".join(map(str, rows)))


def refuse_sets_of_categories(party: str, spec: setup_pb2.JobSpec, columns: Collection[str]) -> None:
    """Raise `ConfigError` if trees would split a feature party's columns by sets of categories, on shares."""
    if columns and spec.sums == SHARED:
        row = between(Feature.PARTITIONS, Feature.SHARED)
        raise ConfigError(f"{party}: {', '.join(map(repr, columns))}: {row}", party=party)


def check_noised_trees(party: str, most: int, params: TreeParams, trees: Iterable[int]) -> None:
    """Raise `ConfigError` if a party takes part in more of these trees than its `column_privacy` is for."""
    planned = sum(params.takes_part(t, party) for t in trees)
    if planned > most:
        raise ConfigError(
            f"column_privacy of {party} is for {most} trees, and the job has {planned} with sums of it; lower "
            f"n_estimators, or raise trees under [defences] of {party}'s file, which makes the noise larger"
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
