"""Bits that attributions leave to hide paths behind, by counting: credit default, as in benchmarks/eini.py.

    python benchmarks/explain_bits.py [--records 1000] [--parties 2]

Needs TREETAP_DATA (the folder with credit_default.parquet). Bits of the combinations of candidate leaves, less those of
the score, less those of every player's value: what `min_candidate_bits` compares at the label holder. Nothing is sent.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from shards import HOLDER, JOB, Model, Setting

from treetap import terminal
from treetap.arrays import Bools
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.trees.ensemble import Ensemble, Tree
from treetap.trees.leaf_entries import LeafEntries
from treetap.trees.paths import deciding
from treetap.trees.shapley import AttributionEntries


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "treetap-eini")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("explain_bits: set TREETAP_DATA to the folder with credit_default.parquet")
    given.workdir.mkdir(parents=True, exist_ok=True)
    model = Model(given.workdir.resolve(), Setting(others=given.parties - 1))
    manifest, lines = read_model(model.folder / HOLDER / "models" / JOB)
    own = {row["handle"]: OwnSplit.from_dict(row) for line in lines for row in line["own"]}
    trees = tuple(Tree.from_dict(line["tree"]) for line in lines)
    ensemble = Ensemble(manifest["objective"], 2, tuple(manifest["base_margin"]), trees, manifest["trees_per_round"])
    chain, features = list(model.columns)[1:], manifest["columns"]
    scores = LeafEntries(ensemble, HOLDER, chain)
    feature_of = {handle: features[split.feature] for handle, split in own.items()}
    explained = AttributionEntries(ensemble, HOLDER, chain, feature_of, scores.fraction_bits)
    raw = model.raw[HOLDER][model.test[: given.records]]

    def goes_left(handle: int) -> Bools:
        split = own[handle]
        return split.goes_left(raw[:, split.feature])

    decide = deciding(HOLDER, goes_left)
    alone, both = scores.spare(decide, len(raw)), explained.spare(decide, len(raw))
    table = terminal.table("spare bits", "least", "median", "most")
    for name, spare in (("score alone", alone), (f"with {len(explained.players)} players", both)):
        table.add_row(name, *(f"{value:.1f}" for value in (spare.min(), np.median(spare), spare.max())))
    terminal.out.print(table)


if __name__ == "__main__":
    main()
