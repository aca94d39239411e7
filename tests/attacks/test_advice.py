"""Advice: what is suggested, in which order, from whose figures, and with lines that the files take."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from attacks.advice.advise import advise
from attacks.advice.frontiers_at_hand import given, shipped
from attacks.advice.results import Advice
from attacks.document import Document, parse
from attacks.report import html
from attacks.report.advice import advised, basis, best_lines
from party.defences.settings import Defences
from party.policy import Policy
from tests.attacks.documents import made
from tests.attacks.frontiers import DIGEST, frontier, point
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput
from treetap.privacy.frontiers import FrontierDocument

STRICT = point("id_lmid", {"xi": 0.25, "counts": "shown"}, 0.85, 0.22)
MILD = point("id_lmid", {"xi": 0.5, "counts": "shown"}, 0.88, 0.35)
LOOSE = point("id_lmid", {"xi": 2.0, "counts": "shown"}, 0.9, 0.59)
SHALLOW = point("job", {"max_depth": 2}, 0.86, 0.45)


def _with(advice: Advice, **changes: Any) -> Document:
    return Document.model_validate(made(trees=1).plain() | {"advice": advice.model_dump()} | changes)


def _advice(*points: Any, whose: Any = "this table") -> Advice:
    return advise("boosting", "bank", ["telco", "shop"], (whose, frontier(*points)))


def _own(advice: Advice) -> list[tuple[str, Any, bool]]:
    """Defence, first setting and whether it helps, of what was measured on this table."""
    return [
        (it.defence, next(iter(it.settings.values())), it.helps)
        for it in advice.suggestions
        if it.effects[0].whose == "this table"
    ]


def test_the_cheapest_that_takes_most_away_is_first() -> None:
    """Those that take half of the leak away, by price; too little, or less than a defence for its price, helps not."""
    found = _own(_advice(LOOSE, STRICT, SHALLOW, MILD))
    assert found == [("id_lmid", 0.5, True), ("id_lmid", 0.25, True), ("job", 2, False), ("id_lmid", 2.0, False)]


def test_a_setting_that_no_defence_beats_is_suggested() -> None:
    """Depth 2 takes more than a third away: it helps where no defence takes as much for its price."""
    assert _own(_advice(SHALLOW)) == [("job", 2, True)]
    cheap = point("job", {"max_depth": 2}, 0.9, 0.45)
    assert ("job", 2, True) in _own(_advice(cheap, MILD))


def test_a_setting_that_was_not_measured_here_is_judged_where_it_was() -> None:
    """Depth 2 is beaten on the public tables, also where ID-LMID has figures of this table, which come first."""
    found = _advice(MILD).suggestions
    assert (found[0].defence, found[0].effects[0].whose) == ("id_lmid", "this table")
    assert all(effect.whose == "project" for it in found[1:] for effect in it.effects)
    assert not any(it.helps for it in found if it.defence == "job")


def test_shares_and_prices_over_tables() -> None:
    """The share of what the training adds, the loss of AUC; an undefined AUC is no price."""
    other = frontier(point("id_lmid", {"xi": 0.3, "counts": "paper"}, 0.8, 0.3), table="old.csv")
    (it,) = [
        each
        for each in advise("boosting", "bank", ["telco"], ("given", other)).suggestions
        if "counts" in each.settings
    ]
    assert (it.taken, it.price) == (pytest.approx(0.3 / 0.4), pytest.approx(0.1))
    undefined = _advice(point("id_lmid", {"xi": 0.3}, None, 0.3)).suggestions[0]
    assert (undefined.settings, undefined.price) == ({"xi": 0.3}, None)
    both = advise("boosting", "bank", ["telco"], ("given", frontier(MILD))).suggestions
    mild = next(each for each in both if each.settings == {"xi": 0.5})
    added = sum(effect.v_without - effect.v_own for effect in mild.effects)
    assert mild.taken == pytest.approx(sum(effect.v_without - effect.v_reached for effect in mild.effects) / added)


def test_without_a_leak_nothing_is_suggested() -> None:
    """Where the training adds less than 0.02 to the own columns, what is left of it is noise, and no share is given."""
    document = frontier(MILD)
    calm = document.points[0].model_copy(update={"v_measure": point("", {}, 0.9, 0.6, own=0.59).v_measure})
    found = advise("boosting", "bank", ["telco"], ("this table", document.model_copy(update={"points": [calm, MILD]})))
    (it,) = [it for it in found.suggestions if it.settings == {"xi": 0.5}]
    assert (it.helps, it.taken, it.effects[0].whose) == (False, None, "this table")


def test_an_attacker_that_is_misled_uses_its_own_columns() -> None:
    """Noise can leave ID2Graph below the own columns alone: these count, and no more than everything is taken away."""
    (it, *_) = _advice(point("label_dp", {"epsilon": 0.5, "stages": 1}, 0.8, 0.05)).suggestions
    assert (it.taken, it.effects[0].v_left) == (1.0, 0.05)
    assert "V-measure 0.600 → 0.200" in best_lines(_with(_advice(*[point("label_dp", {"epsilon": 0.5}, 0.8, 0.05)])))[0]


def test_of_one_noise_the_cheapest_repair_is_suggested() -> None:
    """Repairs leave V-measure as it is: of the four models of one noise the one that costs least is advised."""
    noise, other = {"epsilon": 1.0, "stages": 2}, {"epsilon": 0.5, "stages": 2}
    found = _advice(
        point("label_dp", noise, 0.7, 0.3),
        point("grafting", noise, 0.88, 0.3),
        point("grafting + refit", noise, 0.86, 0.3),
        point("label_dp", other, 0.6, 0.21),
    )
    helping = [(name, epsilon) for name, epsilon, helps in _own(found) if helps]
    assert helping == [("grafting", 1.0), ("label_dp", 0.5)]
    shown = advised(_with(found))
    assert shown is not None
    assert not any("ε 1.0" in row.setting and row.tables == "this table" for row in shown.useless)
    assert any(row[:2] == ["Label differential privacy, ε 1.0, stages 2", "bank"] for row in shown.useless_by_table)


def test_a_frontier_of_other_data_is_named_and_not_taken_for_this_table(tmp_path: Path) -> None:
    """By the digest: another one, and none, make it one table among others, and the page says which."""
    path = tmp_path / "frontier.json"
    path.write_text(frontier(MILD).model_dump_json())
    assert given(path, "boosting", DIGEST)[0] == "this table"
    for digest in ("00" * 32, None):
        whose, document = given(path, "boosting", digest)
        assert whose == "given"
        advice = advise("boosting", "bank", ["telco"], (whose, document))
        assert all(effect.whose != "this table" for it in advice.suggestions for effect in it.effects)
        mild = next(it for it in advice.suggestions if it.settings == {"xi": 0.5})
        assert {"bank.csv", "fars.parquet"} <= {effect.table for effect in mild.effects}
        assert "of another table than this one, as far as their digests tell: bank (800 records" in html(_with(advice))
    assert any("on this very table: bank (" in said for said in basis(_advice(MILD), "boosting"))


def test_a_frontier_of_another_protocol_is_refused(tmp_path: Path) -> None:
    """Its defences have other effects: the refusal names the file and both protocols."""
    path = tmp_path / "frontier.json"
    path.write_text(frontier(MILD).model_dump_json())
    with pytest.raises(
        BadInput, match=r"frontier\.json: was measured with protocol 'boosting', but the job's is 'forest'"
    ):
        given(path, "forest", DIGEST)


def test_a_frontier_that_tells_no_effect_is_refused(tmp_path: Path) -> None:
    """Without the point without a defence, or without figures of ID2Graph, nothing says what a defence takes away."""
    path, whole = tmp_path / "frontier.json", frontier(MILD)
    for changed in ({"points": whole.points[1:]}, {"attacks": ["uni", "cl"]}):
        path.write_text(whole.model_copy(update=changed).model_dump_json())
        with pytest.raises(BadInput, match="lacks ID2Graph's V-measure or the point without a defence"):
            given(path, "boosting", DIGEST)


@pytest.mark.parametrize("protocol", ["boosting", "forest"])
def test_lines_are_those_that_the_files_take(protocol: str) -> None:
    """Every line of every suggestion, the project's own and all repairs, is read by the schema of its file."""
    noise = {"epsilon": 1.0, "stages": 2}
    repairs = [
        point(name, noise, 0.9, 0.3) for name in ("label_dp", "label_dp + refit", "grafting", "grafting + refit")
    ]
    whole = frontier(*repairs, protocol=protocol)
    advice = advise(protocol, "bank", ["telco", "shop-2"], ("this table", whole))
    assert {it.defence for it in advice.suggestions} >= {"id_lmid", "reduced_leakage", "grafting + refit", "job"}
    for it in advice.suggestions:
        for part in it.lines:
            content = tomllib.loads("\n".join(part.lines))
            if part.file == "job file":
                JobTable.model_validate(content["job"] | {"protocol": protocol})
            elif part.file == "policy of bank":
                Policy.model_validate(content)
            else:
                assert part.file == "party file of bank"
                assert Defences.model_validate(content["defences"]).named()
    dropout = [it.lines[0].lines[1] for it in advice.suggestions if "party_dropout" in it.settings]
    assert dropout == ["party_dropout = {telco = 0.5, shop-2 = 0.5}"]


