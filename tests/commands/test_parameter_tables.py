"""Nested tables of a job file, made from the dataclasses of a protocol's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import create_model

from tests.commands.command import write
from treetap.commands.jobs.job_file import plain, toml_fields
from treetap.errors import ConfigError
from treetap.neural.params import Bottom, Top
from treetap.strict import Strict, load


@dataclass(frozen=True)
class Inner:
    """A table in which a key is needed."""

    size: int
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outer:
    """Tables by name, a table, and plain values."""

    parts: Mapping[str, Inner] = field(default_factory=dict)
    bottom: Mapping[str, Bottom] = field(default_factory=dict)
    top: Top = field(default_factory=Top)
    rate: float | None = None


FILE = create_model("FILE", __base__=Strict, **{name: (kind | None, None) for name, kind in toml_fields(Outer).items()})  # type: ignore[call-overload]


def _read(folder: Path, text: str) -> Outer:
    found = load(write(folder / "p.toml", text), FILE)
    return Outer(**{name: plain(getattr(found, name)) for name in found.model_fields_set})


def test_tables_become_dataclasses(tmp_path: Path) -> None:
    """Inline tables, dotted keys and headers alike; lists become tuples, and what is not given has its default."""
    assert _read(tmp_path, "") == Outer()
    inline = _read(
        tmp_path,
        'rate = 1\nbottom.default = {kind = "cnn", channels = [16, 32], norm = "batch"}\n'
        "bottom.feature-b = {hidden = [64]}\ntop = {hidden = []}\nparts = {a = {size = 3, shares = [1, 0.5]}}\n",
    )
    assert inline == Outer(
        {"a": Inner(3, (1.0, 0.5))},
        {"default": Bottom("cnn", channels=(16, 32), norm="batch"), "feature-b": Bottom(hidden=(64,))},
        Top(),
        1.0,
    )
    assert _read(tmp_path, "[bottom.default]\nwidth = 7\n[top]\nhidden = [3, 4]\n") == Outer(
        bottom={"default": Bottom(width=7)}, top=Top((3, 4))
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("bottom.default = {depth = 3}", r"bottom\.default\.depth: unknown key"),
        ('bottom.feature-b = {width = "32"}', r"bottom\.feature-b\.width: .*valid integer \(it is '32'\)"),
        ("bottom.b.hidden = [64, 1.5]", r"bottom\.b\.hidden\.\[2\]: .*integer \(it is 1\.5\)"),
        ("bottom.b.hidden = 64", r"bottom\.b\.hidden: .*list \(it is 64\)"),
        ('bottom = {kind = "mlp"}', r"bottom\.kind: a table of keys and values is needed \(it is 'mlp'\)"),
        ("bottom = 3", r"bottom: .*dictionary \(it is 3\)"),
        ("top = [64]", r"top: a table of keys and values is needed"),
        ("bottom.'A B' = {}", r"bottom\.A B"),
        ("parts.a = {shares = [true]}", r"parts\.a\.size: is missing"),
        ("parts.a = {size = 1, shares = [true]}", r"parts\.a\.shares\.\[1\]: .*number"),
    ],
)
def test_faults_have_their_path(text: str, fault: str, tmp_path: Path) -> None:
    """Unknown and missing keys, other types and names that no party has."""
    with pytest.raises(ConfigError, match=fault):
        _read(tmp_path, text)
