from treetap.lab.api.client import Client as Client
from treetap.lab.api.estimators import FederatedClassifier as FederatedClassifier
from treetap.lab.api.estimators import FederatedRegressor as FederatedRegressor
from treetap.lab.api.experiments import audit as audit
from treetap.lab.api.experiments import experiment as experiment
from treetap.lab.api.loopback import federation as federation
from treetap.lab.api.models import connect as connect
from treetap.lab.api.models import load_model as load_model

__version__: str

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
