"""The party's policy: limits on its part in jobs and on the receivers of its messages, set by the party alone.

It is read from the file that `policy = …` in the party's configuration names. The party refuses a forbidden request
with PERMISSION_DENIED and names the rule. The default policy permits what SecureBoost and Fed-EINI need, and no more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from treetap.errors import Refused, did_you_mean
from treetap.names import ALL, CLIENTS, COORDINATORS, DEALERS, KINDS, NAME, PARTIES
from treetap.party.policy_tables import (
    PLACES,
    ColumnPolicy,
    KeyPolicy,
    LabelPolicy,
    NetworkPolicy,
    PeoplePolicy,
    PolicyTable,
)
from treetap.protocols.key_options import SCHEMES, KeyKind
from treetap.protocols.limits import PREVIEWS_PER_DAY, Limits, Partner
from treetap.protocols.messages import Sent
from treetap.strict import ProcessName
from treetap.wire.disclosure import CLASSES, UNSPECIFIED

if TYPE_CHECKING:
    from treetap.arrays import Floats

#: Every receiver; valid beside names of certificates and `KINDS`, as in the defaults of reveals.proto.
EVERYBODY = "*"
#: The tables of a party whose operator is one person with the others': all that a job needs.
PERMISSIVE: Mapping[str, Mapping[str, Any]] = {
    "keys": {"schemes": list(SCHEMES), "min_key_bits": 512},
    "labels": {
        "expansion_order": True,
        "min_evaluated_records": 2,
        "score_training_records": True,
        "min_label_parties": 1,
        "pivodl_as_published": True,
        "noised_sums": True,
    },
    "columns": {"min_common_records": 1, "category_partitions": True, "withheld_spaces": True, "left_join": True},
    "networks": {"reproducible": True},
    "emits": {
        name: ["parties"]
        for name in (
            *("AGGREGATE", "BIN_ASSIGNMENT", "LEAF_WEIGHT", "MASKED_SHARE", "MONOTONE_DIRECTION"),
            *("EMBEDDING", "EMBEDDING_GRADIENT", "COLUMN_BINS"),
        )
    },
}


def merged(*policies: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of several policies in one, of a key the last line; what is no table is left to the schema."""
    tables: dict[str, Any] = {}
    for name, table in ((name, table) for policy in policies for name, table in policy.items()):
        tables[name] = {**tables.get(name, {}), **table} if isinstance(table, Mapping) else table
    return tables


