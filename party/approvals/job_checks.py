"""What a party's policy and file have against a job that opens; people and limits on partners come after that.

Also whom a party lets deal for it: a process that its policy names, of an organisation that is neither of a pair's.
With one party of a pair a dealer opens what the pair keeps as shares. Its organisation is field O of its certificate,
which the authority states; a party sees it, and that of the pair's other party, on the connections by which their
messages come. A coordinator's word for either counts for nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from treetap.errors import ConfigError, Refused
from treetap.names import on_loopback
from treetap.party.config import DealerConfig, PartyConfig, check_members
from treetap.party.defences.checks import check_own
from treetap.party.policy import Policy
from treetap.party.runtime.job_store import published_manifest
from treetap.protocols.alignment import rows_of_preview
from treetap.protocols.job_spec import check_spec, continued_from, params_of, parties_of, sent_in_training, tables_of
from treetap.protocols.key_options import KeyKind
from treetap.protocols.libraries import require_library
from treetap.protocols.messages import LEFT, Members, sent_by
from treetap.protocols.prediction import check_prediction, sent_in_prediction
from treetap.protocols.registry import prediction, prediction_name, training, training_name
from treetap.wire.v2 import alignment_pb2, prediction_pb2, setup_pb2

log = logging.getLogger(__name__)
#: Raises for what a party's policy or file has against a job.
Check: TypeAlias = Callable[[], None]


def check_training(config: PartyConfig, opening: setup_pb2.Prepare, members: Members) -> None:
    """Raise unless a training is valid, and this party's policy and file have nothing against it."""
    for check in checks_of_training(config, opening, members):
        check()


def checks_of_training(config: PartyConfig, opening: setup_pb2.Prepare, members: Members) -> Iterator[Check]:
    """Checks of a training against a party's policy and file, each of which raises for itself.

    Raises:
        BadInput: the job is none that any party could do.
    """
    name, policy, spec = config.name, config.policy, opening.spec
    check_spec(spec)
    protocol, key = training(training_name(spec)), KeyKind.of(spec)
    yield lambda: check_members(config, members, protocol.opens_sums)
    yield lambda: check_apart(config, opening)
    if isinstance(config, DealerConfig):  # what follows is of parties, which have tables
        yield lambda: policy.check_job(name, sent_in_training(spec, members.coordinator))
        return
    if protocol.one_role:
        yield lambda: policy.check(name, "min_label_parties", len(members.parties))
    # switches of the other role
    spared = ("withheld_spaces", "left_join") if name == spec.aggregator else ("expansion_order",)
    for needed in protocol.permissions(spec):
        if needed not in spared:
            yield partial(policy.check, name, needed, True)
    if protocol.grows_trees:
        yield lambda: policy.check_key(name, key)
        if key.on_lattice:
            yield lambda: _check_lattice(name, policy)
    yield lambda: policy.check_proof(name, spec.alignment, len(members.parties))
    yield lambda: policy.check_job(name, sent_in_training(spec, members.coordinator))
    own, further = tables_of(spec)
    yield lambda: check_own(name, config.defences, policy, config.table(own), config.table(further), spec)
    yield lambda: policy.limits.check(name, params_of(spec), _trees_before(config, spec))
    if spec.replaces:
        yield lambda: _check_replaced(config, spec)
    yield lambda: require_library(training_name(spec), protocol, at_party=True)


def _trees_before(config: PartyConfig, spec: setup_pb2.JobSpec) -> int:
    """The number of trees of the model from which a training continues, where a limit counts them; else 0."""
    if config.policy.limits.trees is None or not continued_from(spec):
        return 0
    return int(published_manifest(config.state, continued_from(spec), spec.base_submission).get("trees", 0))


def _check_replaced(config: PartyConfig, spec: setup_pb2.JobSpec) -> None:
    """Raise unless a job may have this party delete its part of a model, which is one of the same parties.

    A feature party without such a part goes on: it has nothing to delete.
    """
    name, people, replaced = config.name, config.policy.people, f"replaces = {spec.replaces!r}"
    if not people.operators and people.approval == "none":
        raise Refused(
            f"{name} deletes no model for a job that anybody may have asked for ({replaced}); if it should, name "
            f'operators who may, or write approval = "manual", under [people] of {name}\'s policy file, and send '
            f"{name} SIGHUP"
        )
    if name != spec.aggregator and not (config.state / "models" / spec.replaces).is_dir():
        log.warning("%s: %s has no part of that model, and will delete none", replaced, name)
        return
    manifest = published_manifest(config.state, spec.replaces, spec.replaced_submission)
    of_job = {"feature_parties": spec.feature_parties, "parties": parties_of(spec)}
    holder = manifest.get("label_holder", spec.aggregator)
    if holder != spec.aggregator or any({*manifest.get(key, names)} != {*names} for key, names in of_job.items()):
        raise ConfigError(f"{replaced}: was trained by other parties; a job replaces a model of its own ones")


