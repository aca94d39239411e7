"""The protocols: one line for each, which names the module that describes it.

A protocol is one field of the oneofs of protocols.proto, and one name in `protos/`, `coordinator/`, `party/`, `tests/`;
`treetap.party.protocols` names its roles and `treetap.coordinator.protocols` its sequence of phases.
docs/architecture.md lists the places.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

from treetap.errors import ConfigError, did_you_mean
from treetap.protocols.exclusions import Feature

if TYPE_CHECKING:  # the command line reads names and summaries alone, and starts faster without these
    import numpy as np
    import numpy.typing as npt

    from treetap.protocols.messages import MessageRow, OpensSums
    from treetap.protocols.own_priors import OwnPriors
    from treetap.tables.reading import Table
    from treetap.trees.centralised import CentralTrees
    from treetap.trees.job_params import JobParams
    from treetap.wire.v2 import prediction_pb2, protocols_pb2, setup_pb2

Floats: TypeAlias = "npt.NDArray[np.float64]"
#: Tables of the same records by party, the label holder's first.
Tables: TypeAlias = "Sequence[tuple[str, Table]]"
#: Name of a protocol that trains → its module.
TRAINING: Mapping[str, str] = {
    "boosting": "treetap.protocols.boosting",
    "forest": "treetap.protocols.forest",
    "pivodl": "treetap.protocols.pivodl",
    "splitnn": "treetap.protocols.splitnn",
}
#: Name of a protocol that predicts → its module; an option without a protocol is one of the first's.
PREDICTION: Mapping[str, str] = {
    "interactive": "treetap.protocols.interactive",
    "eini": "treetap.protocols.eini",
    "eini-lattice": "treetap.protocols.lattice",
    "masked": "treetap.protocols.masked",
    "splitnn": "treetap.protocols.splitnn_prediction",
}


@dataclass(frozen=True)
class Needs:
    """The needs of a protocol beside every installation: a module, of treetap's `extra`, and compiled kernels."""

    library: str = ""
    extra: str = ""
    kernels: bool = False


class Rounds(Protocol):
    """The scores of a training on the joined table, tree by tree, and the metrics of its rounds.

    Attributes:
        history: the metrics after each round.
    """

    history: list[dict[str, float]]

    def summary(self) -> dict[str, Any]:
        """The part of the label holder's manifest beside trees and columns."""
        ...


@dataclass(frozen=True)
class Centrally:
    """The training on the joined table that gives the same model.

    Attributes:
        predict: raw scores (n, outputs) of other records, and their probabilities or values: (tables to learn from,
            tables to predict, labels (N,), classes, parameters); with one role also `ownership`, the records that each
            party labels, otherwise also what defences change: what is withheld from the other parties or, of networks,
            `treetap.neural.defences.LabelDefences`; of protocols whose records may have weights also `weights`
            (N,).
        train: the model, with all parties' split tables: (tables, labels (N,), classes, parameters, what is withheld);
            also `rounds`, which get every tree. None of a protocol with one role.
        rounds: the scores and metrics of such a training, to begin with: (parameters, classes, labels (N,), their
            weights or None, labels of further records and their weights, or None); the further records are behind the
            others in the tables to train on.
    """

    predict: Callable[..., tuple[Floats, Floats]]
    train: Callable[..., CentralTrees] | None = None
    rounds: Callable[..., Rounds] | None = None


@dataclass(frozen=True)
class TrainingProtocol:
    """A protocol that trains.

    Attributes:
        field: its field in the oneofs of protocols.proto.
        params: its parameters.
        sends: contents that its roles send beside those of every training.
        opens_sums: the members that open sums over others' columns; those others' policies must name each of them.
        centrally: the same training on the joined table.
        grows_trees: its parties split at numbers and at categories and sum ciphertexts; else its models are networks,
            and a job has no key and no bins.
        sequential: each tree fits the residuals of those before it, so later ones reveal less of the label.
        drawn: an instance space holds, of the node's records, those alone that its tree draws.
        predicts: the protocols that predict by its models; the first is the default.
        most_equals: the most parties of a job in which all have one role, the class `Party` of the module `party` in
            the package of its roles; the fewest are two. Several have labels, and a party takes part only if there are
            as many as its policy asks for. A job lists them under `parties`; the first is the aggregator. 0: a label
            holder and feature parties.
        permissions: the switches of a party's policy that a job needs.
        capabilities: the features that its jobs can have, of those with a row for other protocols in
            `treetap.protocols.exclusions`.
        needs: libraries and kernels of its parties.
        own_priors: the priors by the label holder's own columns that further stages of `label_dp` need: (table, number
            of classes, label holder, parameters); of a protocol with that defence.
        privacy: what the noise of a job with these parameters covers, as sentences; none of a protocol without noise.
    """

    field: str
    params: type[JobParams]
    sends: Sequence[MessageRow]
    opens_sums: OpensSums
    centrally: Centrally
    grows_trees: bool = True
    sequential: bool = False
    drawn: bool = False
    predicts: Sequence[str] = ("interactive", "eini", "eini-lattice")
    most_equals: int = 0
    permissions: Callable[[setup_pb2.JobSpec], Sequence[str]] = lambda _: ()
    capabilities: frozenset[Feature] = frozenset()
    needs: Needs = Needs()
    own_priors: Callable[[Table, int, str, Any], OwnPriors] | None = None
    privacy: Callable[[Any], Sequence[str]] = lambda _: ()

    @property
    def one_role(self) -> bool:
        """True if every party has the same role."""
        return self.most_equals > 0

    @property
    def units(self) -> tuple[str, str]:
        """The words for a round and for its stages, in progress and reports."""
        return ("tree", "depth") if self.grows_trees else ("epoch", "batch")


