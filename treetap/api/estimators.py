"""`FederatedClassifier` and `FederatedRegressor`: gradient boosting over the columns of several parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from treetap.api.errors import InvalidInput, checked
from treetap.api.federated import Array, FederatedEstimator
from treetap.api.frames import probabilities_of
from treetap.tables.labels import class_name
from treetap.trees.job_params import BINARY

#: Kinds of numpy's types that a table can have as labels; classes of other types are numbered.
_KINDS = "biufU"


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """Boosted trees over columns of several parties, of which one has the labels; classes of any type.

    Parameters: see `treetap.api.parameters.Parameters`. After `fit`: `classes_`, `label_holder_`, `columns_` and
    `constant_columns_` by party, `n_iter_`, `feature_importances_`, `importances_`, `disclosure_`, `report_`.
    """

    @checked()
    def predict(self, X: Any) -> Array:
        """The classes (n,) of records `X` (n, d), in the caller's own labels.

        Raises:
            ValueError: the records do not fit the model, or a party lacks some of them.
            NotFittedError: before `fit`.
            TreetapError: the federation failed.
        """
        predicted = self._predicted_rows(X).column("prediction").to_pylist()
        if not hasattr(self, "classes_"):  # labels of a federation elsewhere, as its label holder has them
            return np.array(predicted)
        place = {class_name(value): number for number, value in enumerate(self._own_names)}
        return np.asarray(self.classes_[[place[class_name(value)] for value in predicted]])

    @checked()
    def predict_proba(self, X: Any) -> Array:
        """The probabilities (n, classes) of records `X` (n, d), in the order of `classes_`; raises as `predict`."""
        predicted = self._predicted_rows(X)
        return probabilities_of(predicted, self._own_names if hasattr(self, "classes_") else None)

    @checked()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy of `predict`, with labels and weights that belong to the rows as in `fit`."""
        return float(super().score(X, *self._scored(X, y, sample_weight)))

    def _labels(self, targets: Array) -> tuple[pa.Array, str]:
        """Number the classes; raises InvalidInput for one class, or more than the objective takes."""
        check_classification_targets(targets)
        self.classes_ = np.unique(targets)
        if len(self.classes_) < 2:
            raise InvalidInput(f"y has one class only, {self.classes_.tolist()[0]!r}: there is nothing to learn")
        self._named = targets.dtype.kind in _KINDS or all(isinstance(label, str) for label in self.classes_)
        self._own_names = self.classes_.tolist() if self._named else list(range(len(self.classes_)))
        usual = "binary:logistic" if len(self.classes_) == 2 else "multi:softprob"
        if self.objective in BINARY and len(self.classes_) > 2:
            raise InvalidInput(f"y has {len(self.classes_)} classes, and objective = {self.objective!r} is for two")
        return self._column(targets), self.objective or usual

    def _column(self, targets: Array) -> pa.Array:
        """The classes by their own names, or by numbers; raises InvalidInput for one that the training has not."""
        if strangers := set(targets.tolist()) - set(self.classes_.tolist()):
            raise InvalidInput(f"y has class {next(iter(strangers))!r}, which no record of the training has")
        return pa.array(targets.tolist() if self._named else np.searchsorted(self.classes_, targets))


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """Boosted trees over columns of several parties, of which one has the targets, which are numbers.

    Parameters: see `treetap.api.parameters.Parameters`. After `fit`: `label_holder_`, `columns_` and
    `constant_columns_` by party, `n_iter_`, `feature_importances_`, `importances_`, `disclosure_`, `report_`.
    """

    _numeric = True
    _usual_objective = "reg:squarederror"

    @checked()
    def predict(self, X: Any) -> Array:
        """The targets (n,) of records `X` (n, d); raises as `FederatedClassifier.predict`."""
        return np.asarray(self._predicted_rows(X).column("prediction").to_numpy())

    @checked()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of `predict`, with targets and weights that belong to the rows as in `fit`."""
        return float(super().score(X, *self._scored(X, y, sample_weight)))

    def _labels(self, targets: Array) -> tuple[pa.Array, str]:
        """Take the targets as they are."""
        return self._column(targets), self.objective or self._usual_objective

    def _column(self, targets: Array) -> pa.Array:
        """The targets as numbers."""
        return pa.array(np.asarray(targets, dtype=np.float64))
