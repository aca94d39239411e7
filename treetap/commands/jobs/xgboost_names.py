"""XGBoost's names that a `[job]` table does not have: the name to write instead, or the reason why there is none."""

from __future__ import annotations

from typing import Any

#: Other names of parameters → what to write.
ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
    "num_round": "n_estimators",
    "num_boost_round": "n_estimators",
    "random_state": "seed",
    "xgb_model": "base_model",
}
_WORKERS = "processes of each party are `workers` in its own file, or in [[party]] of an experiment"
_PROCESSORS = "sums of ciphertexts are computed by processors; `workers` and `arithmetic` in each party's file say how"
_DART = "no tree is left out of scores (DART), as all keep the weights with which they were grown"
_HIST = "there is one way to grow trees, that of tree_method = 'hist' on each party's own bins, which max_bin bounds"
_COLUMNS = "each party draws its columns once for a tree, by colsample_bytree"
_TYPES = "which columns are numbers, dates or categories follows from each party's table and its `encode`"
_RANKING = "ranking is not offered"
_SURVIVAL = "survival analysis is not offered"
_STORAGE = "is about the memory of XGBoost's own histograms"

#: What other files and tables have → where.
ELSEWHERE = {
    **dict.fromkeys(("n_jobs", "nthread"), _WORKERS),
    **dict.fromkeys(("enable_categorical", "feature_types"), _TYPES),
    "monotone_constraints": "each party names its own columns in its table's settings; in an experiment, in [data]",
    "sample_weight": "the label holder's table names the column, as `weight`; in an experiment, [data]",
}
#: Parameters that are not offered → why.
NOT_OFFERED = {
    **dict.fromkeys(("device", "gpu_id", "predictor", "use_rmm"), _PROCESSORS),
    **dict.fromkeys(("rate_drop", "skip_drop", "one_drop", "sample_type", "normalize_type"), _DART),
    **dict.fromkeys(("tree_method", "updater", "sketch_eps"), _HIST),
    **dict.fromkeys(("colsample_bylevel", "colsample_bynode"), _COLUMNS),
    **dict.fromkeys(("max_cached_hist_node", "extmem_single_page"), _STORAGE),
    **dict.fromkeys(("process_type", "refresh_leaf"), "trees that were published are not changed"),
    **dict.fromkeys(("feature_selector", "top_k"), "linear boosters are not offered"),
    **dict.fromkeys(("lambdarank_pair_method", "lambdarank_num_pair_per_sample", "lambdarank_normalization"), _RANKING),
    **dict.fromkeys(("lambdarank_score_normalization", "lambdarank_unbiased", "lambdarank_bias_norm"), _RANKING),
    **dict.fromkeys(("ndcg_exp_gain",), _RANKING),
    **dict.fromkeys(("aft_loss_distribution", "aft_loss_distribution_scale"), _SURVIVAL),
    **dict.fromkeys(("tweedie_variance_power", "huber_slope", "quantile_alpha"), "its objective is not offered"),
    "booster": "trees are what is grown, as with booster = 'gbtree'",
    "callbacks": "a job is a file, and calls nothing",
    "disable_default_eval_metric": "metrics follow from the objective",
    "eval_metric": "metrics follow from the objective: the best round has the least log loss, or RMSE of numbers",
    "feature_weights": "columns of a party are drawn with equal chances",
    "importance_type": "reports have `weight`, `gain` and `cover`",
    "interaction_constraints": "the label holder, who chooses splits, does not know at which columns others split",
    "num_class": "the classes are those of the label holder's column",
    "num_parallel_tree": "a round grows one tree for each output; random ones have a protocol of their own",
    "sampling_method": "records are drawn with equal chances: draws by gradients would tell other parties of labels",
    "seed_per_iteration": "the draws of each tree follow from `seed` and its number",
    "use_label_encoder": "classes may have any names",
    "validate_parameters": "parameters are always checked",
    "verbosity": "what a process logs is its option --log-level",
}

_UNBOUNDED = "its gradients have no bound, which sums of fixed-point numbers under encryption need"
_REFITTED = "its leaves are quantiles of residuals, which sums of gradients do not give"
#: Values that are not offered → why, or what to write.
_OBJECTIVES = {
    "reg:linear": "write 'reg:squarederror', its name since XGBoost 0.83",
    "reg:logistic": "write 'binary:logistic' for two classes; labels between 0 and 1 are not offered",
    "binary:logitraw": "write 'binary:logistic': predictions have its margin too, in the column `score`",
    "binary:hinge": "write 'binary:logistic': predictions name the class too",
    "multi:softmax": "write 'multi:softprob': predictions name the most probable class too",
    **dict.fromkeys(("reg:squaredlogerror", "count:poisson", "reg:gamma", "reg:tweedie"), _UNBOUNDED),
    **dict.fromkeys(("reg:absoluteerror", "reg:quantileerror"), _REFITTED),
    "reg:pseudohubererror": "squared error is the one loss of numbers",
    **dict.fromkeys(("survival:cox", "survival:aft"), _SURVIVAL),
    **dict.fromkeys(("rank:ndcg", "rank:map", "rank:pairwise"), _RANKING),
}


def unknown_parameter(name: str) -> str | None:
    """Sentence about a parameter of XGBoost that a `[job]` table does not have; None for any other name."""
    if name in ALIASES:
        return f"write {ALIASES[name]}"
    if name in ELSEWHERE:
        return f"it has another place: {ELSEWHERE[name]}"
    return f"of XGBoost, not offered: {NOT_OFFERED[name]}" if name in NOT_OFFERED else None


def unknown_value(name: str, value: Any) -> str | None:
    """The same of a value that a parameter cannot have here."""
    if name == "objective" and value in _OBJECTIVES:
        return f"{value!r} is of XGBoost, not offered: {_OBJECTIVES[value]}"
    if name == "max_depth" and value == 0 and isinstance(value, int):
        return (
            'max_depth = 0 is XGBoost\'s "no limit", not offered: numbers of nodes are those of a heap, which it bounds'
        )
    return None