def _check_lattice(name: str, policy: Policy) -> None:
    from treetap.lattice.histogram_parameters import secrecy_bits, secrecy_words  # which most jobs do without
    from treetap.lattice.histogram_scheme import kernels

    kernels()  # compared with integers, or the job is refused
    words = {"lattice": "the histogram lattice", "secrecy": f"the secrecy {secrecy_words()}"}
    policy.check(name, "min_lattice_bits", math.floor(secrecy_bits()), **words)


def check_permitted_prediction(config: PartyConfig, opening: prediction_pb2.OpenModel, members: Members) -> None:
    """The same for a prediction."""
    check_prediction(opening)
    name = prediction_name(opening)
    check_members(config, members, prediction(name).opens_sums)
    config.policy.check_proof(config.name, opening.alignment, len(members.parties))
    if opening.join == LEFT and config.name != opening.recipient:
        config.policy.check(config.name, "left_join", True)
    config.policy.check_job(config.name, sent_in_prediction(opening, members.coordinator))
    require_library(name, prediction(name), at_party=True)


def check_permitted_preview(config: PartyConfig, opening: alignment_pb2.OpenPreview, members: Members) -> None:
    """The same for a preview, which is valid."""
    config.policy.check(config.name, "preview", opening.answer)
    config.policy.check_proof(config.name, "psi" if opening.answer == "records" else "a count", len(opening.parties))
    check_members(config, members, lambda _: ())
    config.policy.check_job(config.name, sent_by(rows_of_preview(opening), members))


# ---- dealers


def check_apart(config: PartyConfig, opening: setup_pb2.Prepare) -> None:
    """Raise `Refused` for a job in which this process deals and is no dealer, or the other way round.

    At a party also for a dealer that the policy does not name, or, unless the whole federation is on loopback, one at
    the address of a peer or of this host.
    """
    dealer, name = opening.spec.dealer, config.name
    if (name == dealer) != isinstance(config, DealerConfig):
        what = "a party, and deals" if name == dealer else "a dealer, and is a party"
        raise Refused(f"{name} is {what} for nobody: dealers are processes of their own, of treetap dealer")
    if not dealer or name == dealer:
        return
    config.policy.check(name, "dealers", dealer)
    hosts = {peer.name: peer.address.lower().rpartition(":")[0] for peer in opening.peers}
    local = {peer.name for peer in opening.peers if on_loopback(peer.address)}
    same = [peer for peer, host in hosts.items() if peer != dealer and host == hosts.get(dealer)]
    if (same or dealer in local) and len(local) < len(hosts):
        raise Refused(
            f"{name} takes nothing that {dealer} deals: it is at the address of {' and '.join(same) or 'this host'}, "
            "who could read what it deals; have an organisation that is none of the parties' run it on a host of its "
            "own"
        )


def check_dealer(party: str, spec: setup_pb2.JobSpec, organisations: Mapping[str, str]) -> None:
    """Raise `Refused` unless the dealer's organisation is known, and is that of neither party of this party's pairs.

    `organisations`: as certificates name them, of this party and of all that have sent it messages.
    """
    label_holder, features = spec.aggregator, list(spec.feature_parties)
    pair = [party, *(features if party == label_holder else [label_holder])]
    named = {name: " ".join(organisations.get(name, "").casefold().split()) for name in (spec.dealer, *pair)}
    if lacking := [name for name, organisation in named.items() if not organisation]:
        raise Refused(
            f"{party} takes nothing that {spec.dealer} deals: no certificate names the organisation (O) of "
            f"{' and '.join(lacking)}; issue new ones: treetap certs … --organisation NAME"
        )
    if same := [name for name in pair if named[name] == named[spec.dealer]]:
        raise Refused(
            f"{party} takes nothing that {spec.dealer} deals: it is of the organisation of {' and '.join(same)} "
            f"({organisations[spec.dealer]!r}), and with it would open what a pair keeps as shares; have another "
            "organisation deal"
        )
