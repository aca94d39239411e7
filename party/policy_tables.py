"""The tables of a policy with keys of its own, each by who decides it; what a party does not do beside each key."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from treetap.errors import Refused
from treetap.names import ALL, is_location, permits
from treetap.protocols.alignment import MOST_IDS
from treetap.protocols.key_options import PAILLIER, SCHEMES
from treetap.protocols.limits import Limits, Partner
from treetap.strict import ProcessName, Reachable, Strict

#: Values of `preview`; each lets a preview tell what those before it let.
PREVIEWS = ("off", "count", "records")
_WITHOUT_LATTICE = f"scheme = {PAILLIER!r} and predictions by eini do without a lattice"


class Need(NamedTuple):
    """The sentence of a party whose policy does not let a job have what it needs of a key; words in braces are a job's.

    Attributes:
        refuses: what the party does not do; `value` is what the job needs.
        reason: what is said behind the key's value.
        instead: a way out without another policy.
        counted: the value is a number of records or bits that no other party is told, hence no line is proposed.
    """

    refuses: str
    reason: str = ""
    instead: str = ""
    counted: bool = False


class PolicyTable(Strict):
    """A table of a policy: a key that stands in another one is refused with its place."""

    @classmethod
    def about_unknown(cls, key: str) -> str:
        """The table that has this key, or the key that was probably meant."""
        table = _SUBTABLES.get(key, PLACES.get(key))
        return super().about_unknown(key) if table is None else f"; write it under [{table}]"

    def permits(self, key: str, value: Any) -> bool:
        """True if a job may have this value: a number at least the key's, a switch, a member of a list."""
        own = getattr(self, key)
        if isinstance(own, str):
            return PREVIEWS.index(value) <= PREVIEWS.index(own)
        if isinstance(own, list):
            return value in own
        return own is None or (own or not value if isinstance(own, bool) else bool(value >= own))

    def refusal(self, party: str, key: str, value: Any, words: dict[str, object]) -> Refused:
        """The refusal of a job that needs `value` of a key, by its `Need`, with the line that would let it be.

        A line is proposed only where this table would take it.
        """
        own, table = getattr(self, key), PLACES[key]
        need = next(note for note in type(self).model_fields[key].metadata if isinstance(note, Need))
        refuses, reason, instead = (
            text.format(value=value, party=party, **words) for text in (need.refuses, need.reason, need.instead)
        )
        line = (
            f"a smaller {key}" if need.counted else self._line(key, [*own, value] if isinstance(own, list) else value)
        )
        remedies = [
            instead,
            f"if it should, write {line} under [{table}] of {party}'s policy file and send {party} SIGHUP",
        ]
        ways = "; or, ".join(remedy for remedy in remedies[: 2 if line else 1] if remedy)
        return Refused(f"{party} {refuses}: its policy says {key} = {toml(own)}{reason}{f'; {ways}' if ways else ''}")

    def _line(self, key: str, value: Any) -> str:
        """The line of a key with this value; empty where the table does not take it."""
        try:
            type(self).model_validate({key: value})
        except ValidationError:
            return ""
        return f"{key} = {toml(value)}"


class PeoplePolicy(PolicyTable):
    """People and partners: who may ask and decide, other parties and their addresses, and the auditors' transcript."""

    coordinators: Annotated[list[ProcessName], Field(min_length=1)] = ["coordinator"]
    """Certificate names of the coordinators whose steps this party does; any other caller is refused. None of them is
    ever a party.
    """
    operators: list[ProcessName] = []
    """Certificate names of the operators one of whom must have signed a job; empty: any operator's, or no signature."""
    approval: Literal["none", "manual"] = "none"
    """"manual": a job waits until one of `approvers` approves it, or a standing approval covers it."""
    approvers: list[ProcessName] = []
    """Certificate names, of the role approver, that may approve jobs, refuse them, and see what waits."""
    label_holders: list[ProcessName] = []
    """Parties that may open sums over this party's columns, or get its directions and scores in predictions."""
    peers: list[ProcessName] = []
    """Other parties that may be in a job with this one. Its own name may stand there too."""
    dealers: Annotated[list[ProcessName], Need("takes no part in a job whose shared sums {value!r} deals for")] = []
    """Processes that may deal the randomness of jobs with sums = "shared". Each is of an organisation of its own: with
    one of two parties it opens what they keep as shares.
    """
    addresses: dict[ProcessName | Literal["*"], list[Reachable]] = {}
    """Peer = list of networks, hosts or HOST:PORT at which it may be called, "*" = those of all other peers: a
    coordinator names the addresses, and others are refused before they are called. Networks cover no names.
    """
    record: Literal["received", "both", "off"] = "off"
    """Messages that the party's transcript keeps: none, those that it received, or also those that it sent."""
    record_sums: bool = False
    """Label holder of trees, or party of PIVODL, beside `record`: also keep the sums that it opens, from which an audit
    attacks the other parties' columns.
    """
    min_decision_days: Annotated[int, Field(ge=0, le=36_525)] = 0
    """Label holder with `[serve]`: fewest days for which its decision log keeps a line; 0: it needs none."""

    @model_validator(mode="after")
    def _together(self) -> PeoplePolicy:
        if self.record_sums and self.record == "off":
            raise ValueError(
                'record_sums = true, but record = "off" keeps no transcript for the sums: say record = "received" or '
                '"both", or take record_sums out'
            )
        if self.approval == "manual" and not self.approvers:
            raise ValueError('approval = "manual", but nobody could approve a job: name approvers')
        for name in {*self.dealers} & {*self.label_holders, *self.peers}:
            raise ValueError(f"{name!r} is under dealers: a dealer is never a party, take it out of one")
        for name in (*self.label_holders, *self.peers, *self.dealers):
            if name in self.coordinators:
                raise ValueError(f"{name!r} is under coordinators: a coordinator is never a party, take it out of one")
        return self

    def check_address(self, party: str, peer: str, location: str) -> None:
        """Raise `Refused` if a peer may not be called at an address that a coordinator names."""
        entries = self.addresses.get(peer, self.addresses.get(ALL, []))
        if not is_location(location) or (self.addresses and not permits(entries, location)):
            raise Refused(
                f"{party} does not call {peer} at the address that the job names: it is no HOST:PORT, or not among the "
                f"addresses of {party}'s policy; if it should be, name it under [people.addresses] there, and send "
                f"{party} SIGHUP"
            )