class Policy(PolicyTable):
    """The rules: `treetap.party.setup.steps` applies `label_holders` and `peers`, which name no coordinator.

    Receivers in `emits`: names of certificates, "coordinators", "parties" or "dealers" that the policy names,
    "clients", "*".
    """

    people: PeoplePolicy = PeoplePolicy()
    """Coordinators, operators, approvers, other parties and their addresses, and the transcript."""
    keys: KeyPolicy = KeyPolicy()
    """Schemes, lengths of keys, and proofs."""
    labels: LabelPolicy = LabelPolicy()
    """Limits on what leaves of a party's labels."""
    columns: ColumnPolicy = ColumnPolicy()
    """Limits on what leaves of a party's columns and records."""
    networks: NetworkPolicy = NetworkPolicy()
    """Limits on split networks."""
    limits: Limits = Limits()
    """Limits on the parameters of trainings."""
    partners: dict[ProcessName | Literal["*"], Partner] = {}
    """Limits on a partner, by its name; "*" has those of all parties without a table of their own."""
    emits: dict[str, list[str]] = Field(
        default={},
        json_schema_extra={  # treetap's own words among names of certificates
            "propertyNames": {"enum": [*CLASSES]},
            "additionalProperties": {"items": {"enum": [*KINDS, EVERYBODY]}},
        },
    )
    """Receivers by disclosure class: certificate names, "parties", "coordinators", "dealers", "clients" or "*". A class
    that is not named keeps its default.
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
                        f"{PARTIES!r}, {DEALERS!r}, {CLIENTS!r} or {EVERYBODY!r}"
                    )
        return emits

    @model_validator(mode="after")
    def _known(self) -> Policy:
        people = self.people
        known = (*people.label_holders, *people.peers, *people.coordinators)
        for name in self.partners.keys() - {ALL, *known}:  # a limit that bounds no one would go unnoticed
            raise ValueError(
                f"partners.{name}: is not among label_holders, peers and coordinators{did_you_mean(name, known)}"
            )
        return self

    @classmethod
    def permissive(cls, lines: Mapping[str, Any]) -> Policy:
        """The policy of a party whose operator is one person with the others', with further lines."""
        return cls.model_validate(merged(PERMISSIVE, lines))

    def with_lines(self, lines: Mapping[str, Any]) -> Policy:
        """This policy with other lines in the place of its own."""
        return type(self).model_validate(merged(self.model_dump(exclude_unset=True), lines))

    @property
    def previews_per_day(self) -> int:
        """Most previews in 24 hours with a partner whose own table has no such limit."""
        others = self.partners.get(ALL, Partner()).previews_per_day
        return PREVIEWS_PER_DAY if others is None else others

    def check(self, party: str, key: str, value: Any, **words: object) -> None:
        """Raise `Refused` if a job needs `value` of a key, and has not what it needs; `words`: of the key's `Need`."""
        table: PolicyTable = getattr(self, PLACES[key])
        if not table.permits(key, value):
            raise table.refusal(party, key, value, words)

    def check_emits(self, party: str, to: str, classes: Iterable[str], *, client: bool = False) -> None:
        """Raise `Refused` if one of these disclosure classes may not go to `to`; DISCLOSURE_UNSPECIFIED may not.

        `client`: `to` is treated as a client of a served model, in whatever other role it appears.
        """
        if lacking := {name: [to] for name in classes if not self.may_emit(to, name, client=client)}:
            raise self._not_sent(party, lacking)

    def check_job(self, party: str, sends: Iterable[Sent]) -> None:
        """Raise `Refused`, with all lines at once, if a job would make `party` send a class to one who may not have it.

        The outbox and the node check every message again when they send it.
        """
        lacking: dict[str, list[str]] = {}
        for to, name in dict.fromkeys(
            (sent.receiver, name) for sent in sends if sent.sender == party for name in sorted(sent.classes)
        ):
            if not self.may_emit(to, name):
                lacking.setdefault(name, []).append(to)
        if lacking:
            raise self._not_sent(party, dict(sorted(lacking.items())))

    def _not_sent(self, party: str, lacking: Mapping[str, Sequence[str]]) -> Refused:
        """The refusal of classes, each with the receivers that it may not go to, and the lines that let them go."""
        faults = "; ".join(
            f"{name} to {' and '.join(receivers)}: its policy "
            + (f"says emits.{name} = {self.emits[name]}" if name in self.emits else f"does not let {name} go there")
            for name, receivers in lacking.items()
        )
        lines = "\n".join(
            f"  {name} = {json.dumps([*self.emits.get(name, CLASSES[name].default_receivers), *receivers])}"
            for name, receivers in lacking.items()
        )
        return Refused(
            f"{party} does not send {faults}; if it should, write under [emits] of {party}'s policy file, and send "
            f"{party} SIGHUP:\n{lines}"
        )

    def check_proof(self, party: str, alignment: str, parties: int) -> None:
        """Raise `Refused` if the policy asks for a proof that an alignment by this method does not have, or a count."""
        if not self.keys.alignment_proof or parties == 1:
            return
        from treetap.native import arithmetic  # of alignments, as the rest of the mathematics

        fault = "" if alignment == "psi" else f"it is by {alignment}"
        if not fault and arithmetic.form_in_use() is None:
            fault = f"the arithmetic of {party} has no compiled kernels, which make and check it"
        if fault:
            raise self.keys.refusal(party, "alignment_proof", False, {"fault": fault})

    def may_emit(self, to: str, name: str, *, client: bool = False) -> bool:
        """True if a disclosure class may go to `to`; `client` as for `check_emits`."""
        people = self.people
        named = {COORDINATORS: people.coordinators, PARTIES: (*people.label_holders, *people.peers)}
        named |= {DEALERS: people.dealers}
        kind = CLIENTS if client else next((kind for kind, names in named.items() if to in names), EVERYBODY)
        own = EVERYBODY if to in KINDS else to  # a certificate from elsewhere may name a kind: that is not its rule
        return not {EVERYBODY, kind, own}.isdisjoint(self.emits.get(name, CLASSES[name].default_receivers))

    def check_key(self, party: str, key: KeyKind) -> None:
        """Raise `Refused` if a job's key is of a scheme that this party does not accept, or shorter than it accepts."""
        self.check(party, "schemes", key.scheme)
        if not key.on_lattice:
            self.check(party, "min_key_bits", key.bits)

    def check_space(self, party: str, to: str, node: int, records: int) -> None:
        """Raise `Refused` if the instance space of a node has too few records to be sent; an empty one tells none."""
        if records:
            self.check(party, "min_instance_space", records, to=to, node=node)

    def check_paths(self, party: str, spare: Floats, fault: str) -> None:
        """Raise `Refused` with this fault if too few paths through the trees explain an encrypted prediction's sums.

        `spare`: the bits by which candidate leaves exceed the possible sums, per record or for all of them.
        """
        self.check(party, "min_candidate_bits", spare.min(initial=math.inf), fault=fault)
