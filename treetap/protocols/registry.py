"""The protocols: one line for each, which names the module that describes it.

A protocol is one field of the oneofs of protocols.proto, and one name in `protos/`, `coordinator/`, `party/`, `tests/`;
`party.protocols` names its roles and `coordinator.protocols` its sequence of phases. docs/architecture.md lists the
places.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from treetap.errors import ConfigError
from treetap.names import did_you_mean
from treetap.protocols.key_options import SCHEMES

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
#: The defences of labels that trees grown by a label holder and feature parties can have.
DEFENCES = ("id_lmid", "label_dp", "grafting", "refit", "reduced_leakage")
#: The reason why trees are not served without a party.
TREES_GUESS = (
    "trees send a record both ways at the splits of a party that is away, and clients would get guesses; use retry"
)
#: Name of a protocol that predicts → its module; an option without a protocol is one of the first's.
PREDICTION: Mapping[str, str] = {
    "interactive": "treetap.protocols.interactive",
    "eini": "treetap.protocols.eini",
    "eini-lattice": "treetap.protocols.lattice",
    "masked": "treetap.protocols.masked",
    "splitnn": "treetap.protocols.splitnn_prediction",
}


@dataclass(frozen=True)
class TrainingProtocol:
    """A protocol that trains.

    Attributes:
        field: its field in the oneofs of protocols.proto.
        params: its parameters.
        grows_trees: its models are trees, whose parties split at numbers and at categories, not at tensors, and sum
            ciphertexts; otherwise a job has no key and no bins.
        schemes: the schemes under which it can sum.
        units: the words for a round and for its stages, in progress and reports.
        trees_are_sequential: each tree fits the residuals of those before it, so later ones reveal less of the label.
        sends: contents that its roles send beside those of every training.
        opens_sums: the members that open sums over others' columns; those others' policies must name each of them.
        draws_for_audit: an instance space holds, of the node's records, those alone that its tree draws.
        predict_centrally: raw scores (n, outputs) of other records, and their probabilities or values, by the model
            that the joined table gives: (tables to learn from, tables to predict, labels (N,), classes, parameters);
            with one role also `ownership`, the records that each party labels, otherwise also what defences change:
            what is withheld from the other parties or, of networks, `treetap.neural.label_defences.LabelDefences`;
            of protocols whose records may have weights also `weights` (N,).
        train_centrally: the model that the joined table gives, with all parties' split tables: (tables, labels (N,),
            classes, parameters, what is withheld); None of a protocol with one role.
        predicts: the protocols that predict by its models; the first is the default.
        one_role: every party has the same role, the class `Party` of the module `party` in the package of its roles.
            A job lists them under `parties`; the first is the aggregator.
        most_parties: of a protocol with one role; the fewest are two.
        spreads_labels: True for a job in which several parties have labels: a party takes part only if there are as
            many parties as its policy asks for.
        permissions: the switches of a party's policy that a job needs.
        label_permissions: those of the label holder's policy alone.
        defences: what `[defences]` of the party with the labels may name.
        column_defences: what `[defences]` of a feature party may name.
        monotone: its trees can have monotone constraints.
        own_priors: the priors by the label holder's own columns that further stages of `label_dp` need: (table, number
            of classes, label holder, parameters); of a protocol with that defence.
        privacy: what the noise of a job with these parameters covers, as sentences; none of a protocol without noise.
        library: a module that its parties need beside those of every installation, of treetap's `extra`; empty: none.
        kernels: its parties need treetap's compiled kernels.
        no_eval_table: the reason why its jobs have no eval table; empty: they may have one.
        no_continuation: the reason why a training cannot continue from a published model; empty if it can.
    """

    field: str
    params: type[JobParams]
    sends: Sequence[MessageRow]
    opens_sums: OpensSums
    trees_are_sequential: bool
    draws_for_audit: bool
    predict_centrally: Callable[..., tuple[Floats, Floats]]
    train_centrally: Callable[..., CentralTrees] | None = None
    grows_trees: bool = True
    schemes: Sequence[str] = tuple(SCHEMES)
    units: tuple[str, str] = ("tree", "depth")
    predicts: Sequence[str] = ("interactive", "eini", "eini-lattice")
    one_role: bool = False
    most_parties: int = 0
    spreads_labels: Callable[[setup_pb2.JobSpec], bool] = lambda _: False
    permissions: Callable[[setup_pb2.JobSpec], Sequence[str]] = lambda _: ()
    label_permissions: Callable[[setup_pb2.JobSpec], Sequence[str]] = lambda _: ()
    defences: Sequence[str] = ()
    column_defences: Sequence[str] = ()
    monotone: bool = False
    own_priors: Callable[[Table, int, str, Any], OwnPriors] | None = None
    privacy: Callable[[Any], Sequence[str]] = lambda _: ()
    library: str = ""
    extra: str = ""
    kernels: bool = False
    no_eval_table: str = ""
    no_continuation: str = "every training of it begins anew"


class Options(Protocol):
    """The options that a protocol of predictions has beside those of every prediction: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def completed(self, spec: setup_pb2.JobSpec) -> Options:
        """These options, and for those not given the ones of the training job or the default."""
        ...

    def faults(self) -> list[str]:
        """The options, once completed, that no party could follow."""
        ...


