"""The attacks of a label holder on other parties' columns by name; without PyTorch, so that commands can list them."""

from __future__ import annotations

#: The attacks, one line each.
ATTACKS = {
    "attributes": "a classifier or regression for each column, from embeddings and columns of auxiliary records",
    "decode": "an inverse network from embeddings to records, fitted to auxiliary records",
    "match": "records whose embedding by a surrogate of the party's own model is nearest to the one received",
    "match-exact": "the same with the published model: an upper bound for a prediction, whose embeddings it made",
}
