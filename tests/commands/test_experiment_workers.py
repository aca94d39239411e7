"""An experiment's parties may have their workers on clusters, as parties of files do."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import ID, Split
from treetap.lab.experiment.party_tables import write_tables
from treetap.lab.local_federation import to_toml
from treetap.party.config import PartyConfig

TABLE = pa.table({ID: [str(k) for k in range(10)], "a": range(10), "b": range(10), "y": [k % 2 for k in range(10)]})
DRAWN = Split(np.arange(8), np.arange(8, 10), {"clinic": ["a"], "lab": ["b"]})


def _experiment(**lab: Any) -> ExperimentFile:
    parties = [{"name": "clinic", "columns": ["a"], "labels": True}, {"name": "lab", "columns": ["b"], **lab}]
    job = {"key_bits": 1024}
    return ExperimentFile.model_validate({"data": {"path": "x.csv", "label": "y"}, "party": parties, "job": job})


def test_a_partys_cluster_goes_into_its_file(tmp_path: Path) -> None:
    """The file that the experiment writes is that of a party with that cluster; others have none."""
    cluster = {"address": "auto", "workers": 3, "cpus": 0.5, "resources": {"treetap": 1.0}}
    settings = write_tables(_experiment(engine="ray", workers=2, cluster=cluster), TABLE, DRAWN, tmp_path)
    for each in settings.values():
        del each["policy"]
    lab = tomllib.loads(to_toml({"name": "lab", "insecure": True, "state": "s", **settings["lab"]}))
    read = PartyConfig.model_validate(lab)
    assert read.cluster is not None
    assert (read.cluster.workers, read.threads, read.cluster.resources) == (3, 2, {"treetap": 1.0})
    assert "engine" not in settings["clinic"]


def test_a_cluster_without_its_engine_is_refused() -> None:
    """The experiment's file has the same rules as a party's."""
    with pytest.raises(ValueError, match=r'\[cluster\] is for engine = "ray"'):
        _experiment(cluster={"address": "auto", "workers": 1})
