"""`FederatedClassifier` and `FederatedRegressor`: gradient boosting over the columns of several parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from treetap.arrays import Array
from treetap.lab.api.federated import FederatedEstimator
from treetap.lab.api.frames import InvalidInput, array_of, checked, probabilities_of
from treetap.tables.labels import class_name
from treetap.trees.job_params import BINARY

#: Kinds of numpy's types that a table can have as labels; classes of other types are numbered.
_KINDS = "biufU"


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """Classifier trained by a federation: boosted trees over columns of several parties, of which one has the labels.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Classes, in the type of the labels.
    label_holder_ : str
        Party that had the labels.
    columns_ : dict
        Columns of each party.
    constant_columns_ : dict
        Columns of each party that were left out, as all of their values are the same.
    encodings_ : dict
        How texts and dates of each party were encoded, as its own file would say it.
    n_iter_ : int
        Rounds whose trees predictions use.
    best_iteration_ : int
        Best round, from 0; with early stopping alone.
    feature_importances_ : array of shape (n_features,)
        Mean gain of the splits at each feature, adding up to 1, as XGBoost's.
    importances_ : data frame
        Gain, cover and number of splits by party and feature.
    history_ : data frame
        Measures after each round, from round 0.
    disclosure_ : data frame
        Bytes by sender, receiver and disclosure class, in the training and the last prediction.
    report_ : dict
        Seconds by phase, bytes, ciphertext arithmetic by party, measures and trees of the training.

    Examples
    --------
    >>> import treetap
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> parties = {"hospital": X.columns[:10], "laboratory": X.columns[10:]}
    >>> model = treetap.FederatedClassifier(parties, n_estimators=5, max_depth=3, simulate=True).fit(X, y)
    >>> round(model.score(X, y), 3)
    0.984
    """

    @checked()
    def predict(self, X: Any) -> Array:
        """Predict classes.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.

        Returns
        -------
        y_pred : array of shape (n_samples,)
            Classes, in the caller's own labels.

        Raises
        ------
        ValueError
            The records do not fit the model, or a party lacks some of them.
        NotFittedError
            Before `fit`.
        TreetapError
            The federation failed.
        """
        predicted = self._predicted_rows(X).column("prediction").to_pylist()
        if not hasattr(self, "classes_"):  # labels of a federation elsewhere, as its label holder has them
            return array_of(predicted)
        place = {class_name(value): number for number, value in enumerate(self._own_names)}
        return np.asarray(self.classes_[[place[class_name(value)] for value in predicted]])

    @checked()
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class; raises as `predict`.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.

        Returns
        -------
        proba : array of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        predicted = self._predicted_rows(X)
        return probabilities_of(predicted, self._own_names if hasattr(self, "classes_") else None)

    @checked()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Measure the accuracy.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.
        y : array of shape (n_samples,) or column name
            Labels that belong to the rows as in `fit`.
        sample_weight : array of shape (n_samples,), optional
            Weights of the records.

        Returns
        -------
        score : float
            Accuracy of `predict`.
        """
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
        # of Python's numbers Arrow takes 64 bits with a sign
        kind = pa.uint64() if self._named and self.classes_.dtype.kind == "u" else None
        return pa.array(targets.tolist() if self._named else np.searchsorted(self.classes_, targets), kind)


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """Regressor trained by a federation: boosted trees over columns of several parties, of which one has the targets.

    Attributes
    ----------
    label_holder_ : str
        Party that had the labels.
    columns_ : dict
        Columns of each party.
    constant_columns_ : dict
        Columns of each party that were left out, as all of their values are the same.
    encodings_ : dict
        How texts and dates of each party were encoded, as its own file would say it.
    n_iter_ : int
        Rounds whose trees predictions use.
    best_iteration_ : int
        Best round, from 0; with early stopping alone.
    feature_importances_ : array of shape (n_features,)
        Mean gain of the splits at each feature, adding up to 1, as XGBoost's.
    importances_ : data frame
        Gain, cover and number of splits by party and feature.
    history_ : data frame
        Measures after each round, from round 0.
    disclosure_ : data frame
        Bytes by sender, receiver and disclosure class, in the training and the last prediction.
    report_ : dict
        Seconds by phase, bytes, ciphertext arithmetic by party, measures and trees of the training.

    Examples
    --------
    >>> import treetap
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = treetap.FederatedRegressor(parties=2, n_estimators=5, max_depth=3, simulate=True).fit(X, y)
    >>> round(model.score(X, y), 3)
    0.552
    """

    _numeric = True
    _usual_objective = "reg:squarederror"

    @checked()
    def predict(self, X: Any) -> Array:
        """Predict targets.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.

        Returns
        -------
        y_pred : array of shape (n_samples,)
            Targets.

        Raises
        ------
        ValueError
            The records do not fit the model, or a party lacks some of them.
        NotFittedError
            Before `fit`.
        TreetapError
            The federation failed.
        """
        return np.asarray(self._predicted_rows(X).column("prediction").to_numpy())

    @checked()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Measure the coefficient of determination.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features), or a table of each party
            Records, as in `fit`.
        y : array of shape (n_samples,) or column name
            Targets that belong to the rows as in `fit`.
        sample_weight : array of shape (n_samples,), optional
            Weights of the records.

        Returns
        -------
        score : float
            R² of `predict`.
        """
        return float(super().score(X, *self._scored(X, y, sample_weight)))

    def _labels(self, targets: Array) -> tuple[pa.Array, str]:
        """Take the targets as they are."""
        return self._column(targets), self.objective or self._usual_objective

    def _column(self, targets: Array) -> pa.Array:
        """The targets as numbers."""
        return pa.array(np.asarray(targets, dtype=np.float64))
