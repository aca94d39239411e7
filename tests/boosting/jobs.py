"""Jobs of boosting: see `tests.trainings`."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle import oracle_train
from tests.replay import PARAMS as SMALL
from tests.trainings import DROPOUT
from tests.worlds import spec
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams

PARAMS = BoostingParams(n_estimators=4, max_depth=2, max_bin=3, min_child_weight=0.1, party_dropout=DROPOUT)
WITHOUT_SPLITS = replace(PARAMS, min_child_weight=1e6, n_estimators=1)
EMITTING = {
    "two feature parties": spec(replace(SMALL, max_depth=3)),
    "one": spec(replace(SMALL, max_depth=3), parties=2, alignment="psi"),
    "on a lattice": spec(replace(SMALL, max_depth=3), scheme=LATTICE, key_bits=0, obfuscation=""),
    "withheld": spec(
        replace(SMALL, max_depth=3, instance_spaces="withheld"), scheme=LATTICE, key_bits=0, obfuscation=""
    ),
    "shared": spec(
        replace(SMALL, max_depth=3, instance_spaces="withheld"),
        **{"scheme": LATTICE, "key_bits": 0, "obfuscation": "", "sums": "shared", "dealer": "dealer"},
    ),
    "two by psi": spec(replace(SMALL, max_depth=3), alignment="psi"),
    "a screening": spec(replace(SMALL, max_depth=3).screened(), screen=True),
    "from the left": spec(replace(SMALL, max_depth=3), alignment="psi", join="left"),
}
train_naively = oracle_train
