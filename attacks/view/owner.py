"""The party whose transcript is read: the transcript may not say it, and each kind of view is of one role."""

from __future__ import annotations

from pathlib import Path

from treetap.attacks.view.replay import TranscriptReplay
from treetap.errors import BadInput, Malformed
from treetap.protocols.registry import training, training_name
from treetap.wire.v2 import setup_pb2


def feature_party(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> str:
    """The transcript's party, which is not the label holder; `party`: its name, where it is given.

    Raises:
        BadInput: it is the label holder's or another party's, or the transcript does not say whose it is.
        Malformed: it is several parties'.
    """
    possible = _possible(path, replay, spec, party)
    chosen = party or possible[0]
    # where all parties label records, none of them is left out as the one that knows the labels
    if training(training_name(spec)).one_role:
        if party is None and len(possible) > 1:
            raise BadInput(f"{path}: does not say whose transcript it is; name one of {', '.join(possible)}")
        return chosen
    if chosen == spec.aggregator and (party or len(possible) == 1):
        raise BadInput(
            f"{path}: is the transcript of {chosen}, the label holder, which knows the labels; it attacks other "
            "parties' columns: add [[victim]]"
        )
    features = [name for name in possible if name != spec.aggregator]
    if party is None and len(features) > 1:
        raise BadInput(f"{path}: does not say whose transcript it is; name one of {', '.join(features)}")
    return party or features[0]


def label_holder(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> str:
    """The transcript's party, which is a label holder; `party`: its name, where it is given.

    Raises:
        BadInput: it is another party's, or of a protocol in which all parties label records.
        Malformed: it is several parties'.
    """
    possible, holder = _possible(path, replay, spec, party), spec.aggregator
    if training(training_name(spec)).one_role:
        raise BadInput(
            f"{path}: is of protocol {training_name(spec)}, in which all parties have one role: leave [[victim]] out"
        )
    if holder not in possible or party not in (None, holder):
        raise BadInput(
            f"{path}: is the transcript of {' or '.join(name for name in possible if name != holder)}; columns of "
            f"other parties are attacked by that of the label holder, {holder}"
        )
    return holder


def _possible(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> list[str]:
    """The parties whose transcript it can be: none receives its own messages, or is asked to apply another's splits."""
    if len(replay.owners) > 1:
        raise Malformed(f"holds records of several parties: {', '.join(sorted(replay.owners))}")
    members = [spec.aggregator, *spec.feature_parties]
    possible = [name for name in members if name not in replay.peers and replay.owners <= {name}]
    if not possible:
        raise Malformed("holds records of several parties")
    if party is not None and party not in possible:
        raise BadInput(f"{path}: is not the transcript of {party}, but of {' or '.join(possible)}")
    return possible
