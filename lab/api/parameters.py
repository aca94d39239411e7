"""The parameters of both estimators.

Those of the model have the names, the meaning and the defaults of `treetap.trees.params.BoostingParams`, which are
XGBoost's; the others say who has what, and how numbers are encrypted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from copy import copy
from dataclasses import fields
from functools import wraps
from inspect import cleandoc, signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np
from sklearn.base import BaseEstimator

from treetap.commands.jobs.job_file import JobTable, unknown_parameter
from treetap.errors import did_you_mean
from treetap.lab.api.frames import InvalidInput, checked
from treetap.protocols.job_spec import PUBLISHED
from treetap.protocols.key_options import KEY_FIELDS
from treetap.protocols.registry import TRAINING, training
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import BoostingParams

Given = ParamSpec("Given")
#: The heading of the attributes in an estimator's documentation.
_ATTRIBUTES = "Attributes\n----------\n"
#: Names of XGBoost and of `[job]` that have another place here than in files → what to write.
_HERE = {
    **dict.fromkeys(("n_jobs", "nthread"), "write workers, of each party"),
    **dict.fromkeys(("enable_categorical", "feature_types"), 'write encode = "categorical", or {column: encoding}'),
    **dict.fromkeys(("xgb_model", "base_model"), "give fit a fitted estimator, as base_model"),
    **dict.fromkeys(("sample_weight", "eval_set", "sample_weight_eval_set"), "give it to fit"),
    **dict.fromkeys(("bootstrap", "criterion", "epochs", "epsilon"), "write it under options, beside protocol"),
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


class Columns(int):
    """A number of columns, as a representation has it."""

    def __repr__(self) -> str:
        return f"{int(self)} column{'s' if self != 1 else ''}"


class Parameters(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Keyword arguments of the estimators, which scikit-learn reads from this constructor.

    Parameters
    ----------
    parties : {party: columns}, list of names, or int, default=None
        Columns of each party, or a number of parties among which columns are split in their order; None: two. A table
        of each party needs none.
    label_holder : str, default=None
        Party that has the labels; None: the first.
    protocol : {"boosting", "forest", "pivodl", "splitnn"}, default="boosting"
        Training protocol: boosted trees, a random forest, boosting with labels that no party has alone, or a split
        network. `options` has its further parameters.
    simulate : bool, default=False
        Train the same model in this process, by one trainer that has all tables; nothing is encrypted or sent.
    n_estimators : int, default=100
        Number of boosting rounds, or of trees of a forest.
    max_depth : int, default=None
        Maximum depth of a tree, from 1; None: 6, or 1 of an additive model.
    max_bin : int, default=32
        Maximum number of bins per feature.
    subsample : float, default=1.0
        Subsample ratio of the training records, drawn for every tree.
    colsample_bytree : float, default=1.0
        Subsample ratio of each party's columns when constructing a tree.
    objective : str, default=None
        "binary:logistic" or "multi:softprob" of classes; "reg:squarederror", "count:poisson", "reg:gamma",
        "reg:tweedie", "reg:quantileerror" or "survival:cox" of numbers; None: by the targets.
    learning_rate : float, default=0.3
        Boosting learning rate (XGBoost's "eta").
    reg_lambda : float, default=1.0
        L2 regularization term on weights (XGBoost's "lambda").
    reg_alpha : float, default=0.0
        L1 regularization term on weights (XGBoost's "alpha").
    max_delta_step : float, default=None
        Maximum delta step that each leaf's weight may be; 0: no limit; None: 0.7 of "count:poisson", else 0.
    tweedie_variance_power : float, default=1.5
        Power of the mean with which the variance grows, of "reg:tweedie".
    quantile_alpha : float, default=0.5
        Share of the records whose label the prediction exceeds, of "reg:quantileerror".
    gamma : float, default=0.0
        Minimum loss reduction required to make a further partition on a leaf node of the tree.
    min_child_weight : float, default=1.0
        Minimum sum of instance weight (hessian) needed in a child.
    scale_pos_weight : float, default=1.0
        Factor of the weights of the second of two classes.
    max_sample_weight : float, default=1.0
        Upper bound of sample weights, by which ciphertexts are laid out; raised to the largest weight that `fit` gets.
    multi_strategy : {"one_output_per_tree", "multi_output_tree"}, default="one_output_per_tree"
        One tree for each class, or trees whose leaves have a weight for every class.
    base_score : float, default=None
        Initial prediction score of all records, global bias; None: 0.5, or the mean of the targets.
    early_stopping_rounds : int, default=None
        Rounds without a better loss after which training stops. The loss is that of the last set of `eval_set`, or of
        `validation_share` of the records.
    validation_share : float, default=0.1
        Share of the records that early stopping sets aside where `fit` has no `eval_set`.
    max_leaves : int, default=0
        Maximum number of leaves of a tree; 0: no limit.
    grow_policy : {"depthwise", "lossguide"}, default="depthwise"
        Split nodes level by level, or the node with the highest loss change first.
    max_cat_to_onehot : int, default=4
        Columns of fewer categories are split one against the rest, others by partitions.
    max_cat_threshold : int, default=64
        The categories on one side of a partition are fewer than this.
    model : {"trees", "additive"}, default="trees"
        Trees of any depth, or of one split each, so that a score is a sum of functions of single columns.
    cycle : list of str, default=None
        Additive models: parties whose turn it is, tree by tree and over again; None: the best gain of all columns wins.
    privacy : {"published", "withheld", "private"}, default="published"
        What parties learn of each other. "published": as in SecureBoost's paper. "withheld": feature parties get no set
        of records. "private": the label holder opens no sums either; a dealer deals, on this machine a stand-in.
    dealer : str, default=None
        With privacy = "private", of a federation elsewhere: the name of its dealer.
    pad_trees : bool, default=False
        Show feature parties full trees in the place of the grown ones; needs privacy = "withheld" or "private".
    missing : float, default=nan
        Value in the data that counts as missing, beside nan.
    seed : int, default=0
        Seed of the draws of records and columns (XGBoost's "random_state").
    party_dropout : {party: float}, default=None
        Probability that a feature party sits a tree out.
    scheme : {"paillier", "lattice"}, default="paillier"
        Encryption of gradients.
    key_bits : int, default=None
        Length of the key; None: 2048, or none where the scheme has no key.
    obfuscation : {"short-exponent", "full"}, default=None
        Randomness of ciphertexts; None: "short-exponent", or none where the scheme has no key.
    alignment : {"psi", "sorted-ids"}, default=None
        Search for the common records; None: private set intersection where each party has a table of its own.
    id_column : str, default=None
        Column of ids, which is no feature; None: of several tables the index of pandas, else the place.
    normalise : list of str, default=None
        Rules that bring the ids of several tables into one form, as ["nfkc", "casefold", "strip", "e164:DE", "digits"].
    monotone_constraints : {column: 1 or -1}, default=None
        Columns in which predictions may only increase, or only decrease.
    encode : str or {column: str}, default="auto"
        "ordinal", "one-hot" or "categorical" for columns of text, "days" for dates. "auto", and for columns that are
        not named: what the type and the cells of a column show; None: text is refused.
    date_format : str or {column: str}, default=None
        Format of dates in text that are not as 2024-03-31, such as "%d.%m.%Y".
    defences : dict, default=None
        The label holder's table `[defences]`, as {"id_lmid": {"xi": 0.5}}.
    policy : dict, default=None
        Tables of every party's policy file.
    prediction : str, default=None
        Protocol of predictions, as "interactive", "eini" or "eini-lattice"; None: the default of the training's.
    options : dict, default=None
        Further parameters of the protocol under their names in `[job]`, as {"bootstrap": True} or {"epochs": 20}.
    workers : int, default=None
        Threads of each party that compute; None: the number of cores.
    federation : Federation, default=None
        A running one of `treetap.federation` or `treetap.connect`; None: one that stays up for the next fit.
    workdir : path, default=None
        Folder that keeps configurations, certificates, states and logs; None: a temporary one.
    verbose : bool, default=True
        Show progress, in a terminal and in a notebook.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Show the parameters in the documentation of every estimator, before its attributes."""
        super().__init_subclass__(**given)
        own, shared = cleandoc(cls.__doc__ or ""), cleandoc(Parameters.__doc__ or "")
        if _ATTRIBUTES in own:
            parameters = shared[shared.index("Parameters\n----------\n") :].rstrip()
            cls.__doc__ = own.replace(_ATTRIBUTES, f"{parameters}\n\n{_ATTRIBUTES}", 1)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters that are not the default; of the parties' columns their number."""
        shown = copy(self)
        if isinstance(self.parties, Mapping):
            sizes = {name: Columns(len(own)) if isinstance(own, Sized) else own for name, own in self.parties.items()}
            shown.__dict__["parties"] = sizes
        return str(BaseEstimator.__repr__(shown, N_CHAR_MAX))

    @_naming
    def __init__(
        self,
        parties: Mapping[str, Sequence[Any]] | Sequence[str] | int | None = None,
        label_holder: str | None = None,
        *,
        protocol: str = "boosting",
        simulate: bool = False,
        n_estimators: int = 100,
        max_depth: int | None = None,
        max_bin: int = 32,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        objective: str | None = None,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        max_delta_step: float | None = None,
        tweedie_variance_power: float = 1.5,
        quantile_alpha: float = 0.5,
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
        model: str = "trees",
        cycle: Sequence[str] | None = None,
        privacy: str = PUBLISHED,
        dealer: str | None = None,
        pad_trees: bool = False,
        missing: float = math.nan,
        seed: int = 0,
        party_dropout: Mapping[str, float] | None = None,
        scheme: str = "paillier",
        key_bits: int | None = None,
        obfuscation: str | None = None,
        alignment: str | None = None,
        id_column: str | None = None,
        normalise: Sequence[str] | None = None,
        monotone_constraints: Mapping[str, int] | None = None,
        encode: str | Mapping[str, str] | None = "auto",
        date_format: str | Mapping[str, str] | None = None,
        defences: Mapping[str, Any] | None = None,
        policy: Mapping[str, Any] | None = None,
        prediction: str | None = None,
        options: Mapping[str, Any] | None = None,
        workers: int | None = None,
        federation: Any = None,
        workdir: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})


