"""A job's description on the wire and as the pure parts want it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treetap.errors import ConfigError
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v1 import boosting_pb2, forest_pb2, interactive_pb2, setup_pb2, types_pb2

PROTOCOLS = ("boosting", "forest")
#: The parameters of a job of some protocol that grows trees.
Params = BoostingParams | ForestParams
KEY_BITS = (1024, 2048, 3072)
#: Exists to reproduce a paper's figure; breakable, said loudly wherever it is used.
PAPER_KEY_BITS = 512
OBFUSCATIONS = ("short-exponent", "half-length", "standard")
ALIGNMENTS = ("psi", "sorted-ids")
PREDICTIONS = ("interactive", "eini", "eini-lattice")
#: Those that hide the way of a record.
ENCRYPTED = ("eini", "eini-lattice")
#: How an interactive prediction walks the trees: all at once, or one after the other as it was published.
FORMS = ("batched", "per-tree")
#: What becomes of a prediction when a feature party does not answer.
AWAY_POLICIES = ("fail", "retry", "degrade")
#: Seconds: a sign of life comes every second, and an hour is long enough.
AWAY_DEADLINES = (3, 3600)
#: Most feature parties of a prediction with attributions.
MOST_ATTRIBUTING = 4


def params_to_wire(params: BoostingParams) -> boosting_pb2.BoostingParams:
    """The wire form; absent values stay absent."""
    message = boosting_pb2.BoostingParams(
        objective=params.objective,
        n_estimators=params.n_estimators,
        max_depth=params.max_depth,
        max_bin=params.max_bin,
        learning_rate=params.learning_rate,
        reg_lambda=params.reg_lambda,
        gamma=params.gamma,
        min_child_weight=params.min_child_weight,
        subsample=params.subsample,
        colsample_bytree=params.colsample_bytree,
        multi_strategy=params.multi_strategy,
        validation_share=params.validation_share,
        seed=params.seed,
        party_dropout=_shares_to_wire(params),
    )
    if params.base_score is not None:
        message.base_score = params.base_score
    if params.early_stopping_rounds is not None:
        message.early_stopping_rounds = params.early_stopping_rounds
    if params.missing == params.missing:  # NaN is missing anyway
        message.missing = params.missing
    return message


def params_from_wire(message: boosting_pb2.BoostingParams) -> BoostingParams:
    """The parameters of a job; `ConfigError` lists every value out of range."""
    params = BoostingParams(
        objective=message.objective,
        n_estimators=message.n_estimators,
        max_depth=message.max_depth,
        max_bin=message.max_bin,
        learning_rate=message.learning_rate,
        reg_lambda=message.reg_lambda,
        gamma=message.gamma,
        min_child_weight=message.min_child_weight,
        subsample=message.subsample,
        colsample_bytree=message.colsample_bytree,
        multi_strategy=message.multi_strategy,
        base_score=message.base_score if message.HasField("base_score") else None,
        early_stopping_rounds=message.early_stopping_rounds if message.HasField("early_stopping_rounds") else None,
        validation_share=message.validation_share,
        missing=message.missing if message.HasField("missing") else float("nan"),
        seed=message.seed,
        party_dropout=_shares_from_wire(message.party_dropout),
    )
    params.validate()
    return params


def forest_to_wire(params: ForestParams) -> forest_pb2.ForestParams:
    """The wire form of a forest's parameters."""
    message = forest_pb2.ForestParams(
        criterion=params.criterion,
        n_estimators=params.n_estimators,
        max_depth=params.max_depth,
        max_bin=params.max_bin,
        subsample=params.subsample,
        bootstrap=params.bootstrap,
        colsample_bytree=params.colsample_bytree,
        min_samples_leaf=params.min_samples_leaf,
        binning=params.binning,
        seed=params.seed,
        party_dropout=_shares_to_wire(params),
    )
    if params.missing == params.missing:
        message.missing = params.missing
    return message


