"""Embedding rows of one feature party by record, as the label holder received them."""

from __future__ import annotations

from dataclasses import dataclass, field

from attacks.view.gradient_rows import Ints, Rows


@dataclass(frozen=True)
class EmbeddingRows:
    """Embeddings of one feature party.

    Attributes:
        party: the feature party.
        epoch: its number, from 0; None: of a prediction.
        records: (n,) places of the records, ascending; a record of a batch that the party sat out has no row.
        values: (n, width) the embeddings.
    """

    party: str
    epoch: int | None
    records: Ints = field(repr=False)
    values: Rows = field(repr=False)