def test_a_protocol_without_these_defences_is_advised_by_its_own_parameters() -> None:
    """PIVODL has none of them: no suggestion, no word of them on the page, its own parameters with their lines."""
    advice = advise("pivodl", "north", ["east"], None)
    assert (advice.suggestions, advice.sources) == ([], [])
    page = html(_with(advice, protocol="pivodl"))
    assert "None of the defences of protocols with one label holder exists in pivodl" in page
    assert "[defences]" not in page
    for it in advice.parameters:
        job = tomllib.loads("\n".join(it.lines[0].lines))["job"]
        JobTable.model_validate(job | {"protocol": "pivodl"})
        assert it.lines[0].lines[1] in html(_with(advice, protocol="pivodl")).replace("&#34;", '"')


def test_the_shipped_frontiers_are_whole() -> None:
    """Of both protocols the same four tables, three seeds, all defences and settings of the job."""
    for protocol in ("boosting", "forest"):
        documents = shipped(protocol)
        assert [it.table for it in documents] == [
            *("breast_cancer.parquet", "credit_default.parquet", "fars.parquet", "obesity.parquet")
        ]
        for it in documents:
            assert (it.protocol, it.seeds) == (protocol, [0, 1, 2])
            assert {"none", "id_lmid", "reduced_leakage", "grafting + refit", "job"} <= {
                one.defence for one in it.points
            }
    assert shipped("pivodl") == []