def forest_from_wire(message: forest_pb2.ForestParams) -> ForestParams:
    """The parameters of a forest; `ConfigError` lists every value out of range."""
    params = ForestParams(
        criterion=message.criterion,
        n_estimators=message.n_estimators,
        max_depth=message.max_depth,
        max_bin=message.max_bin,
        subsample=message.subsample,
        bootstrap=message.bootstrap,
        colsample_bytree=message.colsample_bytree,
        min_samples_leaf=message.min_samples_leaf,
        binning=message.binning,
        missing=message.missing if message.HasField("missing") else float("nan"),
        seed=message.seed,
        party_dropout=_shares_from_wire(message.party_dropout),
    )
    params.validate()
    return params


def params_of(spec: setup_pb2.JobSpec) -> Params:
    """The parameters of the job's protocol; `ConfigError` lists every value out of range."""
    return forest_from_wire(spec.forest) if spec.protocol == "forest" else params_from_wire(spec.boosting)


def taking_part(spec: setup_pb2.JobSpec, tree: int) -> list[str]:
    """The feature parties that offer candidates to a tree, in the order of the job."""
    params = params_of(spec)
    return [party for party in spec.feature_parties if params.takes_part(tree, party)]


def put_params(spec: setup_pb2.JobSpec, params: Params) -> None:
    """Write a model's parameters into the job, where its protocol has them."""
    if isinstance(params, ForestParams):
        spec.forest.CopyFrom(forest_to_wire(params))
    else:
        spec.boosting.CopyFrom(params_to_wire(params))