class KeyPolicy(PolicyTable):
    """Cryptography: schemes, lengths of keys, and what is to be proven."""

    schemes: Annotated[
        list[Literal[SCHEMES]],  # type: ignore[valid-type]
        Field(min_length=1),
        Need("takes no part in a job under scheme {value!r}"),
    ] = [PAILLIER]
    """Schemes under which this party takes part: "paillier", "lattice" (sums without a key)."""
    min_key_bits: Annotated[int, Field(ge=512), Need("takes no part in a job with a key of {value} bits")] = 2048
    """Shortest key, in bits, of a job; a lattice has none."""
    min_lattice_bits: Annotated[
        int, Field(ge=128, le=256), Need("takes no part in a job on {lattice} with {secrecy}", instead=_WITHOUT_LATTICE)
    ] = 128
    """Least estimated secrecy, in bits, of a job on a lattice."""
    min_hiding_bits: Annotated[
        int,
        Field(ge=40, le=64),
        Need("takes no part in a job on a lattice that hides {hidden} by {value} bits", instead=_WITHOUT_LATTICE),
    ] = 40
    """Feature party: bits by which a lattice hides its sets of records, or its masks, from the label holder. Of several
    parties the largest number counts; a job or model that cannot hide by it is refused.
    """
    second_halves: Literal["tree", "job"] = "tree"
    """Feature party, scheme = "lattice": "job" uses its second halves for all trees of an attempt, where
    colsample_bytree is 1. Fewer bytes, but only where the label holder is trusted not to cheat.
    """
    alignment_proof: Annotated[
        bool,
        Need(
            "takes no part in this alignment",
            ", and there is no proof, as {fault}",
            'align by alignment = "psi" and with arithmetic = "native" in the files of all parties',
        ),
    ] = False
    """Ask the other parties to prove that they return this party's blinded ids raised by one exponent; `sorted-ids` and
    previews of a count are refused. Needs compiled kernels at all parties.
    """


class LabelPolicy(PolicyTable):
    """Limits of a party with labels on what leaves of them, and on what it trains by."""

    expansion_order: Annotated[bool, Need('takes no part in a job with grow_policy = "lossguide"')] = False
    """Label holder: take part with `grow_policy = "lossguide"`, whose order of splits tells others of gains."""
    min_evaluated_records: Annotated[int, Field(ge=2), Need("takes no part", ", and fewer {records}", counted=True)] = (
        30
    )
    """Fewest records by whose labels this party computes metrics, out of bag included; those of weight 0 do not count.
    A metric of few records tells their labels.
    """
    score_training_records: Annotated[
        bool,
        Need(
            "takes no part in a prediction of records among which some are that model {model} was trained on",
            instead="predict a table of other records",
        ),
    ] = False
    """Take part in predictions with masked sums of records that the model was trained on. Scores of these, next to what
    the recipient knows from the training, tell more of the leaves than others do.
    """
    min_label_parties: Annotated[
        int,
        Field(ge=1),
        Need(
            "takes no part in a job of {value} parties that share labels",
            ", and the fewer there are, the more a sum over their labels tells about each",
        ),
    ] = 3
    """Fewest parties of a job whose labels are spread over them; of two, either can subtract its own sums."""
    pivodl_as_published: Annotated[bool, Need("takes no part in a job with as_published = true")] = False
    """Take part in PIVODL with `as_published = true`, whose steps protect less."""
    label_budget: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Most ε that noisy labels, and noise that this party draws for leaf weights, may cost it in all; with it, it
    refuses trainings by clean labels of its own.
    """
    evaluate_clean_labels: bool = False
    """With noisy labels or a budget: let the measures of `predict --evaluate` leave; no ε covers them."""
    max_leakage: Annotated[float, Field(ge=0)] | None = None
    """Largest bound, in nats, on what one set of records that another party learns may say about the labels."""
    on_max_leakage: Literal["stop", "withdraw"] = "stop"
    """Response before a set with a larger bound is sent: the job ends, or the set is kept back."""
    noised_sums: Annotated[bool, Need("does not train on sums of {owners}, which have noise (column_privacy)")] = False
    """Of a label holder: take part where a feature party's sums have noise (`column_privacy`), which worsens models."""


