"""Models of PIVODL in the simulator, predictions with them, and the scores that their shards imply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from tests.blindness.observed import Observed
from tests.pivodl.federations import job_of
from tests.pivodl.jobs import policies
from tests.worlds import World
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_manifest, read_model
from treetap.party.masked.passing import FRACTION
from treetap.protocols.prediction import predict_request
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

Floats = npt.NDArray[np.float64]
Key = tuple[int, int]


async def trained(folder: Path, here: World, params: PivodlParams, **policy: Any) -> Observed:
    """A federation that has published a model. `policy`: further lines of every party's."""
    job: setup_pb2.JobSpec = job_of(here, params)
    federation = Observed(folder, here.tables, policies=policies(job, **policy))
    status = await federation.train(job)
    assert (status.state, status.error) == ("finished", "")
    federation.crossed.clear()
    return federation


async def predicted(federation: Observed, **asked: Any) -> jobs_pb2.JobStatus:
    """A prediction with that model that finishes."""
    status = await federation.predict(predict_request(model="job", **asked))
    assert (status.state, status.error) == ("finished", "")
    return status


def scores_of(path: str) -> Floats:
    """The scores (n, outputs) of a file of predictions, in the order of its ids."""
    found = pq.read_table(path).sort_by("id")
    names = [name for name in found.column_names if name == "score" or name.startswith("score_")]
    return np.stack([found.column(name).to_numpy() for name in names], axis=1)


def implied_scores(states: dict[str, Path], here: World, weight: str = "weight") -> Floats:
    """The scores (n, outputs) of the new records by plain addition of the stored weights in fixed point.

    The trees are put together from all parties' shards; `weight`: the entry of a leaf that counts.
    """
    folders = {name: state / "models" / "job" for name, state in states.items()}
    shards = {name: read_model(folder)[1] for name, folder in folders.items()}
    manifest = read_manifest(next(iter(folders.values())))
    columns = dict(here.newcomers)
    n = len(here.new[0])
    sums = np.zeros((n, len(manifest["base_margin"])), dtype=np.int64)
    for t in range(manifest["trees"]):
        splits = {
            split.node: (name, split)
            for name, shard in shards.items()
            for split in map(OwnSplit.from_dict, shard[t]["splits"])
        }
        leaves = {
            each["node"]: np.rint(np.array(each.get(weight, each["weight"])) * 2.0**FRACTION).astype(np.int64)
            for shard in shards.values()
            for each in shard[t]["weights"]
        }
        for record in range(n):
            node = 1
            while node in splits:
                name, split = splits[node]
                left = split.goes_left(columns[name][record : record + 1, split.feature])[0]
                node = 2 * node + (not left)
            sums[record] += leaves[node]
    scores: Floats = np.array(manifest["base_margin"]) + sums / 2.0**FRACTION
    if manifest["objective"] == "reg:squarederror":
        scores = scores * manifest["label_scale"] + manifest["base_score"]
    return scores
