"""Checks of `sklearn.utils.estimator_checks.check_estimator` that an estimator does not pass, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping

_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": "bins are quantiles of records, whatever their weights, so that a "
    "record of weight 2 is not two records, nor one of weight 0 none"
}
#: Estimator → check of scikit-learn 1.9 → the reason why it is exempt. All others pass.
EXEMPT: Mapping[str, Mapping[str, str]] = {"FederatedClassifier": _WEIGHTS, "FederatedRegressor": _WEIGHTS}