def test_what_does_not_help_is_not_suggested() -> None:
    """By the project's figures a lower learning rate, fewer records, dropout and depth 2 are what does not help."""
    found = advised(made(trees=1))
    assert found is not None
    assert found.measures[0].name == "ID-LMID"
    assert not any(it.name == "Settings of the job" for it in found.measures)
    useless = {row.setting for row in found.useless}
    assert {"learning_rate 0.05", "subsample 0.5", "party_dropout 0.5", "max_depth 2"} <= useless
    page = html(made(trees=1))
    assert page.index("id_lmid = {xi = 0.5}") < page.index("What does not help") < page.index("learning_rate 0.05")


def test_the_page_of_the_audit_has_the_shipped_figures() -> None:
    """Every row of ID-LMID in the documentation's table has the shares and prices that the project's frontiers give."""
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    found = {
        (protocol, it.settings["xi"]): (f"{100 * (it.taken or 0):.0f} %", f"{it.price:.3f}".removeprefix("0"))
        for protocol in ("boosting", "forest")
        for it in advise(protocol, "bank", ["telco"], None).suggestions
        if it.defence == "id_lmid" and it.helps
    }
    for xi in (0.1, 0.25, 0.5):
        cells = [*found["boosting", xi], *found["forest", xi]]
        assert f"| `id_lmid = {{xi = {xi}}}` | {' | '.join(cells)} |" in text


def test_a_terminal_has_three_lines() -> None:
    """The best three, each with its place, effect, price and tables."""
    lines = best_lines(_with(_advice(LOOSE, STRICT, SHALLOW, MILD)))
    assert len(lines) == 3
    assert lines[0] == (
        "ID-LMID, ξ 0.5 (party file of bank: [defences] id_lmid = {xi = 0.5}): V-measure 0.600 → 0.350, 62 % of what "
        "the training adds taken away, 0.020 AUC lost; measured on this table"
    )


def test_documents_of_older_versions_have_no_advice() -> None:
    """They are read, their page has no such section; a field that is none is refused by name."""
    content = made(trees=1).plain()
    del content["advice"]
    assert "What lowers this" not in html(content)
    assert FrontierDocument.model_validate_json(frontier(MILD).model_dump_json()) == frontier(MILD)
    wrong = made(trees=1).plain()
    wrong["advice"]["suggestions"][0]["praise"] = 1
    with pytest.raises(BadInput, match=r"advice\.suggestions\.0\.praise"):
        parse(wrong)
    del wrong["advice"]["suggestions"][0]["praise"]
    wrong["advice"]["suggestions"][0]["defence"] = "prayer"
    with pytest.raises(BadInput, match=r"advice\.suggestions\.0\.defence"):
        parse(wrong)