@dataclass(frozen=True)
class PredictionProtocol:
    """A protocol that predicts.

    Attributes:
        field: its field in the oneofs of protocols.proto.
        summary: its distinguishing property, for the choice of a protocol.
        options: its own options.
        block: records per block where the request names none.
        no_degrade: the reason why it cannot go on without a party; empty if it can.
        sends: contents that its roles send beside those of every prediction.
        opens_sums: as of a training; the members that open scores, or receive directions.
        sends_attributions: contents that they send besides for attributions; empty: it has no attributions.
        library: a module that it needs beside those of every installation, of treetap's `extra`; empty: none.
        kernels: it needs treetap's compiled kernels.
        foreign: options of other protocols → the reason why this one lacks them, where that helps.
        sends_served: contents that they send besides of a served model.
        roles: the classes of the recipient and of the other parties, below the package of its roles.
        of_trees: its models are trees.
        no_serving: the reason why it cannot serve a model; empty if it can.
        no_degraded_serving: the reason why a served model cannot go on without a party; empty if one can that was
            trained with `party_dropout` of every party.
        no_explanation: the reason why it has no explanations and no attributions; empty if it has some.
    """

    field: str
    summary: str
    options: type[Options]
    block: int
    no_degrade: str
    sends: Sequence[MessageRow]
    opens_sums: OpensSums
    sends_attributions: Sequence[MessageRow]
    library: str
    extra: str
    foreign: Mapping[str, str]
    sends_served: Sequence[MessageRow] = ()
    kernels: bool = False
    roles: tuple[str, str] = ("label_holder.LabelHolder", "feature_party.FeatureParty")
    of_trees: bool = True
    no_serving: str = ""
    no_degraded_serving: str = TREES_GUESS
    no_explanation: str = ""


@cache
def training(name: str) -> TrainingProtocol:
    """The protocol of that name; `ConfigError` where none trains under it."""
    if name not in TRAINING:
        raise ConfigError(f"protocol = {name!r}: must be one of {', '.join(TRAINING)}")
    found: TrainingProtocol = importlib.import_module(TRAINING[name]).PROTOCOL
    return found


@cache
def prediction(name: str) -> PredictionProtocol:
    """The protocol of that name; `ConfigError` where none predicts under it."""
    if name not in PREDICTION:
        raise ConfigError(
            f"protocol = {name!r}: must be one of {', '.join(PREDICTION)}{did_you_mean(name, PREDICTION)}"
        )
    found: PredictionProtocol = importlib.import_module(PREDICTION[name]).PROTOCOL
    return found


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
