"""Checks of `sklearn.utils.estimator_checks.check_estimator` that an estimator does not pass, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping

#: Estimator → check → the reason why it is exempt. All checks of scikit-learn 1.9 pass.
EXEMPT: Mapping[str, Mapping[str, str]] = {"FederatedClassifier": {}, "FederatedRegressor": {}}
