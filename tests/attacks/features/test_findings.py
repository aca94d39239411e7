"""The attacks of a label holder on columns: planted bottoms, the two scales, what attacks read, and bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.attacks.features.planted import QUICK, Planted, figures, linear, planted, table_of
from tests.attacks.present import present
from treetap.attacks.features.attributes import AttributeGuess
from treetap.attacks.features.evidence import SCALES, Column, FeatureEvidence, RealBottom, RecordSpace
from treetap.attacks.features.findings import _attribute, _compared, findings
from treetap.attacks.networks.schema import Attribute, FeatureSettings, Reconstruction
from treetap.attacks.registry import Needs, row, rows
from treetap.errors import BadInput

pytestmark = pytest.mark.second_tier

RECORDS, KNOWN = 160, 120
#: Patterns of which every planted image is a mixture.
PATTERNS = 3


def numbers(records: int = RECORDS) -> dict[str, Any]:
    """A column of numbers, and two of few whole numbers."""
    draw = np.random.default_rng(0)
    return {
        "age": draw.normal(40.0, 9.0, records),
        "children": draw.integers(0, 3, records),
        "rooms": draw.integers(1, 4, records),
    }


def jobs(records: int = RECORDS) -> dict[str, Any]:
    """A column of numbers, and one of texts."""
    draw = np.random.default_rng(0)
    return {"age": draw.random(records), "job": np.array(["clerk", "none"], dtype=object)[draw.integers(0, 2, records)]}


def images(records: int = RECORDS) -> dict[str, Any]:
    """Images of 12 × 12 pixels that are mixtures of few patterns."""
    draw = np.random.default_rng(0)
    mixed = draw.dirichlet(np.ones(PATTERNS), records) @ draw.random((PATTERNS, 144))
    return {"face": np.rint(255 * mixed).astype(np.uint8).reshape(records, 12, 12)}


@pytest.fixture(scope="module")
def table() -> tuple[Planted, RealBottom]:
    """A table under a linear bottom."""
    return linear(numbers(), KNOWN)


@pytest.fixture(scope="module")
def faces() -> tuple[Planted, RealBottom]:
    """Images under a linear bottom."""
    return linear(images(), KNOWN, replace(QUICK, total_variation=0.0))


def both(found: Reconstruction) -> tuple[float, float, float]:
    """The errors of a reconstruction, raw and standardised, and that of the floor."""
    return present(found.raw).mse, present(found.standardised).mse, present(found.floor).mse


def test_a_linear_bottom_of_a_table_is_inverted(table: tuple[Planted, RealBottom]) -> None:
    """Records by every attack, and single columns."""
    given, real = Planted(replace(table[0].evidence, attributes=("age", "rooms")), table[0].truth), table[1]
    found = given.figures("decode", "match", "match-exact", "attributes", real=real)
    assert [each.attack for each in found.reconstructions] == ["decode", "match", "match-exact"]
    for each in found.reconstructions:
        *errors, floor = both(each)
        assert max(errors) < (1e-3 if each.attack == "match-exact" else 0.02) < 0.3 < floor
    age, rooms = found.attributes
    assert (age.kind, age.classes, age.raw) == ("number", None, None)
    assert min(present(age.raw_r2), present(age.standardised_r2)) > 0.98
    assert (rooms.kind, rooms.classes) == ("class", 3)
    for scores in map(present, (rooms.raw, rooms.standardised)):
        assert (scores.accuracy, scores.f1) == (1.0, 1.0)
    assert present(rooms.floor).accuracy < 0.6
    assert (found.auxiliary, found.victims, found.left_out, found.reasons) == (KNOWN, RECORDS - KNOWN, 0, {})


def test_a_linear_bottom_of_images_is_inverted(faces: tuple[Planted, RealBottom]) -> None:
    """With SSIM near 1, and pictures of the first victims."""
    given, real = faces
    found = given.figures("decode", "match-exact", real=real)
    for each in found.reconstructions:
        assert present(present(each.raw).ssim) > 0.98 > 0.93 > present(present(each.floor).ssim)
        assert present(present(each.raw).psnr) > 35
    assert [each.column for each in found.pictures] == ["face", "face"]
    scales = [f"{attack}, {scale}" for attack in ("decode", "match-exact") for scale in ("raw", "standardised")]
    assert list(found.pictures[0].images) == ["truth", "floor", *scales]


def test_constant_embeddings_give_the_floor() -> None:
    """The mean record and the majority class."""
    columns = {"children": np.arange(RECORDS) % 4 == 0}
    found = planted(columns, np.full((RECORDS, 4), 0.7), KNOWN).figures("decode", "attributes")
    raw, standardised, floor = both(found.reconstructions[0])
    assert raw == pytest.approx(floor, rel=0.02)
    assert standardised == pytest.approx(floor, rel=0.02)
    children = found.attributes[0]
    assert children.raw == children.standardised == children.floor


class Untouchable:
    """A party's model of which nothing may be read."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


