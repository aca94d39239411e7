"""Listed cuts in jobs: the oracle's trees of these cuts in every protocol, and numbers of sums that no cell changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle import bin_cuts
from tests.simulator import Federation, finished, run
from tests.trainings import fitting, jobs_of, oracle, policies
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.errors import ConfigError
from treetap.party.defences.checks import check_own
from treetap.party.defences.settings import ColumnPrivacyTable, Defences
from treetap.party.policy import Policy
from treetap.party.setup.steps import fingerprint
from treetap.protocols.prediction import predict_request
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table
from treetap.trees.params import BoostingParams, TreeParams
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, FEATURE, OTHER = PARTIES
#: Of the first column of each party; the others have quantiles.
CUTS = {LABEL_HOLDER: [-0.4, 0.8], FEATURE: [-0.9, 0.35], OTHER: [0.15]}
BASE = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.0)


def _known_to_oracles(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every oracle cut the columns so."""
    cuts = {_cells(block[:, 0]): CUTS[party] for party, block in here.parties}

    def listed(column: Sequence[float], max_bin: int) -> list[float]:
        return cuts.get(_cells(column), bin_cuts(column, max_bin))

    for module in ("tests.oracle", "tests.forest.oracle", "tests.pivodl.oracle"):
        monkeypatch.setattr(f"{module}.bin_cuts", listed)


def _cells(column: Any) -> bytes:
    return np.asarray(column, dtype=np.float64).tobytes()


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["boosting", "forest", "pivodl"])
async def test_the_federation_finds_and_uses_the_oracles_model(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees are those of the cuts, at every owner; a prediction needs none of them."""
    params: TreeParams = replace(jobs_of(protocol).PARAMS, n_estimators=2, max_bin=4, party_dropout={})
    here = fitting(world(50, (2, 2, 1), seed=6, missing=0.1 if protocol == "boosting" else 0.0), params)
    by_quantiles = oracle(here, params)
    _known_to_oracles(here, monkeypatch)
    expected = oracle(here, params)
    assert [tree.nodes for tree in expected] != [tree.nodes for tree in by_quantiles]
    job = spec(params, key_bits=512, obfuscation="standard")

    # As the parties' files have them.
    federation = Federation(
        tmp_path,
        here.tables,
        cuts={party: {here.tables[party][0][0]: cuts} for party, cuts in CUTS.items()},
        policies=policies(job),
    )
    finished(await federation.train(job))
    assert_oracles_model(federation.states, expected)
    if protocol != "pivodl":
        request = predict_request(model="job", table="", block=17, protocol="interactive")
        predicted = finished(await federation.predict(request))
        assert_oracles_scores(predicted.predictions, expected, here.newcomers, len(here.y))


def test_a_job_goes_on_with_the_same_cuts_only(tmp_path: Path) -> None:
    """A table with other cuts is another one than that of the stored trees."""
    path = tmp_path / "t.csv"
    path.write_text("id,a\n1,1\n2,2\n3,3\n")
    digests = set()
    for cuts in ({}, {"a": [1]}, {"a": [1, 2]}):
        config = TableConfig.model_validate({"path": path, "id": "id", "columns": ["a"], "cuts": cuts})
        digests.add(fingerprint(read_table(config, with_label=False, missing=None)))
    assert len(digests) == 3


def _changed(here: World, cells: list[float | None]) -> World:
    """The same world with other cells in the first column of FEATURE."""
    columns, tables = here.tables[FEATURE]
    train = tables["train"]
    place = train.column_names.index(columns[0])
    other = train.set_column(place, columns[0], pa.array(cells, pa.float64()))
    return replace(here, tables={**here.tables, FEATURE: (columns, {**tables, "train": other})})


def test_with_column_privacy_no_cell_decides_how_many_sums_there_are(tmp_path: Path) -> None:
    """A constant column, the first missing value, or no value at all: the sums are as many as ever."""
    here = world(60, (1, 1), seed=2)
    usual = here.tables[FEATURE][1]["train"].column(here.tables[FEATURE][0][0]).to_pylist()
    tables = {
        "usual": usual,
        "one missing": [None, *usual[1:]],
        "constant": [1.0] * 60,
        "empty": [None] * 60,
    }
    sent: dict[str, set[int]] = {name: set() for name in tables}
    own = Defences(column_privacy=ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2))

    async def main(name: str) -> None:
        other = _changed(here, tables[name])

        def keep(_sender: str, _: str, message: exchange_pb2.PeerMessage) -> None:
            body = message.growth
            if body.HasField("candidate_sums") and not (message.stage or message.part):
                sent[name].add(body.candidate_sums.candidates)

        cuts = {FEATURE: {here.tables[FEATURE][0][0]: [-0.5, 0.0, 0.5]}}
        federation = Federation(tmp_path / name, other.tables, defences={FEATURE: own}, cuts=cuts)
        federation.tamper = keep
        finished(await federation.train(spec(BASE, parties=2, key_bits=512, obfuscation="standard")))

    for name in tables:
        run(main(name))
    # four bins and one for missing values: each cut with missing values on either side, and these against all others
    assert sent == {name: {7} for name in tables}


def test_more_bins_than_the_job_has_are_refused_by_name() -> None:
    """Party, table, its file, column and remedy."""
    own = TableConfig(path=Path("t.csv"), id="id", columns=["a"], cuts={"a": [1, 2, 3, 4, 5, 6]})
    with pytest.raises(
        ConfigError,
        match=r"feature-b: \[tables.train\], t.csv: cuts of column 'a' make 7 bins, and max_bin of the job is 6: list "
        r"at most 5, or raise max_bin",
    ):
        check_own(FEATURE, Defences(), Policy(), own, None, spec(BASE))
    check_own(FEATURE, Defences(), Policy(), own, None, spec(replace(BASE, max_bin=7)))