class ColumnPolicy(PolicyTable):
    """Limits of a party on what leaves of its columns and records."""

    min_common_records: Annotated[
        int, Field(ge=1, le=MOST_IDS), Need("takes no part", ", and fewer {records}", counted=True)
    ] = 30
    """Fewest records common to all parties of a training; of a preview, below that only "fewer than"."""
    min_prediction_records: Annotated[
        int, Field(ge=1), Need("takes no part", ", and fewer {records}", counted=True)
    ] = 1
    """Fewest records common to all parties of a prediction, a served model or an eval table."""
    min_instance_space: Annotated[
        int,
        Field(ge=1),
        Need(
            "does not send {to} the records of node {node}",
            ", and there are fewer",
            "a greater min_child_weight or min_samples_leaf, whichever the job has, keeps nodes larger",
            counted=True,
        ),
    ] = 1
    """Fewest records of a node that another party learns of; a tree that needs a smaller node ends the job. The job's
    min_child_weight or min_samples_leaf keeps nodes larger. Not with withheld spaces.
    """
    min_candidate_bits: Annotated[
        Annotated[float, Field(ge=0)] | None,
        Need("takes no part", ", and {fault}", "a model of more trees has more", counted=True),
    ] = None
    """Fed-EINI: margin in bits by which the combinations of candidate leaves exceed a score's sum, else the prediction
    is refused; 40 is a good value.
    """
    preview: Annotated[
        Literal[PREVIEWS],  # type: ignore[valid-type]
        Need('takes no part in a preview whose answer is "{value}"'),
    ] = "off"
    """Previews of an alignment in which the party takes part: none, of the count, or also of its own common rows."""
    category_partitions: Annotated[bool, Need("does not {deed}", instead="{instead}")] = False
    """Take part in a job in which the label holder partitions a feature party's categories: it gets the sum over each,
    and its owner learns how labels order them.
    """
    column_budget: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Feature party with `column_privacy`: most ε that the attempts at all jobs on a table may cost together; without
    it one attempt's.
    """
    withheld_spaces: Annotated[bool, Need('takes no part in a job with instance_spaces = "withheld"')] = False
    """Feature party: take part with `instance_spaces = "withheld"`, without knowing how few records a sum is about."""

    left_join: Annotated[bool, Need('takes no part in a job with join = "left"')] = False
    """Feature party: take part with `join = "left"`: whether a person is in this party's table then goes into the
    score, and the label holder sees what difference it makes.
    """
    references: dict[str, bool | int | float | str] = {}
    """Value by column with which reasons compare a record, in the place of the training's median or most
    frequent one.
    """

    @property
    def splits_categories(self) -> bool:
        """True if trees may split this party's columns by sets of categories."""
        return self.category_partitions


class NetworkPolicy(PolicyTable):
    """Split networks."""

    min_sensitivity: Annotated[
        Annotated[float, Field(gt=0, le=1e6)] | None,
        Need(
            "sends no embeddings that are learned with sensitivity = {value:g}",
            instead="write at least that under [defences] of {party}'s file",
        ),
    ] = None
    """Feature party of a split network: refuse jobs where its own `sensitivity` in [defences] is less."""
    reproducible: Annotated[bool, Need("takes no part in a job with reproducible = true")] = False
    """Take part in a split network whose private draws follow from the job's seed, which all know."""


#: Name of a table → what reads it.
TABLES: dict[str, type[PolicyTable]] = {
    "people": PeoplePolicy,
    "keys": KeyPolicy,
    "labels": LabelPolicy,
    "columns": ColumnPolicy,
    "networks": NetworkPolicy,
}
#: Key → the table that it stands in.
PLACES = {key: name for name, table in TABLES.items() for key in table.model_fields}
#: Keys that are written under a table of a table.
_SUBTABLES = {
    **dict.fromkeys(Limits.model_fields, "limits"),
    **dict.fromkeys(Partner.model_fields, 'partners."*"'),
    "addresses": "people.addresses",
}


def toml(value: Any) -> str:
    """A value as a policy has it, a whole number without a fraction."""
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