def test_raw_is_standardised_where_embeddings_are_white() -> None:
    """Bit by bit, of embeddings of ±1 that are balanced: their mean is 0 and their deviation 1 without rounding.

    No attack but `match-exact` reads the party's own model.
    """
    draw = np.random.default_rng(2)
    signs, victims = draw.choice([-1.0, 1.0], (KNOWN // 2, 6)), draw.choice([-1.0, 1.0], (RECORDS - KNOWN, 6))
    columns = {"job": jobs()["job"]}
    given = planted(columns, np.concatenate([signs, -signs, victims]), KNOWN)
    found = figures(given.evidence, given.truth, Untouchable(), ["decode", "match", "attributes"])
    assert [each.raw for each in found.reconstructions] == [each.standardised for each in found.reconstructions]
    assert found.attributes[0].raw == found.attributes[0].standardised
    with pytest.raises(AssertionError):
        figures(given.evidence, given.truth, Untouchable(), ["match-exact"])
    assert list(given.figures("match-exact").reasons) == ["match-exact"]


def test_scaled_embeddings_are_standardised_back(table: tuple[Planted, RealBottom]) -> None:
    """A factor of 2⁻¹³ leaves every bit of the standardised attacks, which repeat, as it was; the raw ones fall."""
    given = Planted(replace(table[0].evidence, attributes=("rooms",)), table[0].truth)
    scaled = given.changed(lambda values: values * np.float32(2.0**-13))
    before, after = given.figures("decode", "attributes"), scaled.figures("decode", "attributes")
    assert after.reconstructions[0].standardised == before.reconstructions[0].standardised
    assert both(after.reconstructions[0])[0] > 10 * both(before.reconstructions[0])[0]
    assert after.reconstructions[0].headline == after.attributes[0].headline == "standardised"
    assert after.attributes[0].standardised == before.attributes[0].standardised
    assert present(after.attributes[0].raw).accuracy < 0.9


def test_no_attack_reads_the_truth(faces: tuple[Planted, RealBottom]) -> None:
    """With the victims' columns permuted, or absent, they guess the same; without them nothing is scored."""
    given, real = faces
    other = replace(given.truth, tensors={"face": given.truth.tensors["face"][::-1]})
    found = [figures(given.evidence, truth, real, ["match-exact"]) for truth in (given.truth, other, None)]
    guessed = [
        [{name: url for name, url in each.images.items() if name != "truth"} for each in one.pictures] for one in found
    ]
    assert guessed[0] == guessed[1] == guessed[2]
    assert found[0].reconstructions[0].raw != found[1].reconstructions[0].raw
    assert found[2].reconstructions[0].raw is None
    assert (found[2].scored, list(found[2].reasons)) == (False, ["scores"])


def test_records_are_drawn_where_there_are_many(table: tuple[Planted, RealBottom]) -> None:
    """By the settings, and the rest is counted; progress names each part."""
    settings = replace(QUICK, most_auxiliary=90, most_victims=30)
    evidence = replace(table[0].evidence, settings=settings, attributes=("rooms",))
    parts: list[str] = []
    found = findings(evidence, table[0].truth, None, {"attributes": row("attributes").run}, parts.append)
    assert (found["auxiliary"], found["victims"], found["left_out"]) == (90, 30, 10)
    assert (found["attributes"][0].auxiliary, found["attributes"][0].records) == (90, 30)
    assert parts == ["attributes, rooms"]


def test_evidence_is_checked(table: tuple[Planted, RealBottom]) -> None:
    """It has no victim's columns, and embeddings of all records that can be used."""
    given = table[0].evidence

    def refused(match: str, **changes: Any) -> None:
        with pytest.raises(BadInput, match=match):
            replace(given, **changes)

    refused("1 records are among the victims, such as 'r000007'", victims=["r000007", *given.victims[1:]])
    refused("has no column 'salary'", attributes=("salary",))
    refused("embeddings of shape", known=given.known[:, 1:])
    refused("embeddings of victims are not finite", embeddings=np.full_like(given.embeddings, np.nan))
    none = np.zeros(0, dtype=np.int64)
    refused("there are no auxiliary records", auxiliary=given.auxiliary.take(none), known=given.known[none])
    refused("there are no victims", victims=[], embeddings=given.embeddings[none])


def test_the_truth_is_checked(faces: tuple[Planted, RealBottom]) -> None:
    """It has the victims, row by row, with the columns and shapes of the auxiliary records."""
    given, seen = planted(jobs(), np.ones((RECORDS, 2)), KNOWN), faces[0]

    def refused(match: str, evidence: FeatureEvidence, columns: dict[str, Any], first: int = KNOWN) -> None:
        truth = table_of(columns, name="truth", first=first)
        with pytest.raises(BadInput, match=match):
            findings(evidence, truth, None, {})

    victims = RECORDS - KNOWN
    whole = jobs(victims)
    refused("truth.parquet: its records are not the victims", given.evidence, whole, first=0)
    refused("truth.parquet: has no column 'job'", given.evidence, {"age": whole["age"]})
    refused("'job' holds numbers, and that of auxiliary.parquet text", given.evidence, {**whole, "job": whole["age"]})
    refused("'age' holds text, and that of auxiliary.parquet numbers", given.evidence, {**whole, "age": whole["job"]})
    with pytest.raises(BadInput, match="a number too far"):
        RecordSpace.of(given.evidence.auxiliary).records(table_of({**whole, "age": np.full(victims, 1e300)}))
    large = {"face": np.zeros((victims, 14, 12), dtype=np.uint8)}
    refused(
        "column 'face' holds images of 14 x 12, and that of auxiliary.parquet images of 12 x 12", seen.evidence, large
    )


def test_a_partys_model_of_other_columns_is_refused(faces: tuple[Planted, RealBottom]) -> None:
    """Before any attack runs: images of another shape, text instead of images, or no column of it."""
    real = faces[1]
    for columns, match in (
        ({"face": np.zeros((RECORDS, 14, 12), dtype=np.uint8)}, "holds images of 1 x 14 x 12, and the .* 1 x 12 x 12"),
        (
            {"face": jobs()["job"]},
            "column 'face' holds text, and the feature party's model takes images of 1 x 12 x 12",
        ),
        ({"age": jobs()["age"]}, "has no column of the feature party's model"),
    ):
        given, parts = planted(columns, np.ones((RECORDS, 2)), KNOWN), list[str]()
        with pytest.raises(BadInput, match=match):
            findings(
                given.evidence, None, real, {name: it.run for name, it in rows(Needs.EMBEDDINGS).items()}, parts.append
            )
        assert parts == []


def test_numbers_that_are_not_finite_are_counted() -> None:
    """A network that is fitted to huge embeddings guesses none; the floor stands in, which is said."""
    given = planted(jobs(), np.random.default_rng(0).choice([-3e38, 3e38], (RECORDS, 4)), KNOWN)
    found = given.figures("decode")
    assert found.reasons["decode, raw"].endswith(
        "numbers of the guess are not finite: those of the floor stand for them"
    )
    assert list(found.reasons) == ["decode, raw"]
    raw, standardised, floor = both(found.reconstructions[0])
    assert raw == floor != standardised


def test_settings_are_checked() -> None:
    """An unknown one, and one out of its range, by name."""
    with pytest.raises(BadInput, match="unknown: steps"):
        FeatureSettings.read({"steps": 3})
    with pytest.raises(BadInput, match="matched must be a whole number in"):
        FeatureSettings.read({"matched": 0})


@pytest.mark.campaign
def test_guesses_that_know_nothing_are_no_finding() -> None:
    """Of many columns some are guessed better than by their majority class, by chance, as others are worse."""
    draw, words = np.random.default_rng(0), list[str]()
    for _ in range(25):
        guesses, figured, truth = list[AttributeGuess](), list[Attribute](), dict[str, Column]()
        for number in range(30):
            name, share = f"c{number}", draw.uniform(0.45, 0.55)
            cells, *guessed = (np.where(draw.random(300) < share, 0.0, 1.0) for _ in range(3))
            truth[name] = Column(name, ("a", "b"), cells)
            guess = AttributeGuess(name, ("a", "b"), 100, float(share < 0.5), dict(zip(SCALES, guessed, strict=True)))
            guesses.append(guess)
            figured.append(_attribute(guess, 300, truth[name]))
        compared = present(_compared(guesses, figured, truth, 300))
        words.append(compared.word)
    assert set(words) == {"nothing found"}
