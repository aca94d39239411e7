"""The ledger of noised weights: one draw for a weight whatever happens, and nothing of it in the model."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.runtime.stored_jobs import publish
from treetap.models.line_file import LineFile
from treetap.models.store import TREES
from treetap.party.pivodl.leaf_weights import NOISED_WEIGHTS, NoiseLedger, clipped
from treetap.party.runtime.job_store import JobStore, Store
from treetap.privacy.zcdp import LeafWeightPrivacy

PRIVACY = LeafWeightPrivacy(epsilon=8.0, delta=1e-5, clip=2.0, releases=40, leaves=40)


class PowerCut(BaseException):
    """Stands for the moment at which a process ends."""


def _job(root: Path) -> JobStore:
    job = Store(root).job("job")
    job.claim("one", "d")
    return job


def test_a_weight_is_drawn_once(tmp_path: Path) -> None:
    """The same bytes come in the same attempt, after a restart, and where the tree was grown again."""
    ledger = NoiseLedger(_job(tmp_path), PRIVACY)
    first = ledger.released(0, 4, np.array([0.3, -0.1]))
    second = ledger.released(1, 4, np.array([0.3, -0.1]))
    assert not np.array_equal(first, second)
    assert ledger.released(0, 4, np.array([0.3, -0.1])).tobytes() == first.tobytes()
    later = NoiseLedger(_job(tmp_path), PRIVACY)
    assert later.draws == 2
    assert later.released(1, 4, np.array([0.3, -0.1])).tobytes() == second.tobytes()
    assert later.released(0, 4, np.array([0.3, -0.1])).tobytes() == first.tobytes()
    assert later.draws == 2


def test_what_is_returned_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before the write releases nothing; one after it leaves the very weight that a resume sends."""
    ledger = NoiseLedger(_job(tmp_path), PRIVACY)
    ledger.released(0, 2, np.array([0.1]))
    put = LineFile.put

    def before(self: LineFile, content: dict[str, Any], index: int) -> None:
        raise PowerCut

    def after(self: LineFile, content: dict[str, Any], index: int) -> None:
        put(self, content, index)
        raise PowerCut

    monkeypatch.setattr(LineFile, "put", before)
    with pytest.raises(PowerCut):
        ledger.released(0, 3, np.array([0.1]))
    monkeypatch.setattr(LineFile, "put", after)
    assert NoiseLedger(_job(tmp_path), PRIVACY).draws == 1
    with pytest.raises(PowerCut):
        ledger.released(0, 3, np.array([0.1]))
    monkeypatch.setattr(LineFile, "put", put)
    resumed = NoiseLedger(_job(tmp_path), PRIVACY)
    assert resumed.draws == 2
    stored = resumed.released(0, 3, np.array([0.1]))
    assert resumed.draws == 2
    assert ledger.released(0, 3, np.array([0.1])).tobytes() == stored.tobytes()


def test_no_exact_weight_is_stored_and_nothing_is_published(tmp_path: Path) -> None:
    """The file has the noised weight alone; the model has the trees alone, and the ledger goes with the progress."""
    job = _job(tmp_path)
    released = NoiseLedger(job, PRIVACY).released(0, 2, np.array([0.123456789]))
    text = (job.folder / NOISED_WEIGHTS).read_text()
    assert "0.123456789" not in text
    assert repr(float(released[0])) in text
    job.lines(TREES).put({"tree": 0}, 0)
    publish(job)
    assert not (job.folder / NOISED_WEIGHTS).exists()
    assert all(repr(float(released[0])).encode() not in path.read_bytes() for path in job.model.iterdir())


def test_the_noise_has_the_stated_variance(tmp_path: Path) -> None:
    """Σ(released − clipped)² over (2Cσ)² is chi-square with a degree of freedom per coordinate; draws are seeded."""
    ledger = NoiseLedger(_job(tmp_path), PRIVACY, random.Random(3).randrange)
    weight = np.array([3.0, -4.0] * 500)
    noise = ledger.released(0, 2, weight) - weight * 2.0 / np.linalg.norm(weight)
    statistic = float((noise**2).sum()) / (2 * 2.0 * 4.366) ** 2
    assert stats.chi2.ppf(5e-10, 1000) < statistic < stats.chi2.ppf(1 - 5e-10, 1000)
    assert stats.kstest(noise / (4 * 4.366), "norm").pvalue > 1e-9


@pytest.mark.parametrize("clip", [1e-9, 0.3, 2.0, 1e6])
def test_a_clipped_weight_never_exceeds_the_bound(clip: float) -> None:
    """In whole units the norm is exact; a weight within the bound is only cut to units, and directions stay."""
    unit = math.ldexp(1.0, math.frexp(clip)[1] - 40)
    bound = math.floor(clip / unit)
    generator = np.random.default_rng(1)
    for size in (1, 2, 10):
        weight = generator.normal(size=size) * clip * 10
        units = clipped(weight, unit, bound)
        assert sum(each * each for each in units) <= bound * bound
        norm = float(np.linalg.norm(weight))
        assert np.allclose(np.array(units) * unit, weight * min(1, clip / norm), rtol=1e-6, atol=clip * 1e-6)
        small = weight / norm * clip * 0.5
        assert np.allclose(np.array(clipped(small, unit, bound)) * unit, small, rtol=0, atol=unit)
