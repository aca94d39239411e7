"""The table `[defences]`: what is read of it for split networks, and which faults of it are named."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from treetap.errors import ConfigError
from treetap.neural.defences import GradientDefence, LabelDefences
from treetap.party.defences.settings import OF_COLUMNS, Defences
from treetap.strict import load

#: The value of `gradient` → the change of the gradients.
GRADIENTS = {
    '{kind = "noise", scale = 1e-3}': GradientDefence("noise", scale=1e-3),
    '{kind = "compression", share = 1.0}': GradientDefence("compression", share=1.0),
    '{kind = "ppdl", share = 0.5, scale = 0.1}': GradientDefence("ppdl", scale=0.1, share=0.5),
    '{kind = "ppdl", share = 0.5, scale = 0.1, threshold = 0.01}': GradientDefence("ppdl", 0.1, 0.5, 0.01),
    '{kind = "levels", levels = 2}': GradientDefence("levels", levels=2),
    '{kind = "levels", levels = 1, scale = 2}': GradientDefence("levels", scale=2.0, levels=1),
}
#: A line of the table → the fault.
FAULTS = {
    'gradient = {kind = "noise"}': 'gradient: kind = "noise" needs scale: add it',
    'gradient = {kind = "ppdl", threshold = 0.1}': 'gradient: kind = "ppdl" needs share and scale: add it',
    'gradient = {kind = "compression", share = 0.9, scale = 1.0}': 'gradient: scale: kind = "compression" has none; '
    "leave it out (scale is of noise and ppdl and levels)",
    'gradient = {kind = "noise", scale = 0.1, levels = 2}': 'levels: kind = "noise" has none; leave it out (levels is',
    'gradient = {kind = "noise", scale = 0}': "gradient.scale: Input should be greater than 0 (it is 0)",
    'gradient = {kind = "noise", scale = "0"}': "Input should be a valid number, without quotes (it is '0')",
    'gradient = {kind = "noise", scale = inf}': "gradient.scale: Input should be a finite number",
    'gradient = {kind = "compression", share = 1.5}': "gradient.share: Input should be less than or equal to 1",
    'gradient = {kind = "levels", levels = 2.5}': "gradient.levels: Input should be a valid integer",
    'gradient = {kind = "dp", scale = 1.0}': "gradient.kind: Input should be 'noise', 'compression'",
    "gradient = {scale = 1.0}": "gradient.kind: is missing",
    'gradient = {kind = "noise", scale = 0.1, seed = 3}': "gradient.seed: ",
    "dimip = {feature-b = -0.1}": "dimip.feature-b: Input should be greater than or equal to 0",
    "dimip = {feature-b = nan}": "dimip.feature-b: Input should be a finite number",
    "dimip = {feature-b = true}": "dimip.feature-b: Input should be a valid number",
    "dimip = 0.3": "dimip: must be a table, λ by feature party: dimip = {feature-b = 0.3}",
}


@pytest.mark.parametrize("value", GRADIENTS)
def test_a_change_of_gradients(value: str, tmp_path: Path) -> None:
    """Each kind with the keys it needs and those it may have."""
    defences = _read(tmp_path, f"gradient = {value}")
    assert defences.of_networks == LabelDefences(gradient=GRADIENTS[value])
    assert defences.named() == ["gradient"]


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_is_named_with_its_key(line: str, tmp_path: Path) -> None:
    """A number out of range, a key of another kind, a key too few."""
    with pytest.raises(ConfigError) as caught:
        _read(tmp_path, line)
    assert FAULTS[line] in str(caught.value)


def test_dimip_has_a_weight_for_each_party(tmp_path: Path) -> None:
    """Beside a change of the gradients and noisy labels; nothing of either is on by default."""
    defences = _read(
        tmp_path,
        'dimip = {feature-b = 0.3, feature-c = 0}\ngradient = {kind = "noise", scale = 1}\nlabel_dp = {epsilon = 1.0}',
    )
    assert defences.of_networks.dimip == {"feature-b": 0.3, "feature-c": 0.0}
    assert defences.named() == ["label_dp", "dimip", "gradient"]
    assert Defences().of_networks == LabelDefences()


def _read(folder: Path, lines: str) -> Defences:
    (folder / "defences.toml").write_text(lines, encoding="utf-8")
    return load(folder / "defences.toml", Defences)


def test_a_defence_is_refused_where_it_belongs() -> None:
    """Feature parties refuse by what `OF_COLUMNS` names: what a setting says it defends is in that list, or is not."""
    (settings,) = ast.parse(inspect.getsource(Defences)).body
    body: list[Any] = vars(settings)["body"]
    said = {
        line.target.id: text.value.value.split(maxsplit=1)[0].strip(",")
        for line, text in pairwise(body)
        if isinstance(line, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    named = {name: word for name, word in said.items() if word in {"Labels", "Columns"}}
    assert {name for name, word in named.items() if word == "Columns"} == set(OF_COLUMNS)
    assert said.keys() - named.keys() == {"grafting", "refit", "sensitivity_norm", "projections"}  # of another one
