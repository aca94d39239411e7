from treetap.api.estimators import FederatedClassifier as FederatedClassifier
from treetap.api.estimators import FederatedRegressor as FederatedRegressor
from treetap.api.federations import federation as federation

__all__ = ["FederatedClassifier", "FederatedRegressor", "federation"]
