from treetap.api.client import Client as Client
from treetap.api.estimators import FederatedClassifier as FederatedClassifier
from treetap.api.estimators import FederatedRegressor as FederatedRegressor
from treetap.api.experiments import audit as audit
from treetap.api.experiments import experiment as experiment
from treetap.api.loopback import federation as federation
from treetap.api.models import load_model as load_model
from treetap.api.remote import connect as connect

__all__ = [
    "Client",
    "FederatedClassifier",
    "FederatedRegressor",
    "audit",
    "connect",
    "experiment",
    "federation",
    "load_model",
]
