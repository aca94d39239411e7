"""The arithmetic of the benchmarks of trainings: sums, scaling, ratios of pairs, and tables that are grown."""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from treetap import terminal
from treetap.native import arithmetic
from treetap.terminal import PlainConsole

pytestmark = pytest.mark.second_tier

ROOT = Path(__file__).resolve().parents[2]
RESULT = SimpleNamespace(
    seconds={"startup": 9.0, "prepare": 1.0, "align": 5.0, "keys": 7.0, "bin": 2.0, "train": 4.0, "publish": 3.0},
    cpu_seconds={"label-holder": 2.0, "label-holder worker 0": 6.0, "lab": 1.0, "coordinator": 0.5},
    peak_rss_mb={"label-holder": 100.0, "label-holder worker 0": 60.0, "lab": 90.0, "coordinator": 80.0},
    columns={"label-holder": ["a"], "lab": ["b"]},
    metrics={"test": {"auc": 0.75}},
    records={"train": 40, "test": 10},
    ciphertexts={},
    operations={},
    seconds_by_step={},
    traffic=[SimpleNamespace(bytes=1000), SimpleNamespace(bytes=500)],
)


def test_sums_and_their_scaling(benchmark: Any) -> None:
    """Wall without start, alignment and keys; CPU of all processes; both to a product of 4.15 µs; memory by party."""
    module: ModuleType = benchmark("measured_trainings")
    found = module.figures(RESULT, 8.3)
    assert (found["wall_s"], found["cpu_s"]) == (10.0, 9.5)
    assert (found["scaled_wall_s"], found["scaled_cpu_s"]) == (5.0, 4.75)
    assert (found["largest_process_mb"], found["bytes"], found["auc"]) == (100.0, 1500, 0.75)


def test_ratios_of_pairs(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median of each pair's ratio, by setting and backend; none where a backend was not to be had."""
    module: ModuleType = benchmark("backends")
    text = io.StringIO()
    monkeypatch.setattr(terminal, "out", PlainConsole(file=text, width=160))
    runs = [
        {"obfuscation": "short", "arithmetic": name, "wall_s": wall, "cpu_s": cpu}
        for name, wall, cpu in (
            ("gmpy2", 12, 20),
            ("ifma", 3, 4),
            ("avx2", 6, 10),
            ("gmpy2", 12, 30),
            ("ifma", 2, 3),
            ("avx2", 6, 10),
        )
    ]
    alone = {"obfuscation": "long", "arithmetic": "gmpy2", "wall_s": 1, "cpu_s": 1}
    another = {"obfuscation": "other", "arithmetic": "avx2", "wall_s": 1, "cpu_s": 1}
    figures = {"wall": "wall_s", "CPU": "cpu_s"}
    module.print_ratios([*runs, alone, another], ["obfuscation"], figures)
    assert text.getvalue().splitlines() == [
        "short gmpy2 ÷ ifma: wall 5.00, CPU 7.50",
        "short gmpy2 ÷ avx2: wall 2.00, CPU 2.50",
    ]
    assert module.ratios(runs, [], figures)[0] == ({"arithmetic": "ifma"}, {"wall": 5.0, "CPU": 7.5})


def test_backends_are_taken_in_turn(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that the processor has, once; others are named with the reason, and end the program if there is none."""
    module: ModuleType = benchmark("backends")
    training: ModuleType = benchmark("measured_trainings")
    setting = benchmark("two_party").setting(ROOT / "t.csv", [f"c{k}" for k in range(23)], 2000, 5)
    assert [len(party.columns) for party in setting.party] == [12, 11]
    assert {party.arithmetic for party in training.forced(setting, "gmpy2").party} == {"gmpy2"}
    monkeypatch.setattr(arithmetic.library, "forms", lambda: ("avx2", "plain"))
    for form in ("ifma", "avx512"):
        monkeypatch.setattr(arithmetic.library.compiled(), f"treetap_has_{form}", lambda: 0)
    assert module.backends(module.PAIR) == ["gmpy2", "avx2"]
    asked = ["gmpy2", "ifma", "native", "avx512", "avx2", "plain"]
    assert module.backends(asked) == ["gmpy2", "avx2", "plain"]
    said = module.machine(asked)
    assert said["processor"] == arithmetic.library.processor()
    assert set(said["left_open"]) == {"ifma", "avx512"}
    text = io.StringIO()
    monkeypatch.setattr(terminal, "out", PlainConsole(file=text, width=160))
    module.print_machine(asked)
    assert 'ifma: left open: arithmetic = "ifma" cannot be had: the processor has no AVX-512 IFMA' in text.getvalue()
    with pytest.raises(SystemExit, match=r"the processor has no AVX-512 \(F"):
        module.backends(["avx512"])
    monkeypatch.setattr(arithmetic.library, "forms", _unavailable)
    assert module.backends(module.PAIR) == ["gmpy2"]
    with pytest.raises(SystemExit, match=r"cannot be had: none here"):
        module.backends(["native"])


def _unavailable() -> None:
    raise arithmetic.library.Unavailable("none here")


def test_a_table_is_grown(benchmark: Any) -> None:
    """Its own records first; then drawn ones, of which numbers change a little and categories and labels do not."""
    module: ModuleType = benchmark("two_party")
    rng = np.random.default_rng(1)
    amount, kind = rng.normal(0, 100, 200), rng.integers(0, 4, 200)
    table = pa.table({"amount": amount, "kind": kind, module.LABEL: (amount > 0).astype(np.int64)})
    more = module.grown(table, 1000)
    assert more.equals(module.grown(table, 1000))
    assert (more.num_rows, more.slice(0, 200)) == (1000, table)
    drawn = more.slice(200)
    assert set(drawn["kind"].to_pylist()) == set(kind.tolist())
    nearest = np.abs(drawn["amount"].to_numpy()[:, None] - amount[None, :]).min(axis=1)
    assert 0 < np.median(nearest) < 10
    assert len(set(drawn["amount"].to_pylist())) == 800
    assert module.grown(table, 50).equals(table.slice(0, 50))
