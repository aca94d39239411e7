"""A look into a fitted estimator: Shapley values of predictions, and pictures of its training."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from treetap.lab.api.errors import InvalidInput, checked
from treetap.lab.api.explanations import by_shards, check_explained, of_sums
from treetap.lab.api.fit_results import FitResults
from treetap.lab.api.fitted import write_shards
from treetap.lab.api.party_tables import PartyTables
from treetap.lab.api.plots import plot_history, plot_importance
from treetap.lab.api.remote import RemoteFitted
from treetap.lab.experiment.joint_model import JointModel


class Insights(FitResults):
    """The part of an estimator that explains itself."""

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
        check_is_fitted(self)
        if isinstance(self._fitted, RemoteFitted):
            if not isinstance(X, str):
                raise InvalidInput("the federation has its own tables: X is their name")
            written = self._fitted.attributions(X, verbose=bool(self.verbose))
            return of_sums(written, self._fitted.label_holder)
        data = self._party_tables(X)
        check_explained(self._fitted.manifest["protocol"])
        tables = {party: self._own_table(records) for party, records in data.tables.items()}
        if not federated:
            forms = {party: own.keys.get("date_format") for party, own in tables.items()}
            with tempfile.TemporaryDirectory(prefix="treetap-model-") as folder:
                return by_shards(JointModel(write_shards(self._fitted.shards, Path(folder))), data, forms)
        if (running := self._fitted.loopback) is None:
            raise InvalidInput("federated: the federation of this model does not run here; leave it out")
        written = running.attributions(self._fitted.job, tables, verbose=bool(self.verbose))
        return of_sums(written, self._fitted.label_holder, data.rows)

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
        check_is_fitted(self)
        return plot_importance(self._fitted.importances, importance_type, max_num_features, ax)

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
        check_is_fitted(self)
        best = getattr(self, "best_iteration_", None)
        return plot_history(self._fitted.history, best, metric, ax)

    @abstractmethod
    def _party_tables(self, X: Any) -> PartyTables:
        """Records to predict, as a table of each party."""
