"""A look into a fitted estimator: Shapley values of predictions, and pictures of its training.

The results of a fit: measures, importances, and an account of what was sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from treetap.arrays import Array
from treetap.commands.jobs.progress_view import backends, rounds
from treetap.lab.api.caller_records import CallerRecords
from treetap.lab.api.explanations import by_shards, check_explained, of_sums, plot_history, plot_importance
from treetap.lab.api.fitted import results, written
from treetap.lab.api.frames import InvalidInput, checked, frame_of, importances_of
from treetap.lab.api.models import RemoteFitted
from treetap.lab.api.party_tables import PartyTables
from treetap.lab.experiment.joint_model import JointModel


class Insights(CallerRecords):
    """The part of an estimator that says what its training has brought, and explains itself."""

    _fitted: Any
    columns_: dict[str, list[str]]
    label_holder_: str

    @property
    def feature_importances_(self) -> Array:
        """Mean gain of the splits at each feature (d,), adding up to 1, as XGBoost's; 0 of a feature without splits."""
        rows = self._model.importances  # refused by a federation elsewhere, before columns that it has not
        gained = dict.fromkeys(((party, name) for party, own in self.columns_.items() for name in own), (0.0, 0))
        for row in rows:
            place = row.party, self._model.sources[row.party][row.feature]
            total, count = gained[place]
            gained[place] = total + row.size, count + row.weight
        # in the order of the caller's columns, where each has one owner
        owners, order = {name: party for party, name in gained}, list(gained)
        if len(owners) == len(self._names_in):
            order = [(owners[name], name) for name in self._names_in]
        means = np.array([gained[place][0] / max(gained[place][1], 1) for place in order])
        return means / means.sum() if means.sum() > 0 else means

    @property
    def importances_(self) -> Any:
        """Gain, cover and number of splits by party and feature, as a data frame."""
        return importances_of(self._model.importances)

    @property
    def history_(self) -> Any:
        """Metrics after each round, from round 0, as a data frame."""
        return frame_of([{"round": number, **row} for number, row in enumerate(self._model.history)], ("round",))

    @property
    def best_iteration_(self) -> int:
        """The best round, from 0, the last one that predictions use; an AttributeError without early stopping."""
        if not self._model.stops or (best := self._model.best_round) is None:
            raise AttributeError("best_iteration_: there is one with early_stopping_rounds alone")
        return int(best)

    def evals_result(self) -> dict[str, dict[str, list[float | None]]]:
        """The measures of each eval set after each round, as XGBoost has them.

        Returns
        -------
        results : dict
            "validation_0" and so on, in the order of `eval_set` → measure → a value for each round, from round 0.
        """
        return results(self._model.history)

    @property
    def disclosure_(self) -> Any:
        """Bytes by sender, receiver and disclosure class, in the training and the last prediction."""
        return frame_of(self._model.sent(), ("job", "from", "to", "step", "class", "messages", "bytes"))

    @property
    def report_(self) -> dict[str, Any]:
        """The training's cost and outcome: seconds by phase, bytes, ciphertext arithmetic by party, metrics, trees."""
        if self._model.simulated:
            return {"metrics": self._model.metrics, "trees": self._model.manifest["trees"], "federated": False}
        status = self._model.training
        return {
            "job": status.job,
            "seconds": {row.name: row.amount for row in status.phases},
            "bytes": sum(row["bytes"] for row in self._model.sent() if row["job"] == "train"),
            "arithmetic": backends(status),
            "metrics": self._model.metrics,
            "trees": rounds(status),
            "federated": self._model.federated,
        }

    @property
    def _model(self) -> Any:
        """What a fit has left. Raises NotFittedError: there was none."""
        check_is_fitted(self)
        return self._fitted

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    @checked()
    def explain(self, X: Any, *, federated: bool = False) -> Any:
        """Shapley values of the raw scores, as a `shap.Explanation`: `shap.plots.beeswarm(model.explain(X))`.

        Path-dependent TreeSHAP (Lundberg et al. 2020, Algorithm 1), exact: of a model that fits in XGBoost the same as
        its `pred_contribs`. In each row `values` (n, features), or (n, features, classes), and `base_values` add up to
        the score. Features are called `party.column`.

        Where the shards of all parties are here, as after a training on this machine, they are computed here without a
        message. By a federation, they are masked sums of an encrypted prediction (`treetap predict --attributions`):
        then a feature party is one player, and its policy must emit EXPLANATION to the label holder.

        Parameters
        ----------
        X : as of `predict`
            Records; of a federation elsewhere the name of the parties' tables, in whose order of ids the rows come.
        federated : bool, default=False
            Have the running federation compute them.

        Returns
        -------
        explanation : shap.Explanation
            Values of shape (n_samples, features), or (n_samples, features, n_classes).

        Raises
        ------
        ValueError
            The records do not fit the model, a party lacks some of them, or no federation runs.
        TreetapError
            A policy forbids it, or the federation failed.
        ImportError
            shap is missing, of the extra `explain`.
        """
        if isinstance(self._model, RemoteFitted):
            if not isinstance(X, str):
                raise InvalidInput("the federation has its own tables: X is their name")
            told = self._model.predict(X, "eini", verbose=bool(self.verbose), attributed=True)
            return of_sums(told, self._model.label_holder)
        data = self._party_tables(X)
        check_explained(self._model.manifest["protocol"])
        tables = self._own_tables(data)
        if not federated:
            with written(self._model.shards) as folders:
                return by_shards(JointModel(folders), tables, data.rows)
        if (running := self._model.loopback) is None:
            raise InvalidInput("federated: the federation of this model does not run here; leave it out")
        told, _ = running.predict(self._model.job, tables, "eini", verbose=bool(self.verbose), attributed=True)
        return of_sums(told, self._model.label_holder, data.rows)

    def plot_importance(
        self, *, importance_type: str = "gain", max_num_features: int | None = 20, ax: Any = None
    ) -> Any:
        """Draw the importance of features, a colour for each party.

        Parameters
        ----------
        importance_type : {"gain", "total_gain", "weight", "cover", "total_cover"}, default="gain"
            Mean or total loss change of a feature's splits, their number, or their cover, as of
            `xgboost.plot_importance`.
        max_num_features : int, default=20
            The most important ones that are drawn; None: all.
        ax : matplotlib Axes, default=None
            Axes to draw on; None: new ones.

        Returns
        -------
        ax : matplotlib Axes
            The picture.

        Raises
        ------
        ValueError
            There is no such type, or the model is with parties elsewhere.
        ImportError
            matplotlib is missing, of the extra `plot`.
        """
        return plot_importance(self._model.importances, importance_type, max_num_features, ax)

    def plot_history(self, *, metric: str | None = None, ax: Any = None) -> Any:
        """Draw a metric after each round, of the records of the training and of those that are set aside.

        Parameters
        ----------
        metric : str, default=None
            As "logloss" or "auc"; None: the first of the training.
        ax : matplotlib Axes, default=None
            Axes to draw on; None: new ones.

        Returns
        -------
        ax : matplotlib Axes
            The picture.

        Raises
        ------
        ValueError
            The training has no such metric.
        ImportError
            matplotlib is missing, of the extra `plot`.
        """
        best = getattr(self, "best_iteration_", None)
        return plot_history(self._model.history, best, metric, ax)

    def _party_tables(self, X: Any) -> PartyTables:
        """Records to predict, as a table of each party."""
        return self._tables_like(X, self.columns_, self.label_holder_)
