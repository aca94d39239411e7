"""Rows of the registry: each attack has schemas, words, a place in the document, and its name in the help."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.commands.command import treetap
from treetap.attacks.document import Party
from treetap.attacks.id2graph.schema import KnownLabelFigures
from treetap.attacks.networks.schema import NetworkFigures, VictimFigures
from treetap.attacks.published.schema import PredictionFigures, PublishedDocument
from treetap.attacks.registry import ROWS, Needs, chosen, row, rows
from treetap.errors import BadInput


def test_every_row_is_whole() -> None:
    """One name each; settings that its results name are settings of its schema; one line describes it."""
    assert len({attack.name for attack in ROWS}) == len(ROWS)
    for attack in ROWS:
        known = [] if attack.settings is None else [field.name for field in fields(attack.settings)]
        assert set(attack.reads) <= set(known), attack.name
        assert attack.label
        assert 0 < len(attack.line) <= 120, attack.name
        assert not attack.line.endswith(".")


def test_every_row_has_its_place_in_the_document() -> None:
    """Findings stand under the attack's name, of the schema that the row says."""
    places = {
        Needs.SHARED_LABELS: {name: str(field.annotation) for name, field in Party.model_fields.items()},
        Needs.KNOWN_LABELS: {
            it.alias or name: str(it.annotation) for name, it in KnownLabelFigures.model_fields.items()
        },
        Needs.GRADIENTS: {it.alias or name: str(it.annotation) for name, it in NetworkFigures.model_fields.items()},
        Needs.PUBLISHED: {
            name.replace("_", "-"): str(field.annotation) for name, field in PublishedDocument.model_fields.items()
        },
        Needs.SCORES: {
            name.replace("_", "-"): str(field.annotation) for name, field in PredictionFigures.model_fields.items()
        },
    }
    for needs, place in places.items():
        for name, attack in rows(needs).items():
            assert attack.findings.__name__ in place[name], name
    lists = {str(field.annotation) for field in VictimFigures.model_fields.values()}
    for name, attack in rows(Needs.EMBEDDINGS).items():
        assert any(attack.findings.__name__ in annotation for annotation in lists), name
    assert {attack.needs for attack in ROWS if attack.groups} == {Needs.COLUMNS, Needs.SETS}


def test_help_names_every_attack() -> None:
    """The command runs all but those on columns of victims and on published models, which an audit runs."""
    shown = treetap("attack", "--help").out
    for attack in ROWS:
        assert (attack.name in shown) or attack.needs in (Needs.EMBEDDINGS, Needs.SUMS, Needs.PUBLISHED), attack.name
    limits = treetap("audit", "--help").out
    for attack in ROWS:
        assert not attack.limit or attack.groups or attack.name in limits, attack.name


def test_names_are_checked() -> None:
    """An unknown one is told with the nearest, and one of another view with those of this."""
    with pytest.raises(BadInput, match=r"attack 'id2grph': unknown; known are cl, uni, .*id2graph"):
        row("id2grph")
    assert chosen(["uni", "cl", "uni"], "attack", Needs.COLUMNS, Needs.SETS) == ["cl", "uni"]
    with pytest.raises(ValueError, match="unknown attack on columns 'cl'; known are attributes, decode"):
        chosen(["cl"], "attack on columns", Needs.EMBEDDINGS)