#: The names under which protocols that have no objective have what takes its place, for classes and for numbers.
_CRITERIA = ("gini", "squared_error")
#: Keys of a job that the estimators set themselves.
_OWN = ("protocol", "objective", "alignment", "base_model")


def job_table(given: Parameters, objective: str, alignment: str, classes: Sequence[str], *, numeric: bool) -> JobTable:
    """The job of these parameters.

    `objective`, `alignment`: where the parameters have none. `classes`: names of the classes in order, none of numbers.

    Raises:
        InvalidInput: a parameter is out of range, or one of another protocol.
    """
    with checked():
        described = training(given.protocol)
    own = {field.name for field in fields(described.params)}
    usual = given.protocol == next(iter(TRAINING))
    defaults = {name: it.default for name, it in signature(type(given)).parameters.items()}
    values = {name: plain(getattr(given, name)) for name in defaults}
    changed = {name for name, value in values.items() if not _same(value, defaults[name])}
    boosting = [field.name for field in fields(BoostingParams) if field.name in values]
    keys = {name: values[name] for name in boosting if usual or name in changed}
    if "objective" in own:
        keys["objective"] = objective
    else:
        keys["criterion"] = _CRITERIA[numeric]
    if "classes" in own:
        keys["classes"] = list(classes)
    hides = values["privacy"] != PUBLISHED
    keys |= {name: values[name] for name in KEY_FIELDS if name in changed or (described.grows_trees and not hides)}
    keys |= {"privacy": values["privacy"]} if hides else {}
    keys |= {"protocol": given.protocol, "alignment": given.alignment or alignment}
    keys |= _options(given.options, changed | ({*defaults} if usual else set()))
    with checked(JobTable):
        table: JobTable = JobTable.model_validate({name: value for name, value in keys.items() if value is not None})
    if (objective in REGRESSIONS) != numeric:
        other = "FederatedClassifier" if numeric else "FederatedRegressor"
        raise InvalidInput(f"objective = {objective!r} is one of {other}: use that, or leave objective out")
    return table


def changed(job: JobTable, **keys: Any) -> JobTable:
    """The job with other parameters. Raises InvalidInput: one is out of range."""
    with checked(JobTable):
        table: JobTable = JobTable.model_validate({**job.model_dump(exclude_unset=True), **keys})
        return table


def plain(value: Any) -> Any:
    """A number of numpy as Python's, which a job file has, and a tuple as a list."""
    if isinstance(value, tuple):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


def _options(options: Any, taken: set[str]) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInput(f"options = {options!r}: must be keys of [job] with their values, such as {{'seed': 1}}")
    for name in options or {}:
        if name in taken or name in _OWN:
            raise InvalidInput(f"options: {name!r} is a parameter itself: give it there alone")
    return {name: plain(value) for name, value in (options or {}).items()}


def _same(value: Any, default: Any) -> bool:
    """True of a value that is the default, NaN too."""
    if isinstance(value, float) and isinstance(default, float) and math.isnan(default):
        return math.isnan(value)
    return type(value) is type(default) and bool(value == default)
