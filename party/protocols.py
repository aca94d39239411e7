"""Which role a party plays in a job: the one place that knows all protocols."""

from __future__ import annotations

from collections.abc import Callable

from party.attributions.feature_party import AttributionMasker
from party.attributions.label_holder import AttributionSender
from party.boosting.feature_party import FeatureParty
from party.boosting.label_holder import LabelHolder
from party.config import PartyConfig
from party.eini.feature_party import EntryMasker
from party.eini.label_holder import EntrySender
from party.forest.feature_party import ForestFeatureParty
from party.forest.label_holder import ForestLabelHolder
from party.interactive.roles import Asker, Router
from party.runtime.context import Role, Tools
from party.runtime.job_store import Store
from party.serving.registry import Desk
from treetap.protocols.job_spec import check_prediction, check_spec
from treetap.wire.v1 import interactive_pb2, setup_pb2

Making = Callable[[PartyConfig, Tools, setup_pb2.JobSpec], Role]
Asking = Callable[[PartyConfig, Store, Tools, interactive_pb2.OpenModel, Desk], Role]
Answering = Callable[[PartyConfig, Store, Tools, interactive_pb2.OpenModel], Role]
#: Protocol → roles of the label holder and of a feature party.
TRAINING: dict[str, tuple[Making, Making]] = {
    "boosting": (LabelHolder, FeatureParty),
    "forest": (ForestLabelHolder, ForestFeatureParty),
}


def role_for_training(config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> Role:
    """The role of this party in a training job; `ConfigError` where the job cannot be done."""
    check_spec(spec)
    holder, feature_party = TRAINING[spec.protocol]
    return (holder if spec.label_holder == config.name else feature_party)(config, tools, spec)


def role_for_prediction(
    config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel, desk: Desk
) -> Role:
    """The role of this party in a prediction; `ConfigError` where it cannot be done."""
    check_prediction(opening)
    if opening.protocol == "eini":
        config.law.check_key(config.name, opening.key_bits)
    sender, masker = _prediction_roles(opening)
    if opening.label_holder == config.name:
        return sender(config, store, tools, opening, desk)
    return masker(config, store, tools, opening)


def _prediction_roles(opening: interactive_pb2.OpenModel) -> tuple[Asking, Answering]:
    if opening.protocol == "eini":
        return (AttributionSender, AttributionMasker) if opening.attributions else (EntrySender, EntryMasker)
    if opening.protocol == "eini-lattice":
        # imported where it is wanted: its library is an extra, and says so where it is not installed
        from party.lattice.feature_party import ColumnMasker
        from party.lattice.label_holder import ColumnSender

        return ColumnSender, ColumnMasker
    return Asker, Router
