"""The parameters of both estimators.

Those of the model have the names, the meaning and the defaults of `treetap.trees.params.BoostingParams`, which are
XGBoost's; the others say who has what, and how numbers are encrypted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from sklearn.base import BaseEstimator

from treetap.commands.jobs.xgboost_names import unknown_parameter
from treetap.names import did_you_mean

Given = ParamSpec("Given")
#: Names of XGBoost and of `[job]` that have another place here than in files → what to write.
_HERE = {
    **dict.fromkeys(("n_jobs", "nthread"), "write workers, of each party"),
    **dict.fromkeys(("enable_categorical", "feature_types"), 'write encode = "categorical", or {column: encoding}'),
    **dict.fromkeys(("xgb_model", "base_model"), "give fit a fitted estimator, as base_model"),
    "sample_weight": "give it to fit",
}


def _naming(
    construct: Callable[Concatenate[Any, Given], None],
) -> Callable[Concatenate[Any, Given], None]:
    """A constructor of the same signature whose TypeError about an unknown keyword says what to write."""
    known = list(signature(construct).parameters)[1:]

    @wraps(construct)
    def constructed(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> None:
        for name in kwargs:
            if name not in known:
                said = _HERE.get(name) or unknown_parameter(name)
                remedy = did_you_mean(name, known) if said is None else f"; {said}"
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}{remedy}")
        construct(self, *args, **kwargs)

    return constructed


class Parameters(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Keyword arguments of the estimators, which scikit-learn reads from this constructor.

    Args:
        parties: {party: its columns}, or a number of parties among which the columns are split in their order (default:
            two). Data that comes as one frame per party needs none.
        label_holder: the party that has the labels; by default the first.
        n_estimators: and the following up to `party_dropout`: see `treetap.trees.params.BoostingParams`. `objective`
            None: binary:logistic for two classes, multi:softprob for more, reg:squarederror for numbers.
        scheme: and `key_bits`, `obfuscation`: the encryption of gradients; docs/configuration.md. None: by default,
            where the scheme has keys.
        alignment: "psi" or "sorted-ids"; None: private set intersection where each party has a frame of its own.
        id_column: the column of ids, which is no feature; None: of frames of several parties the index of pandas, else
            the place.
        monotone_constraints: {column: 1 or -1}, in which predictions may only increase or only decrease.
        encode: "ordinal", "one-hot" or "categorical" for columns of text, "days" for dates; or {column: one of them}.
            "auto", and for columns that are not named: what the type and the cells of a column show; None: text is
            refused.
        date_format: of dates in text that are not as 2024-03-31, such as "%d.%m.%Y", or {column: format}.
        defences: the label holder's table `[defences]`; docs/defences.md.
        policy: lines of every party's policy file; docs/configuration.md.
        prediction: the protocol of predictions: "interactive" (default), "eini" or "eini-lattice"; "eini" is the
            default where instance_spaces = "withheld".
        workers: worker processes of each party; None: the number of cores.
        federation: a running one of `treetap.federation`; None: one that stays up for the next fit.
        workdir: a folder in which configurations, certificates, states and logs are kept; None: a temporary one.
        verbose: show progress, in a terminal and in a notebook.
    """

    @_naming
    def __init__(
        self,
        parties: Mapping[str, Sequence[Any]] | Sequence[str] | int | None = None,
        label_holder: str | None = None,
        *,
        n_estimators: int = 100,
        max_depth: int = 6,
        max_bin: int = 32,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        objective: str | None = None,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        max_delta_step: float = 0.0,
        gamma: float = 0.0,
        min_child_weight: float = 1.0,
        scale_pos_weight: float = 1.0,
        max_sample_weight: float = 1.0,
        multi_strategy: str = "one_output_per_tree",
        base_score: float | None = None,
        early_stopping_rounds: int | None = None,
        validation_share: float = 0.1,
        max_leaves: int = 0,
        grow_policy: str = "depthwise",
        max_cat_to_onehot: int = 4,
        max_cat_threshold: int = 64,
        gradient_bits: int | None = None,
        instance_spaces: str = "sent",
        pad_trees: bool = False,
        missing: float = math.nan,
        seed: int = 0,
        party_dropout: Mapping[str, float] | None = None,
        scheme: str = "paillier",
        key_bits: int | None = None,
        obfuscation: str | None = None,
        alignment: str | None = None,
        id_column: str | None = None,
        monotone_constraints: Mapping[str, int] | None = None,
        encode: str | Mapping[str, str] | None = "auto",
        date_format: str | Mapping[str, str] | None = None,
        defences: Mapping[str, Any] | None = None,
        policy: Mapping[str, Any] | None = None,
        prediction: str | None = None,
        workers: int | None = None,
        federation: Any = None,
        workdir: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        self.parties = parties
        self.label_holder = label_holder
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.max_bin = max_bin
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.objective = objective
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.max_delta_step = max_delta_step
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.scale_pos_weight = scale_pos_weight
        self.max_sample_weight = max_sample_weight
        self.multi_strategy = multi_strategy
        self.base_score = base_score
        self.early_stopping_rounds = early_stopping_rounds
        self.validation_share = validation_share
        self.max_leaves = max_leaves
        self.grow_policy = grow_policy
        self.max_cat_to_onehot = max_cat_to_onehot
        self.max_cat_threshold = max_cat_threshold
        self.gradient_bits = gradient_bits
        self.instance_spaces = instance_spaces
        self.pad_trees = pad_trees
        self.missing = missing
        self.seed = seed
        self.party_dropout = party_dropout
        self.scheme = scheme
        self.key_bits = key_bits
        self.obfuscation = obfuscation
        self.alignment = alignment
        self.id_column = id_column
        self.monotone_constraints = monotone_constraints
        self.encode = encode
        self.date_format = date_format
        self.defences = defences
        self.policy = policy
        self.prediction = prediction
        self.workers = workers
        self.federation = federation
        self.workdir = workdir
        self.verbose = verbose
