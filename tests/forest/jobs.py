"""Jobs of a forest: see `tests.trainings`."""

from __future__ import annotations

from dataclasses import replace

from tests.forest.oracle import forest_train
from tests.trainings import DROPOUT
from tests.worlds import spec
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import ForestParams

PARAMS = ForestParams(n_estimators=4, max_depth=2, max_bin=3, party_dropout=DROPOUT)
WITHOUT_SPLITS = replace(PARAMS, min_samples_leaf=9, n_estimators=2)
DEEP = ForestParams(n_estimators=3, max_depth=3, max_bin=4)
EMITTING = {
    "bins of the job": spec(DEEP),
    "from the left": spec(DEEP, alignment="psi", join="left"),
    # The intersection orders the records by chance, and so the draws: with eight trees every party wins a split.
    "on a lattice": spec(DEEP, scheme=LATTICE),
    "withheld": spec(replace(DEEP, instance_spaces="withheld"), scheme=LATTICE),
    "shared": spec(replace(DEEP, instance_spaces="withheld"), scheme=LATTICE, sums="shared", dealer="dealer"),
    "on a lattice, bins per node": spec(replace(DEEP, binning="per-node"), scheme=LATTICE),
    "bins per node": spec(replace(DEEP, binning="per-node", bootstrap=True, n_estimators=8), alignment="psi"),
}
train_naively = forest_train
