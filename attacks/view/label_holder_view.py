"""The view of a label holder: the embeddings in its own transcript of a split network."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from attacks.view.network_messages import EMBEDDINGS, NetworkMessages
from attacks.view.view import View, read_messages


def read_label_holder(
    path: Path,
    job: str | None = None,
    party: str | None = None,
    ca: Path | None = None,
    revoked: Path | None = None,
    *,
    epochs: Collection[int] | None = None,
) -> View:
    """Read the view of the label holder of a split network, with `embeddings`, in one pass.

    `epochs`: those, from 0, whose embeddings are held; None: the last one of which the transcript has all. The other
    arguments, and what else is read and reported: see `attacks.view.view.read_view`.

    Raises:
        BadInput: there is no such transcript, it is not one of the label holder's training of a split network, it holds
            no embeddings, or it takes up too much memory: name fewer epochs.
        Malformed: see `read_view`; also where a party that is no feature party has sent embeddings.
    """
    kept = None if epochs is None else frozenset(epochs)
    return read_messages(path, job, party, ca, revoked, lambda: NetworkMessages(EMBEDDINGS, kept, newest=kept is None))