@dataclass(frozen=True)
class Options:
    """The options that a protocol of predictions has beside those of every prediction: none, or those of a subclass.

    Attributes:
        choices: of an option that is one of some texts, these; the first is the default.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def completed(self, _spec: setup_pb2.JobSpec) -> Self:
        """These options, and for those not given the ones of the training job or the default."""
        return replace(self, **{name: getattr(self, name) or texts[0] for name, texts in self.choices.items()})

    def faults(self) -> list[str]:
        """The options, once completed, that no party could follow."""
        given = {name: getattr(self, name) for name in self.choices}
        return [
            f"{name} = {text!r}: must be one of {', '.join(self.choices[name])}"
            for name, text in given.items()
            if text not in self.choices[name]
        ]


@dataclass(frozen=True)
class PredictionProtocol:
    """A protocol that predicts.

    Attributes:
        field: its field in the oneofs of protocols.proto.
        summary: its distinguishing property, for the choice of a protocol.
        options: its own options.
        block: records per block where the request names none.
        sends: contents that its roles send beside those of every prediction.
        opens_sums: as of a training; the members that open scores, or receive directions.
        sends_attributions: contents that they send besides for attributions.
        sends_served: contents that they send besides of a served model.
        capabilities: as of a training: the features of predictions that it has, beside its options.
        needs: as of a training.
        roles: the classes of the recipient and of the other parties, below the package of its roles.
        of_trees: its models are trees.
    """

    field: str
    summary: str
    options: type[Options]
    block: int
    sends: Sequence[MessageRow]
    opens_sums: OpensSums
    sends_attributions: Sequence[MessageRow] = ()
    sends_served: Sequence[MessageRow] = ()
    capabilities: frozenset[Feature] = frozenset()
    needs: Needs = Needs()
    roles: tuple[str, str] = ("label_holder.LabelHolder", "feature_party.FeatureParty")
    of_trees: bool = True

    @property
    def features(self) -> frozenset[Feature]:
        """Its capabilities, and its options as features."""
        return self.capabilities | {Feature(option.name) for option in fields(self.options)}


@cache
def training(name: str) -> TrainingProtocol:
    """The protocol of that name; `ConfigError` where none trains under it."""
    if name not in TRAINING:
        raise ConfigError(f"protocol = {name!r}: must be one of {', '.join(TRAINING)}")
    described: TrainingProtocol = importlib.import_module(TRAINING[name]).PROTOCOL
    return described


@cache
def prediction(name: str) -> PredictionProtocol:
    """The protocol of that name; `ConfigError` where none predicts under it."""
    if name not in PREDICTION:
        raise ConfigError(
            f"protocol = {name!r}: must be one of {', '.join(PREDICTION)}{did_you_mean(name, PREDICTION)}"
        )
    described: PredictionProtocol = importlib.import_module(PREDICTION[name]).PROTOCOL
    return described


def name_in(parameters: protocols_pb2.Parameters, registered: Mapping[str, str]) -> str:
    """The protocol whose parameters these are; empty where none is registered."""
    field = parameters.WhichOneof("protocol")
    described = training if registered is TRAINING else prediction
    return next((name for name in registered if described(name).field == field), "")


def training_name(spec: setup_pb2.JobSpec) -> str:
    """The protocol of a training job."""
    return name_in(spec.parameters, TRAINING)


def prediction_name(opening: prediction_pb2.OpenModel) -> str:
    """The protocol of a prediction."""
    return name_in(opening.parameters, PREDICTION)
