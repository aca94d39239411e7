"""The party's policy: limits on its part in jobs and on the receivers of its messages, set by the party alone.

It is read from the file that `policy = …` in the party's configuration names. The party refuses a forbidden request
with PERMISSION_DENIED and names the rule. The default policy permits what SecureBoost and Fed-EINI need, and no more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from treetap.errors import Refused
from treetap.names import CLIENTS, COORDINATORS, KINDS, NAME, PARTIES, did_you_mean
from treetap.protocols.alignment import MOST_IDS
from treetap.protocols.key_options import PAILLIER, SCHEMES, KeyKind
from treetap.protocols.limits import Limits, Partner
from treetap.protocols.messages import Sent
from treetap.strict import ProcessName, Strict
from treetap.wire.disclosure import CLASSES, UNSPECIFIED
from treetap.wire.reachable import ALL, Reachable, is_location, permits

if TYPE_CHECKING:
    from treetap.trees.paths import Floats

#: Every receiver; valid beside names of certificates and `KINDS`, as in the defaults of reveals.proto.
EVERYBODY = "*"
#: Switches of a policy that no other party's is asked for.
_OF_LABEL_HOLDERS = frozenset({"expansion_order"})
#: Switches of a policy that no label holder's is asked for.
_OF_FEATURE_PARTIES = frozenset({"withheld_spaces"})
#: Switch of a policy → the line of a job that needs it, where that is not the switch itself.
_ASKED_BY = {
    "expansion_order": 'grow_policy = "lossguide"',
    "pivodl_as_published": "as_published = true",
    "withheld_spaces": 'instance_spaces = "withheld"',
}


class Policy(Strict):
    """The rules: `treetap.party.setup.membership` applies `label_holders` and `peers`, which name no coordinator.

    Receivers in `emits`: names of certificates, "coordinators", "parties" that the policy names, "clients", "*".
    """

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
    schemes: Annotated[list[Literal[SCHEMES]], Field(min_length=1)] = [PAILLIER]  # type: ignore[valid-type]
    """Schemes under which this party takes part: "paillier", "lattice" (sums without a key)."""
    min_key_bits: Annotated[int, Field(ge=512)] = 2048
    """Shortest key, in bits, of a job; a lattice has none."""
    min_lattice_bits: Annotated[int, Field(ge=128, le=256)] = 128
    """Least estimated secrecy, in bits, of a job on a lattice."""
    min_hiding_bits: Annotated[int, Field(ge=40, le=64)] = 40
    """Feature party: bits by which a lattice hides its sets of records, or its masks, from the label holder. Of several
    parties the largest number counts; a job or model that cannot hide by it is refused.
    """
    second_halves: Literal["tree", "job"] = "tree"
    """Feature party, scheme = "lattice": "job" uses its second halves for all trees of an attempt, where
    colsample_bytree is 1. Fewer bytes, but only where the label holder is trusted not to cheat.
    """
    expansion_order: bool = False
    """Label holder: take part with `grow_policy = "lossguide"`, whose order of splits tells others of gains."""
    min_common_records: Annotated[int, Field(ge=1, le=MOST_IDS)] = 30
    """Fewest records common to all parties of a training; of a preview, below that only "fewer than"."""
    alignment_proof: bool = False
    """Ask the other parties to prove that they return this party's blinded ids raised by one exponent; `sorted-ids` and
    previews of a count are refused. Needs compiled kernels at all parties.
    """
    preview: Literal["off", "count", "records"] = "off"
    """Previews of an alignment in which the party takes part: none, of the count, or also of its own common rows."""
    previews_per_day: Annotated[int, Field(ge=1, le=1000)] = 5
    """Most previews in 24 hours with the same other party."""
    min_prediction_records: Annotated[int, Field(ge=1)] = 1
    """Fewest records common to all parties of a prediction, a served model or an eval table."""
    min_evaluated_records: Annotated[int, Field(ge=2)] = 30
    """Fewest records by whose labels this party computes metrics, out of bag included; those of weight 0 do not count.
    A metric of few records tells their labels.
    """
    min_instance_space: Annotated[int, Field(ge=1)] = 1
    """Fewest records of a node that another party learns of; a tree that needs a smaller node ends the job. The job's
    min_child_weight or min_samples_leaf keeps nodes larger. Not with withheld spaces.
    """
    min_candidate_bits: Annotated[float, Field(ge=0)] | None = None
    """Fed-EINI: margin in bits by which the combinations of candidate leaves exceed a score's sum, else the prediction
    is refused; 40 is a good value.
    """
    score_training_records: bool = False
    """Take part in predictions with masked sums of records that the model was trained on."""
    min_label_parties: Annotated[int, Field(ge=1)] = 3
    """Fewest parties of a job whose labels are spread over them; of two, either can subtract its own sums."""
    pivodl_as_published: bool = False
    """Take part in PIVODL with `as_published = true`, whose steps protect less."""
    reproducible: bool = False
    """Take part in a split network whose private draws follow from the job's seed, which all know."""
    category_partitions: bool = False
    """Take part in a job in which the label holder partitions a feature party's categories: it gets the sum over each,
    and its owner learns how labels order them.
    """
    label_budget: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Most ε that noisy labels, and noise that this party draws for leaf weights, may cost it in all; with it, it
    refuses trainings by clean labels of its own.
    """
    evaluate_clean_labels: bool = False
    """With noisy labels or a budget: let the measures of `predict --evaluate` leave; no ε covers them."""
    min_sensitivity: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Feature party of a split network: refuse jobs where its own `sensitivity` in [defences] is less."""
    max_leakage: Annotated[float, Field(ge=0)] | None = None
    """Largest bound, in nats, on what one set of records that another party learns may say about the labels."""
    on_max_leakage: Literal["stop", "withdraw"] = "stop"
    """Response before a set with a larger bound is sent: the job ends, or the set is kept back."""
    column_budget: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Feature party with `column_privacy`: most ε that the attempts at all jobs on a table may cost together; without
    it one attempt's.
    """
    noised_sums: bool = False
    """Of a label holder: take part where a feature party's sums have noise (`column_privacy`), which worsens models."""
    withheld_spaces: bool = False
    """Feature party: take part with `instance_spaces = "withheld"`, without knowing how few records a sum is about."""
    limits: Limits = Limits()
    """Limits on the parameters of trainings."""
    partners: dict[ProcessName | Literal["*"], Partner] = {}
    """Limits on a partner, by its name; "*" has those of all parties without a table of their own."""
    emits: dict[str, list[str]] = {}
    """Receivers by disclosure class: certificate names, "parties", "coordinators", "clients" or "*". A class that is
    not named keeps its default.
    """

    @field_validator("emits")
    @classmethod
    def _classes(cls, emits: dict[str, list[str]]) -> dict[str, list[str]]:
        known = [name for name in CLASSES if name != UNSPECIFIED]
        for name, receivers in emits.items():
            if name not in known:
                raise ValueError(f"{name!r} is no disclosure class (they are {', '.join(known)})")
            for receiver in receivers:
                if receiver not in (EVERYBODY, *KINDS) and not NAME.match(receiver):
                    raise ValueError(
                        f"{name}: {receiver!r} is no receiver: the name of a certificate, {COORDINATORS!r}, "
                        f"{PARTIES!r}, {CLIENTS!r} or {EVERYBODY!r}"
                    )
        return emits

    @model_validator(mode="after")
    def _recorded(self) -> Policy:
        if self.record_sums and self.record == "off":
            raise ValueError(
                'record_sums = true, but record = "off" keeps no transcript for the sums: say record = "received" or '
                '"both", or take record_sums out'
            )
        return self

    @model_validator(mode="after")
    def _approved(self) -> Policy:
        if self.approval == "manual" and not self.approvers:
            raise ValueError('approval = "manual", but nobody could approve a job: name approvers')
        return self

    @model_validator(mode="after")
    def _apart(self) -> Policy:
        for name in (*self.label_holders, *self.peers):
            if name in self.coordinators:
                raise ValueError(f"{name!r} is under coordinators: a coordinator is never a party, take it out of one")
        known = (*self.label_holders, *self.peers, *self.coordinators)
        for name in self.partners.keys() - {ALL, *known}:  # a limit that bounds no one would go unnoticed
            raise ValueError(
                f"partners.{name}: is not among label_holders, peers and coordinators{did_you_mean(name, known)}"
            )
        return self

    def check_address(self, party: str, peer: str, location: str) -> None:
        """Raise `Refused` if a peer may not be called at an address that a coordinator names."""
        entries = self.addresses.get(peer, self.addresses.get(ALL, []))
        if not is_location(location) or (self.addresses and not permits(entries, location)):
            raise Refused(
                f"{party} does not call {peer} at the address that the job names: it is no HOST:PORT, or not among the "
                f"addresses of {party}'s policy; if it should be, name it under [addresses] there, and send {party} "
                "SIGHUP"
            )

    def check_emits(self, party: str, to: str, classes: Iterable[str], *, client: bool = False) -> None:
        """Raise `Refused` if one of these disclosure classes may not go to `to`; DISCLOSURE_UNSPECIFIED may not.

        `client`: `to` is treated as a client of a served model, in whatever other role it appears.
        """
        for name in classes:
            if not self.may_emit(to, name, client=client):
                raise Refused(self._not_sent(party, to, name))

    def _not_sent(self, party: str, to: str, name: str) -> str:
        """The refusal of a class, with the remedy."""
        says = f"says emits.{name} = {self.emits[name]}" if name in self.emits else f"does not let {name} go there"
        return (
            f"{party} does not send {name} to {to}: its policy {says}; if it should, name {to!r} under "
            f"emits.{name} in {party}'s policy file and send {party} SIGHUP"
        )

    def check_job(self, party: str, sends: Iterable[Sent]) -> None:
        """Raise `Refused` if a job would make `party` send a class to a receiver that may not have it.

        The outbox and the node check every message again when they send it. Of several classes that no party gets
        without a line of the policy, the error has all lines at once.
        """
        own = [sent for sent in sends if sent.sender == party]
        classes = {name for sent in own for name in sent.classes}
        # Only classes that go to no party by default: the others have a line already, or fail by name below.
        lacking = {
            name: list(dict.fromkeys(sent.receiver for sent in own if name in sent.classes))
            for name in sorted(classes)
            if name not in self.emits and not CLASSES[name].default_receivers
        }
        if len(lacking) > 1:
            lines = "\n".join(f"  {name} = {json.dumps(receivers)}" for name, receivers in lacking.items())
            raise Refused(
                f"{party} does not send {', '.join(lacking)}, which the job needs: its policy does not let these "
                f"classes go to any party; if it should, add these lines under [emits] in {party}'s policy file and "
                f"send {party} SIGHUP:\n{lines}"
            )
        faults = {}
        for receiver, name in ((sent.receiver, name) for sent in own for name in sorted(sent.classes)):
            if not self.may_emit(receiver, name):
                faults[receiver, name] = self._not_sent(party, receiver, name)
        if faults:
            raise Refused("\n".join(faults.values()))

    def check_preview(self, party: str, answer: str) -> None:
        """Raise `Refused` for a preview of an alignment that tells more than the policy lets it."""
        order = ("off", "count", "records")
        if order.index(answer) > order.index(self.preview):
            what = "a count of common records" if answer == "count" else "the rows of common records"
            raise Refused(
                f"{party} takes no part in a preview that answers with {what}: its policy says preview = "
                f'{json.dumps(self.preview)}; if it should, write preview = "{answer}" above the tables of {party}\'s '
                f"policy file and send {party} SIGHUP"
            )

    def check_proof(self, party: str, alignment: str, parties: int) -> None:
        """Raise `Refused` if the policy asks for a proof that an alignment by this method does not have, or a count."""
        if not self.alignment_proof or parties == 1:
            return
        from treetap.native import arithmetic  # of alignments, as the rest of the mathematics

        fault = "" if alignment == "psi" else f"it is by {alignment}"
        if not fault and arithmetic.form_in_use() is None:
            fault = f"the arithmetic of {party} has no compiled kernels, which make and check it"
        if fault:
            raise Refused(
                f"{party} takes no part in this alignment: its policy says alignment_proof = true, and there is no "
                f'proof, as {fault}; align by alignment = "psi" and with arithmetic = "native" in the files of all '
                f"parties, or, if {party} does without a proof, take the line out of its policy file and send {party} "
                "SIGHUP"
            )

    def check_parties(self, party: str, count: int) -> None:
        """Raise `Refused` if a job whose labels are spread over its parties has fewer of these than the policy asks."""
        if count < self.min_label_parties:
            raise Refused(
                f"{party} takes no part in a job of {count} parties that share labels: its policy says "
                f"min_label_parties = {self.min_label_parties}, and the fewer there are, the more a sum over their "
                "labels tells about each"
            )

    def check_sensitivity(self, party: str, sensitivity: float) -> None:
        """Raise `Refused` if embeddings of this party's columns would be learned with a smaller ε than it asks for."""
        if self.min_sensitivity is not None and sensitivity < self.min_sensitivity:
            raise Refused(
                f"{party} sends no embeddings that are learned with sensitivity = {sensitivity:g}: its policy says "
                f"min_sensitivity = {self.min_sensitivity:g}; write at least that under [defences] of {party}'s file "
                f"and send {party} SIGHUP"
            )

    def check_permissions(self, party: str, names: Iterable[str], *, label_holder: bool = False) -> None:
        """Raise `Refused` if a job needs one of these switches of the policy, which is off."""
        spared = _OF_FEATURE_PARTIES if label_holder else _OF_LABEL_HOLDERS
        for name in names:
            if not getattr(self, name) and name not in spared:
                asked = _ASKED_BY.get(name, f"{name} = true")
                raise Refused(
                    f"{party} takes no part in a job with {asked}: its policy says {name} = false; if it should, write "
                    f"{name} = true above the tables of {party}'s policy file and send {party} SIGHUP"
                )

    def check_noised(self, party: str, owners: Iterable[str]) -> None:
        """Raise `Refused` if the sums of these feature parties have noise, and this label holder does not take such."""
        names = " and ".join(owners)
        if names and not self.noised_sums:
            raise Refused(
                f"{party} does not train on sums of {names}, which have noise (column_privacy): its policy says "
                f"noised_sums = false; if it should, write noised_sums = true above the tables of {party}'s policy "
                f"file and send {party} SIGHUP"
            )

    def check_partitions(self, party: str, columns: Iterable[str], label_holder: str) -> None:
        """Raise `Refused` if a feature party's categories would be partitioned by the label holder: see threats.md."""
        for name in columns:
            if not self.category_partitions:
                raise Refused(
                    f"{party} does not send {label_holder} the sums over each category of column {name!r}, by which it "
                    "would partition them: its policy says category_partitions = false; use a max_cat_to_onehot above "
                    'the number of its categories, or encode = "ordinal" or "one-hot" for it; or, if it should, '
                    f"write category_partitions = true above the tables of {party}'s policy file and send {party} "
                    "SIGHUP"
                )

    @property
    def splits_categories(self) -> bool:
        """True if trees may split this party's columns by sets of categories."""
        return self.category_partitions

    def check_partitioned(self, party: str, owner: str) -> None:
        """Raise `Refused` if the label holder would tell a feature party how labels divide its categories."""
        if not self.category_partitions:
            raise Refused(
                f"{party} does not partition the categories of {owner}, which would learn in what order the labels put "
                f"them: its policy says category_partitions = false; if it should, write category_partitions = true "
                f"above the tables of {party}'s policy file and send {party} SIGHUP"
            )

    def may_emit(self, to: str, name: str, *, client: bool = False) -> bool:
        """True if a disclosure class may go to `to`; `client` as for `check_emits`."""
        named = to in self.label_holders or to in self.peers
        kind = CLIENTS if client else COORDINATORS if to in self.coordinators else PARTIES if named else EVERYBODY
        own = EVERYBODY if to in KINDS else to  # a certificate from elsewhere may name a kind: that is not its rule
        return not {EVERYBODY, kind, own}.isdisjoint(self._receivers(name))

    def _receivers(self, name: str) -> Sequence[str]:
        return self.emits.get(name, CLASSES[name].default_receivers)

    def check_key(self, party: str, key: KeyKind) -> None:
        """Raise `Refused` if a job's key is of a scheme that this party does not accept, or shorter than it accepts."""
        if key.scheme not in self.schemes:
            listed = json.dumps([*self.schemes, key.scheme])
            raise Refused(
                f"{party} takes no part in a job under scheme {key.scheme!r}: its policy says schemes = "
                f"{json.dumps(self.schemes)}; if it should, write schemes = {listed} above the tables of {party}'s "
                f"policy file and send {party} SIGHUP"
            )
        if not key.on_lattice and key.bits < self.min_key_bits:
            raise Refused(
                f"{party} takes no part in a job with a key of {key.bits} bits: its policy says min_key_bits = "
                f"{self.min_key_bits}"
            )

    def check_secrecy(self, party: str, lattice: str, bits: float, words: str = "") -> None:
        """Raise `Refused` if an attack on a job's lattice is estimated to take less than this party demands.

        `words`: the secrecy in words where more is known of it than its bits.
        """
        if bits < self.min_lattice_bits:
            secrecy = f"the secrecy {words}" if words else f"some {math.floor(bits)} bits of secrecy"
            raise Refused(
                f"{party} takes no part in a job on {lattice} with {secrecy}: its policy says min_lattice_bits = "
                f"{self.min_lattice_bits}; {_without_lattice(party)}"
            )

    def check_hiding(self, party: str, hidden: str, bits: float) -> None:
        """Raise `Refused` if a lattice hides a party's part by fewer bits than this party demands."""
        if bits < self.min_hiding_bits:
            raise Refused(
                f"{party} takes no part in a job on a lattice that hides {hidden} by {math.floor(bits)} bits: its "
                f"policy says min_hiding_bits = {self.min_hiding_bits}; {_without_lattice(party)}"
            )

    def check_paths(self, party: str, spare: Floats, fault: str) -> None:
        """Raise `Refused` with this fault if too few paths through the trees explain an encrypted prediction's sums.

        `spare`: the bits by which candidate leaves exceed the possible sums, per record or for all of them.
        """
        from treetap.trees.paths import paths_hidden  # of jobs, as the rest of the mathematics

        least = self.min_candidate_bits
        if least is not None and not paths_hidden(spare, least).all():
            raise Refused(
                f"{party} takes no part: its policy says min_candidate_bits = {least:g}, and {fault}; a model of more "
                "trees has more"
            )

    def check_fresh(self, party: str, model: str, *, trained: bool) -> None:
        """Raise `Refused` if the records to score include some of the training (`trained`) of a model with masked sums.

        Scores of these, next to what the recipient knows from the training, tell more of the leaves than others do.
        """
        if trained and not self.score_training_records:
            raise Refused(
                f"{party} takes no part: some of the records common to all parties are among those that model {model} "
                "was trained on, and its policy says score_training_records = false; predict a table of other records, "
                f"or set it to true in {party}'s policy file and send {party} SIGHUP"
            )

    def check_space(self, party: str, to: str, node: int, records: int) -> None:
        """Raise `Refused` if the instance space of a node has too few records to be sent."""
        if 0 < records < self.min_instance_space:
            raise Refused(
                f"{party} does not send {to} the records of node {node}: its policy says min_instance_space = "
                f"{self.min_instance_space}, and there are fewer; a greater min_child_weight or "
                "min_samples_leaf, whichever the job has, keeps nodes larger"
            )


def _without_lattice(party: str) -> str:
    """The remedy of a party for which a lattice is not good enough."""
    return (
        "scheme = 'paillier' and predictions by eini do without a lattice; if fewer bits should do, lower the number "
        f"in {party}'s policy file and send {party} SIGHUP"
    )
