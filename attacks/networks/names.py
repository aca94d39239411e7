"""The attacks on split networks by name; without PyTorch, so that commands can list them."""

from __future__ import annotations

#: The attacks, one line each.
ATTACKS = {
    "gradient-clusters": "k-means on the directions of the gradients of an epoch, without a label",
    "gradient-labels": "labels of all training records from gradients and few known labels, and a model of one's own",
    "norm": "two classes: AUC of the length of gradients",
    "cosine": "two classes: AUC of the cosine with the gradient of one known record of the second class",
    "completion": "a head on the own published bottom model, beside untrained bottoms and training from scratch",
}
