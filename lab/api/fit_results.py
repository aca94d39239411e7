"""The results of a fit: measures, importances, and an account of what was sent."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from treetap.commands.jobs.progress_view import backends, rounds
from treetap.lab.api.caller_records import Array, CallerRecords
from treetap.lab.api.eval_sets import results
from treetap.lab.api.frames import frame_of, importances_of


class FitResults(CallerRecords):
    """The part of an estimator that says what its training has brought."""

    _fitted: Any
    columns_: dict[str, list[str]]

    @property
    def feature_importances_(self) -> Array:
        """Mean gain of the splits at each feature (d,), adding up to 1, as XGBoost's; 0 of a feature without splits."""
        check_is_fitted(self)
        rows = self._fitted.importances  # refused by a federation elsewhere, before columns that it has not
        gained = dict.fromkeys(((party, name) for party, own in self.columns_.items() for name in own), (0.0, 0))
        for row in rows:
            place = row.party, self._fitted.sources[row.party][row.feature]
            total, count = gained[place]
            gained[place] = total + row.size, count + row.weight
        order = self._feature_order
        means = np.array([gained[place][0] / max(gained[place][1], 1) for place in order])
        return means / means.sum() if means.sum() > 0 else means

    @property
    def importances_(self) -> Any:
        """Gain, cover and number of splits by party and feature, as a data frame."""
        check_is_fitted(self)
        return importances_of(self._fitted.importances)

    @property
    def history_(self) -> Any:
        """Metrics after each round, from round 0, as a data frame."""
        check_is_fitted(self)
        return frame_of([{"round": number, **row} for number, row in enumerate(self._fitted.history)], ("round",))

    @property
    def best_iteration_(self) -> int:
        """The best round, from 0, the last one that predictions use; an AttributeError without early stopping."""
        check_is_fitted(self)
        if not self._fitted.stops or (best := self._fitted.best_round) is None:
            raise AttributeError("best_iteration_: there is one with early_stopping_rounds alone")
        return int(best)

    def evals_result(self) -> dict[str, dict[str, list[float | None]]]:
        """The measures of each eval set after each round, as XGBoost has them.

        Returns
        -------
        results : dict
            "validation_0" and so on, in the order of `eval_set` → measure → a value for each round, from round 0.
        """
        check_is_fitted(self)
        return results(self._fitted.history)

    @property
    def disclosure_(self) -> Any:
        """Bytes by sender, receiver and disclosure class, in the training and the last prediction."""
        check_is_fitted(self)
        return frame_of(self._fitted.sent(), ("job", "from", "to", "step", "class", "messages", "bytes"))

    @property
    def report_(self) -> dict[str, Any]:
        """The training's cost and outcome: seconds by phase, bytes, ciphertext arithmetic by party, metrics, trees."""
        check_is_fitted(self)
        if self._fitted.simulated:
            return {"metrics": self._fitted.metrics, "trees": self._fitted.trees, "federated": False}
        status = self._fitted.training
        return {
            "job": status.job,
            "seconds": {row.name: row.amount for row in status.phases},
            "bytes": sum(row["bytes"] for row in self._fitted.sent() if row["job"] == "train"),
            "arithmetic": backends(status),
            "metrics": self._fitted.metrics,
            "trees": rounds(status),
            "federated": self._fitted.federated,
        }

    @property
    def _feature_order(self) -> list[tuple[str, str]]:
        """Party and column of each feature, in the order of the caller's columns."""
        owners = {name: party for party, own in self.columns_.items() for name in own}
        if len(owners) == len(self._names_in):
            return [(owners[name], name) for name in self._names_in]
        return [(party, name) for party, own in self.columns_.items() for name in own]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")
