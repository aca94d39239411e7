"""The registry of a party's protocols: one line per protocol, which names the package of its roles.

A package has `label_holder.LabelHolder` and `feature_party.FeatureParty`; where all parties of a training have the same
role, `party.Party`; of a prediction, the classes that its protocol names as `roles`. It is imported when a job needs
it: it may depend on an optional library, and raises an error that names the library if it is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treetap.party.config import DealerConfig, PartyConfig
from treetap.party.runtime.context import Role, StepContext
from treetap.protocols.exclusions import Feature
from treetap.protocols.registry import prediction, prediction_name, training, training_name
from treetap.wire.v2 import setup_pb2

if TYPE_CHECKING:
    from treetap.party.prediction.opened_model import PredictionJob


LABEL_HOLDER, FEATURE_PARTY, ONE_ROLE = "label_holder.LabelHolder", "feature_party.FeatureParty", "party.Party"
#: The dealer of shared sums, of whatever protocol.
DEALER = "treetap.party.dealer", "dealer.Dealer"
#: Name of a training protocol → the package of its roles.
TRAINING: Mapping[str, str] = {
    "boosting": "treetap.party.boosting",
    "forest": "treetap.party.forest",
    "pivodl": "treetap.party.pivodl",
    "splitnn": "treetap.party.splitnn",
}
#: Name of a prediction protocol → the package of its roles.
PREDICTION: Mapping[str, str] = {
    "interactive": "treetap.party.interactive",
    "eini": "treetap.party.eini",
    "eini-lattice": "treetap.party.eini",
    "masked": "treetap.party.masked",
    "splitnn": "treetap.party.splitnn",
}


def role_for_training(config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> Role:
    """The role of this process in a training job that `check_spec` has passed."""
    name = training_name(spec)
    if isinstance(config, DealerConfig):
        dealer: Role = _role(*DEALER)(context, spec)
        return dealer
    own = LABEL_HOLDER if spec.aggregator == config.name else FEATURE_PARTY
    role: Role = _role(TRAINING[name], ONE_ROLE if training(name).one_role else own)(config, context, spec)
    return role


def roles_for_training(name: str) -> Mapping[str, type]:
    """Actor → the class of its role; where all parties have the same, there is one."""
    package = TRAINING[name]
    if training(name).one_role:
        return {"party": _role(package, ONE_ROLE)}
    dealing = {"dealer": _role(*DEALER)} if Feature.SHARED in training(name).capabilities else {}
    return {"label holder": _role(package, LABEL_HOLDER), "feature party": _role(package, FEATURE_PARTY), **dealing}


def role_for_prediction(job: PredictionJob) -> Role:
    """The role of this party in a prediction that `check_prediction` has passed."""
    name = prediction_name(job.opening)
    of_recipient, of_others = prediction(name).roles
    own = of_recipient if job.opening.recipient == job.config.name else of_others
    role: Role = _role(PREDICTION[name], own)(job)
    return role


def roles_for_prediction(name: str) -> Mapping[str, type]:
    """Actor → the class of its role: the recipient's, then the others'."""
    of_recipient, of_others = (_role(PREDICTION[name], role) for role in prediction(name).roles)
    labelled = of_recipient.__name__ == "LabelHolder"
    actors = ("label holder", "feature party") if labelled else ("recipient", "other party")
    return dict(zip(actors, (of_recipient, of_others), strict=True))


def _role(package: str, role: str) -> Any:
    """The class of a role, by its module and name below the package."""
    module, _, name = role.partition(".")
    return getattr(importlib.import_module(f"{package}.{module}"), name)