def check_spec(spec: setup_pb2.JobSpec) -> None:
    """`ConfigError` listing everything in a job that no party could do."""
    faults = []
    if spec.protocol not in PROTOCOLS:
        faults.append(f"protocol = {spec.protocol!r}: must be one of {', '.join(PROTOCOLS)}")
    if spec.alignment not in ALIGNMENTS:
        faults.append(f"alignment = {spec.alignment!r}: must be one of {', '.join(ALIGNMENTS)}")
    if spec.key_bits not in (*KEY_BITS, PAPER_KEY_BITS):
        faults.append(
            f"key_bits = {spec.key_bits}: must be 1024, 2048 or 3072 (512 only to reproduce a paper's figure)"
        )
    if spec.obfuscation not in OBFUSCATIONS:
        faults.append(f"obfuscation = {spec.obfuscation!r}: must be one of {', '.join(OBFUSCATIONS)}")
    names = [spec.label_holder, *spec.feature_parties]
    if not spec.label_holder:
        faults.append("label_holder: is missing")
    if not spec.feature_parties:
        faults.append("feature_parties: names nobody; a federation has at least one feature party")
    faults += [
        f"{name!r} is named twice among the parties" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    for other in PROTOCOLS:
        if other != spec.protocol and spec.HasField(other):  # type: ignore[arg-type]
            faults.append(f"{other}: a job of protocol {spec.protocol!r} has no parameters of {other}")
    try:
        if spec.protocol in PROTOCOLS:
            faults += foreign_dropout(params_of(spec), list(spec.feature_parties))
    except ConfigError as failure:
        faults.append(str(failure))
    if faults:
        raise ConfigError("\n".join(faults))


def check_prediction(opening: interactive_pb2.OpenModel) -> None:
    """`ConfigError` listing everything in a prediction that no party could do; each protocol has its own options."""
    faults = []
    protocol, form, key_bits = opening.protocol, opening.form, opening.key_bits
    if protocol not in PREDICTIONS:
        faults.append(f"protocol = {protocol!r}: must be one of {', '.join(PREDICTIONS)}")
    if protocol == "interactive":
        if form not in FORMS:
            faults.append(f"form = {form!r}: must be one of {', '.join(FORMS)}")
        if key_bits:
            faults.append(f"key_bits = {key_bits}: an interactive prediction encrypts nothing; leave it out")
    if protocol in ENCRYPTED and form:
        faults.append(f"form = {form!r}: is an option of interactive predictions only; leave it out")
    if protocol == "eini-lattice" and key_bits:
        faults.append(f"key_bits = {key_bits}: a lattice key has the size that the model asks for; leave it out")
    if protocol == "eini":
        if key_bits not in (*KEY_BITS, PAPER_KEY_BITS):
            faults.append(f"key_bits = {key_bits}: must be 1024, 2048 or 3072 (512 only to reproduce a paper's figure)")
        if opening.obfuscation not in OBFUSCATIONS:
            faults.append(f"obfuscation = {opening.obfuscation!r}: must be one of {', '.join(OBFUSCATIONS)}")
    faults += _away_faults(opening) + _explain_faults(opening) + (_serve_faults(opening) if opening.serve else [])
    if faults:
        raise ConfigError("\n".join(faults))


def _serve_faults(opening: interactive_pb2.OpenModel) -> list[str]:
    faults = []
    if opening.records_file:
        faults.append("records: a served model predicts what clients ask about; leave it out")
    if opening.away_policy == "degrade":
        faults.append(
            "away = 'degrade': a served model would go on without the party for good, and clients would get guesses; "
            "use retry"
        )
    if opening.explain or opening.attributions:
        faults.append("explain, attributions: a served model answers with predictions alone; leave them out")
    return faults


def _away_faults(opening: interactive_pb2.OpenModel) -> list[str]:
    faults = []
    policy, deadline = opening.away_policy, opening.away_deadline_s
    if policy not in AWAY_POLICIES:
        faults.append(f"away = {policy!r}: must be one of {', '.join(AWAY_POLICIES)}")
    if policy == "degrade" and opening.protocol == "eini-lattice":
        faults.append("away = 'degrade': the lattice backend cannot; use protocol eini or interactive, or retry")
    if policy == "degrade" and opening.attributions:
        faults.append("away = 'degrade': there are no attributions without a party; use retry, or leave them out")
    if policy == "fail" and deadline:
        faults.append(f"away-deadline = {deadline:g}: is an option of retry and degrade; leave it out")
    if policy in ("retry", "degrade") and not AWAY_DEADLINES[0] <= deadline <= AWAY_DEADLINES[1]:
        faults.append(f"away-deadline = {deadline:g}: must be {AWAY_DEADLINES[0]} to {AWAY_DEADLINES[1]} seconds")
    if opening.away and policy != "degrade":
        faults.append(f"away: {', '.join(opening.away)} cannot be left out of a prediction that does not degrade")
    faults += [f"away: {name!r} is not a feature party" for name in opening.away if name not in opening.feature_parties]
    return faults


def _explain_faults(opening: interactive_pb2.OpenModel) -> list[str]:
    faults = []
    if opening.explain_limit and not opening.explain:
        faults.append(
            f"explain-limit = {opening.explain_limit}: is an option of explain; leave it out, or ask for that"
        )
    if opening.attributions and opening.protocol != "eini":
        faults.append(
            f"attributions: protocol {opening.protocol!r} cannot; they are masked sums of an encrypted prediction: "
            "use protocol eini"
        )
    if opening.attributions and len(opening.feature_parties) > MOST_ATTRIBUTING:
        faults.append(
            f"attributions: {len(opening.feature_parties)} feature parties are too many, each doubles the entries of a "
            f"leaf; at most {MOST_ATTRIBUTING}"
        )
    return faults


def foreign_dropout(params: Params, feature_parties: Sequence[str]) -> list[str]:
    """Parties of `party_dropout` that are no feature parties of the job."""
    return [
        f"party_dropout names {name!r}, which is not a feature party of the job ({', '.join(feature_parties)})"
        for name in params.party_dropout
        if name not in feature_parties
    ]


def _shares_to_wire(params: Params) -> list[types_pb2.NamedAmount]:
    return [types_pb2.NamedAmount(name=name, amount=share) for name, share in params.party_dropout.items()]


def _shares_from_wire(shares: Iterable[types_pb2.NamedAmount]) -> dict[str, float]:
    return {share.name: share.amount for share in shares}
