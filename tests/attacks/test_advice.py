"""Advice: what is suggested, in which order, from whose figures, and with lines that the files take."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measured_networks
from tests.attacks.documents import made, printed
from tests.attacks.frontiers import DIGEST, frontier, point
from tests.attacks.present import present
from treetap.attacks.advice import networks
from treetap.attacks.advice.advise import AdvisedJob, advise, given, shipped, told
from treetap.attacks.advice.names import Advice, Guessed
from treetap.attacks.document import Document, parse
from treetap.attacks.report.advice import advised, basis
from treetap.attacks.report.page import html
from treetap.attacks.verdict import Compared, Word
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput
from treetap.pages.section import Cell, Code, Section, Table, Text
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.privacy.frontiers import FrontierDocument, Measured

STRICT = point("id_lmid", {"xi": 0.25, "counts": "shown"}, 0.85, 0.22)
MILD = point("id_lmid", {"xi": 0.5, "counts": "shown"}, 0.88, 0.35)
LOOSE = point("id_lmid", {"xi": 2.0, "counts": "shown"}, 0.9, 0.59)
SHALLOW = point("job", {"max_depth": 2}, 0.86, 0.45)
ADDITIVE = point("job", {"model": "additive", "n_estimators": 10}, 0.87, 0.3)
JOB = AdvisedJob(
    "boosting",
    "bank",
    ["telco", "shop"],
    2,
    {"accuracy": Guessed(before=0.2, after=0.6)},
    "severe",
    {"max_depth": 6},
    {},
)
#: The parameters of a job of pivodl as they are unless it says otherwise.
PIVODL = {"epsilon": None, "delta": 1e-5, "clip": 2.0, "gain_comparison": "announce", "instance_threshold": 10}


def _with(advice: Advice, **changes: Any) -> Document:
    return Document.model_validate(made(trees=1).plain() | {"advice": advice.model_dump()} | changes)


def _advice(*points: Any, whose: Any = "this table", job: AdvisedJob = JOB) -> Advice:
    return advise(job, (whose, frontier(*points)))


def _like(document: FrontierDocument, factor: float = 1.0) -> AdvisedJob:
    """A job whose training tells that many times as much of what was left as that of a table without a defence."""
    without, before = present(document.undefended), present(document.before.mean)
    guessed = Guessed(before=before, after=before + factor * present(without.added.mean))
    return replace(
        JOB, protocol=document.protocol, classes=document.classes, guessed={document.measure: guessed}, word="notable"
    )


def _of(table: str, protocol: str = "boosting") -> FrontierDocument:
    """The shipped frontier of a table."""
    return next(it for it in shipped(protocol) if it.table == f"{table}.parquet")


def _own(advice: Advice) -> list[tuple[str, Any, bool]]:
    """Defence, first setting and whether it helps."""
    return [(it.defence, next(iter(it.settings.values())), it.helps) for it in advice.suggestions]


def _printed(document: Document, width: int) -> list[str]:
    """Each run of indented lines of the advice as the terminal has it."""
    found, inside = [], False
    for line in "\n".join(printed(document, width)).partition("What lowers this")[2].partition("\n\n")[0].splitlines():
        if line.startswith("    "):
            found[len(found) :] = [] if inside else [""]
            found[-1] += line.removeprefix("    ") + "\n"
        inside = line.startswith("    ")
    return found


def _taken(text: str, protocol: str) -> None:
    """Read lines of TOML by the schema of the file that they are for, which they name above them or beside them."""
    content = tomllib.loads(text)
    if "job" in content:
        assert list(content) == ["job"]
        JobTable.model_validate(content["job"] | {"protocol": protocol})
    elif "defences" in content:
        assert list(content) == ["defences"]
        assert Defences.model_validate(content["defences"]).named()
    else:
        assert content
        Policy.model_validate(content)


def test_the_cheapest_that_takes_most_away_is_first() -> None:
    """Those that take half of the leak away, by price; too little, or less than a defence for its price, helps not."""
    found = _own(_advice(LOOSE, STRICT, SHALLOW, MILD))
    assert found == [("id_lmid", 0.5, True), ("id_lmid", 0.25, True), ("job", 2, False), ("id_lmid", 2.0, False)]


def test_a_setting_that_no_defence_beats_is_suggested() -> None:
    """Depth 2 takes more than a third away: it helps where no defence takes as much for its price."""
    assert _own(_advice(SHALLOW)) == [("job", 2, True)]
    cheap = point("job", {"max_depth": 2}, 0.9, 0.45)
    assert ("job", 2, True) in _own(_advice(cheap, MILD))


def test_shares_and_prices() -> None:
    """The share of what the training adds, the loss of AUC; an undefined AUC is no price."""
    (it,) = _advice(point("id_lmid", {"xi": 0.3, "counts": "paper"}, 0.8, 0.3)).suggestions
    assert (it.taken, it.price) == (pytest.approx(0.3 / 0.4), pytest.approx(0.1))
    (undefined,) = _advice(point("id_lmid", {"xi": 0.3}, None, 0.3)).suggestions
    assert (undefined.settings, undefined.price) == ({"xi": 0.3}, None)


def test_without_a_leak_on_the_measured_table_nothing_helps() -> None:
    """Where the training adds less than 0.02 to what is guessed, the rest is noise, and no share is given."""
    document = frontier(MILD)
    calm = document.points[0].model_copy(update={"added": Measured(mean=0.01)})
    (it,) = advise(JOB, ("this table", document.model_copy(update={"points": [calm, MILD]}))).suggestions
    assert (it.helps, it.taken) == (False, None)


@pytest.mark.parametrize("word", ["nothing found", "little"])
def test_where_the_verdict_finds_little_there_is_little_to_lower(word: Word) -> None:
    """No table, whatever frontiers are at hand."""
    advice = _advice(MILD, job=replace(JOB, word=word))
    assert (advice.source, advice.suggestions, advice.withheld) == (None, [], "little to lower")
    page = html(_with(advice))
    assert "There is little to lower here" in page
    assert "lines to write" not in page
    assert _printed(_with(advice), 120) == []


def test_the_nearest_table_is_shown_and_no_mean() -> None:
    """As many classes, and of these the one whose training tells most nearly as much, at most twice as much or half."""
    for protocol in ("boosting", "forest"):
        for document in shipped(protocol):
            for factor, table in ((1.1, document.table), (0.3, None)):
                source = advise(_like(document, factor), None).source
                assert (None if source is None else source.table) == table
    assert advise(replace(JOB, classes=3), None).withheld == "no table is near"
    page = html(_with(advise(_like(_of("breast_cancer")), None)))
    assert "Measured elsewhere, on breast_cancer (" in page
    assert "the best first" not in page


def test_what_is_told_is_of_the_party_that_is_told_most() -> None:
    """By measure, of the attacks that frontiers have; the word is the worst of all."""
    usual: dict[str, Any] = {"before_how": "", "reached_how": "", "error": 0.0, "tries": 1}
    compared = [
        Compared(measure="accuracy", before=0.6, reached=0.7, details="attacks", **usual),
        Compared(measure="accuracy", before=0.5, reached=0.65, details="attacks", **usual),
        Compared(measure="accuracy", before=0.1, reached=0.9, details="known", **usual),
        Compared(measure="AUC", before=0.6, reached=0.62, details="known", **usual),
    ]
    guessed, word = told(compared)
    assert guessed == {"accuracy": Guessed(before=0.5, after=0.65), "AUC": Guessed(before=0.6, after=0.62)}
    assert word == "severe"
    assert told([]) == ({}, None)


def test_a_frontier_of_this_table_goes_before_the_nearest_one() -> None:
    """It alone is shown, also where the audit has no labels; elsewhere without labels nothing is like anything."""
    unscored = replace(JOB, classes=None, guessed={}, word=None)
    for job in (JOB, replace(JOB, classes=7), unscored):
        found = _advice(MILD, job=job)
        assert (present(found.source).table, present(found.source).whose, len(found.suggestions)) == (
            "bank.csv",
            "this table",
            1,
        )
    assert advise(unscored, None).withheld == "nothing scored"
    first = shipped("boosting")[0]
    source = present(advise(replace(JOB, data_digest=first.data_digest), None).source)
    assert (source.table, source.whose) == (first.table, "this table")


def test_an_attacker_that_is_misled_uses_its_own_columns() -> None:
    """Noise can leave an attack below what is guessed without it: no more than everything is taken away."""
    advice = _advice(point("label_dp", {"epsilon": 0.5}, 0.8, 0.05))
    (it,) = advice.suggestions
    assert (it.taken, it.effect.guessed) == (1.0, 0.2)
    assert "labels guessed 0.600 → 0.200 ± 0.010;" in _said(_with(advice))[1]


def test_of_one_noise_the_cheapest_repair_is_suggested() -> None:
    """Repairs leave what is guessed as it is: of the four models of one noise the one that costs least is advised."""
    noise, other = {"epsilon": 1.0, "stages": 2}, {"epsilon": 0.5, "stages": 2}
    found = _advice(
        point("label_dp", noise, 0.7, 0.3),
        point("grafting", noise, 0.88, 0.3),
        point("grafting + refit", noise, 0.86, 0.3),
        point("label_dp", other, 0.6, 0.21),
    )
    helping = [(name, epsilon) for name, epsilon, helps in _own(found) if helps]
    assert helping == [("grafting", 1.0), ("label_dp", 0.5)]
    assert not any("ε 1.0" in setting for setting, _ in _rows(found, "What does not help"))


HAS = {
    "id_lmid": ({"id_lmid": {"xi": 0.5}}, [("id_lmid", 0.25), ("label_dp", 1.0), ("job", 2)]),
    "label_dp": ({"label_dp": {"epsilon": 1.0}, "grafting": True}, [("job", 2)]),
    "nothing": (
        {},
        [("id_lmid", 0.25), ("id_lmid", 0.5), ("id_lmid", 2.0), ("label_dp", 1.0), ("grafting", 1.0), ("job", 2)],
    ),
}


@pytest.mark.parametrize("has", HAS)
def test_nothing_that_the_job_has_is_suggested_and_nothing_looser(has: str) -> None:
    """Of a defence that the label holder has the stricter settings alone, and none that its file cannot have beside."""
    defences, left = HAS[has]
    noise = [point(name, {"epsilon": 1.0, "stages": 2}, 0.8, 0.3) for name in ("label_dp", "grafting")]
    found = _advice(STRICT, MILD, LOOSE, *noise, SHALLOW, job=replace(JOB, defences=defences))
    assert sorted(str((name, value)) for name, value, _ in _own(found)) == sorted(map(str, left))
    said = " ".join(basis(found, "boosting"))
    assert ("The label holder has" in said) == bool(defences)
    assert "in its own file alone" in " ".join(basis(_advice(MILD, job=replace(JOB, defences=None)), "boosting"))


@pytest.mark.parametrize(
    ("params", "lines"),
    [
        ({"max_depth": 2}, []),
        ({"max_depth": 1}, []),
        ({"max_depth": 3}, ["max_depth = 2"]),
        ({"party_dropout": {"telco": 0.5, "shop": 0.9}}, ["max_depth = 2"]),
        ({"party_dropout": {"telco": 0.8}}, ["max_depth = 2", "party_dropout = {telco = 0.8, shop = 0.5}"]),
        ({"subsample": 0.4}, ["max_depth = 2", "party_dropout = {telco = 0.5, shop = 0.5}"]),
        ({"subsample": 0.6}, ["max_depth = 2", "party_dropout = {telco = 0.5, shop = 0.5}", "subsample = 0.5"]),
    ],
)
def test_settings_of_the_job_are_stricter_than_those_that_it_has(params: dict[str, Any], lines: list[str]) -> None:
    """Numbers by their size; a party that is left out more often than advised stays so."""
    points = [SHALLOW]
    points += [point("job", {"party_dropout": {"feature-party": 0.5}}, 0.9, 0.5)] * ("max_depth" not in params)
    points += [point("job", {"subsample": 0.5}, 0.9, 0.5)] * ("subsample" in params)
    found = _advice(*points, job=replace(JOB, params={"max_depth": 6} | params))
    assert sorted(line for it in found.suggestions for part in it.lines for line in part.lines[1:]) == sorted(lines)


@pytest.mark.parametrize(("depth", "lines"), [(6, ['model = "additive"', "max_depth = 1"]), (1, [])])
def test_an_additive_model_is_a_form_and_not_a_smaller_number(depth: int, lines: list[str]) -> None:
    """The lines of a job that is none yet, without the number of rounds of another job."""
    found = _advice(ADDITIVE, job=replace(JOB, params={"max_depth": depth, "n_estimators": 50, "model": "trees"}))
    assert [line for it in found.suggestions for part in it.lines for line in part.lines[1:]] == lines
    assert [it.helps for it in found.suggestions] == [True] * bool(lines)


def test_a_frontier_of_other_data_is_named_and_not_taken_for_this_table(tmp_path: Path) -> None:
    """By the digest: another one, and none, make it one table among others, which counts where it is the nearest."""
    path = tmp_path / "frontier.json"
    path.write_text(frontier(MILD).model_dump_json())
    assert given(path, "boosting", DIGEST)[0] == "this table"
    for digest in ("00" * 32, None):
        found = given(path, "boosting", digest)
        assert found[0] == "given"
        near = advise(JOB, found)
        assert (present(near.source).table, near.unlike) == ("bank.csv", None)
        assert "that the audit was given, of another table, as far as their digests tell" in html(_with(near))
        far = advise(_like(_of("fars")), found)
        assert (present(far.source).table, far.unlike) == ("fars.parquet", "bank.csv")
        assert "of bank, is of another table" in html(_with(far))
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
    """Without the point without a defence nothing says what a defence takes away."""
    path, whole = tmp_path / "frontier.json", frontier(MILD)
    path.write_text(whole.model_copy(update={"points": whole.points[1:]}).model_dump_json())
    with pytest.raises(BadInput, match="lacks the point without a defence"):
        given(path, "boosting", DIGEST)


@pytest.mark.second_tier
@pytest.mark.campaign(but=1)
@pytest.mark.parametrize("protocol", ["boosting", "forest"])
def test_lines_are_those_that_the_files_take(protocol: str) -> None:
    """Every line of every suggestion on every table, and all repairs, is read by the schema of its file; the terminal
    and the page have these lines as they are to be pasted, however narrow."""
    noise = {"epsilon": 1.0, "stages": 2}
    repairs = [
        point(name, noise, 0.9, 0.3) for name in ("label_dp", "label_dp + refit", "grafting", "grafting + refit")
    ]
    job = replace(JOB, protocol=protocol, feature_parties=["telco", "shop-2"])
    documents = [frontier(*repairs, protocol=protocol), *shipped(protocol)]
    defences = set()
    for whole in documents:
        advice = advise(job, ("this table", whole))
        defences |= {it.defence for it in advice.suggestions}
        for it in advice.suggestions:
            for part in it.lines:
                assert part.file in ("job file", "policy of bank", "party file of bank")
                _taken("\n".join(part.lines), protocol)
        shown = _with(advice, protocol=protocol)
        helping = [it for it in advice.suggestions if it.helps]
        for width in (40, 80, 200):
            printed = _printed(shown, width)
            assert len(printed) == min(3, len(helping))
            for text, it in zip(printed, helping, strict=False):
                assert text.splitlines() == [f"# {it.lines[0].file}", *it.lines[0].lines]
                _taken(text, protocol)
        section = html(shown).partition('<section id="lowers"')[2].partition("</section>")[0]
        pasted = [unescape(each.partition("</pre>")[0]) for each in section.split("<pre>")[1:]]
        assert len(pasted) == sum(len(it.lines) for it in helping)
        for text in pasted:
            _taken(text, protocol)
    assert defences >= {"id_lmid", "reduced_leakage", "grafting + refit", "job"}


def test_a_protocol_without_these_defences_is_advised_by_its_own_parameters() -> None:
    """PIVODL has none of them: no suggestion, no word of them on the page, its own parameters with their lines."""
    advice = advise(AdvisedJob("pivodl", "north", ["east"], 2, {}, "severe", PIVODL), None)
    assert (advice.suggestions, advice.source) == ([], None)
    page = html(_with(advice, protocol="pivodl"))
    assert "None of the defences of protocols with one label holder exists in pivodl" in page
    assert "[defences]" not in page
    assert len(_printed(_with(advice, protocol="pivodl"), 60)) == 3
    for text in _printed(_with(advice, protocol="pivodl"), 60):
        _taken(text, "pivodl")
        assert text.splitlines()[-1] in unescape(page)


@pytest.mark.parametrize(
    ("has", "lines"),
    [
        ({}, ["epsilon = 8.0", 'gain_comparison = "secure"', "instance_threshold = 20"]),
        ({"epsilon": 8.0, "clip": 0.5}, ['gain_comparison = "secure"', "instance_threshold = 20"]),
        ({"epsilon": 4.0, "gain_comparison": "secure", "instance_threshold": 20}, []),
        (
            {"epsilon": 20.0, "clip": 4.0, "gain_comparison": "secure"},
            ["epsilon = 8.0", "clip = 2.0", "instance_threshold = 20"],
        ),
        ({"delta": 1e-3, "instance_threshold": 99}, ["epsilon = 8.0", "delta = 1e-05", 'gain_comparison = "secure"']),
    ],
)
def test_pivodl_is_advised_stricter_values_alone(has: dict[str, Any], lines: list[str]) -> None:
    """Of the noise the parameters that are looser in this job; nothing that it has, or has stricter."""
    advice = advise(AdvisedJob("pivodl", "north", ["east"], 2, {}, "severe", PIVODL | has), None)
    assert [line for it in advice.parameters for part in it.lines for line in part.lines[1:]] == lines
    secure = has.get("gain_comparison") == "secure"
    assert any("write the next line too" in it.tells for it in advice.parameters) == (
        "epsilon = 8.0" in lines and not secure
    )
    assert ("no more than the strictest measured" in basis(advice, "pivodl")[0]) == (not lines)


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
    """By the figures of FARS a lower learning rate, fewer records, dropout and depth 2 are what does not help."""
    document = _with(advise(_like(_of("fars")), None))
    useless = {setting for setting, _ in _rows(document.advice, "What does not help")}
    assert {"learning_rate 0.05", "subsample 0.5", "party_dropout 0.5"} <= useless
    assert "<h3><bdi>settings of the job</bdi></h3>" not in html(document)
    page = html(document)
    assert page.index("id_lmid = {xi = 0.5}") < page.index("What does not help") < page.index("learning_rate 0.05")


def test_the_report_of_defences_has_the_shipped_figures() -> None:
    """Every row of the report's table has the share and the price that the table's frontier gives."""
    text = (Path(__file__).parents[2] / "benchmarks" / "measured" / "defences.md").read_text(encoding="utf-8")
    for xi in (0.1, 0.25, 0.5, 1.0):
        cells = []
        for table in ("breast_cancer", "credit_default", "fars", "obesity"):
            advice = advise(_like(_of(table)), None)
            assert present(advice.source).table == f"{table}.parquet"
            (it,) = [it for it in advice.suggestions if it.settings == {"xi": xi}]
            price = max(0.0, it.price or 0.0)
            cells += [f"{100 * max(0.0, it.taken or 0.0):.0f} %", f"{price:.3f}".removeprefix("0")]
        assert f"| `id_lmid = {{xi = {xi}}}` | {' | '.join(cells)} |" in text


def test_a_terminal_has_three_suggestions() -> None:
    """The first three, each with its effect, price and table, and its lines below the name of the file."""
    printed = _said(_with(_advice(LOOSE, STRICT, SHALLOW, MILD, point("id_lmid", {"xi": 0.1}, 0.8, 0.21))))
    assert sum(line.startswith("- ") for line in printed) == 3
    assert printed[0].startswith("Measured by treetap frontier on this very table: bank (")
    assert printed[1:4] == [
        "- ID-LMID, ξ 0.5: labels guessed 0.600 → 0.350 ± 0.010; taken away 62 %; cells read not measured; variance "
        "explained not measured; price in AUC 0.020; measured on this table",
        "[defences]",
        "id_lmid = {xi = 0.5}",
    ]


CELLS = {"min_cell_records": 3}


def test_a_suggestion_names_both_directions() -> None:
    """Labels and columns in one sentence; what hides labels and tells more of columns says so, and m helps by cells.

    Of columns it is both measures: where few cells are read the order of values may stay.
    """
    noise = point("label_dp", {"epsilon": 0.5, "stages": 1}, 0.85, 0.3, read=0.96)
    merged = point("min_cell_records", CELLS, 0.89, 0.6, read=0.2)
    advice = advise(JOB, ("this table", frontier(noise, merged, read=0.5)))
    assert [(it.defence, it.helps) for it in advice.suggestions] == [("min_cell_records", True), ("label_dp", True)]
    assert [it.taken_cells for it in advice.suggestions] == [pytest.approx(0.75), pytest.approx(-1.15)]
    files = [(part.file, part.lines) for part in advice.suggestions[0].lines]
    assert files == [(f"party file of {name}", ["[defences]", "min_cell_records = 3"]) for name in ("telco", "shop")]
    said = [line for line in _said(_with(advice)) if line.startswith("- ")]
    assert "cells read 50.0 % → 20.0 %; variance explained 90.0 % → 90.0 %; price in AUC 0.010" in said[0]
    assert "taken away 75 %; cells read 50.0 % → 96.0 %; variance explained" in said[1]
    page = html(_with(advice))
    assert "90.0&#160;% → 90.0&#160;%" in page
    assert "50.0&#160;% → 96.0&#160;%" in page
    assert "not measured" not in page.partition('<section id="lowers"')[2].partition("</section>")[0]


def test_what_costs_less_and_reads_more_columns_is_no_better() -> None:
    """A setting that hides as many labels for less AUC does not push out one under which fewer cells are read."""
    cheap = point("id_lmid", {"xi": 0.5}, 0.9, 0.3, read=0.5)
    dear = point("job", {"max_depth": 2}, 0.88, 0.3, read=0.2)
    advice = advise(replace(JOB, params={}), ("this table", frontier(cheap, dear, read=0.5)))
    assert all(it.helps for it in advice.suggestions)
    unmeasured = [it.model_copy(update={"cells": None}) for it in (cheap, dear)]
    advice = advise(replace(JOB, params={}), ("this table", frontier(*unmeasured)))
    assert {next(iter(it.settings)): it.helps for it in advice.suggestions} == {"xi": True, "max_depth": False}
    assert all(figures[2] == "not measured" for _, figures in _rows(advice))


def _rows(advice: Advice | None, title: str = "") -> list[tuple[str, list[Any]]]:
    """The settings and their figures, of all tables or of that below one title."""
    assert advice is not None
    shown = present(advised(_with(advice)))
    tables = [
        part
        for section in shown.parts
        if isinstance(section, Section) and title in section.title
        for part in section.parts
        if isinstance(part, Table)
    ]
    return [(cell.figure, figures) for table in tables for cell, *figures in table.rows if isinstance(cell, Cell)]


def _said(document: Document) -> list[str]:
    """What a terminal shows of the advice: sentences and lines of files."""
    shown = present(advised(document))
    texts = [part for part in shown.shown("terminal") if isinstance(part, (Text, Code))]
    return [line for part in texts for line in (part.lines if isinstance(part, Code) else [str(part)])]


def test_documents_without_advice() -> None:
    """Those of a regression: their page has no such section; a field that is none is refused by name."""
    content = made(trees=1).plain()
    content["advice"] = None
    assert "What lowers this" not in html(content)
    assert FrontierDocument.model_validate_json(frontier(MILD).model_dump_json()) == frontier(MILD)
    wrong = _with(_advice(MILD)).plain()
    wrong["advice"]["suggestions"][0]["praise"] = 1
    with pytest.raises(BadInput, match=r"advice\.suggestions\.0\.praise"):
        parse(wrong)
    del wrong["advice"]["suggestions"][0]["praise"]
    wrong["advice"]["suggestions"][0]["defence"] = "prayer"
    with pytest.raises(BadInput, match=r"advice\.suggestions\.0\.defence"):
        parse(wrong)


def _network(**changes: Any) -> Advice:
    """The advice for a network of ten classes whose log tells nearly everything."""
    job = replace(JOB, protocol="splitnn", classes=10, guessed={"accuracy": Guessed(before=0.1, after=0.97)})
    return advise(replace(job, **changes), None)


def test_networks_are_advised_by_the_nearest_measured_one() -> None:
    """What helps first, by the gain that it keeps; lines that the files take; in the terminal and on the page."""
    network = present(_network().network)
    assert network.table == "Fashion-MNIST"
    helping = [it for it in network.suggestions if it.helps]
    assert [it.defences for it in helping[:2]] == [
        {"dimip": {networks.PARTY: 0.03}},
        {"gradient": {"kind": "noise", "scale": 0.001}},
    ]
    assert helping[0].kept == pytest.approx(0.54, abs=0.01)
    assert all(it.kept > 0 for it in helping if it.kept is not None)
    for it in network.suggestions:
        for part in it.lines:
            _taken("\n".join(part.lines), "splitnn")
    shown = _with(_network(), protocol="splitnn")
    lines = _said(shown)
    assert lines[0].startswith("Measured elsewhere, on Fashion-MNIST (20,000 records, 10 classes): 97.5 %")
    assert lines[1].startswith("- DIMIP, λ 0.03: labels by the log 97.5 % → 69.2 % (32 % taken away)")
    assert lines[2:4] == ["[defences]", "dimip = {telco = 0.03, shop = 0.03}"]
    section = html(shown).partition('<section id="lowers"')[2].partition("</section>")[0]
    assert "labels by the own model" in section
    assert section.index("DIMIP") < section.index("What does not help") < section.index("label DP, ε 2")


def test_networks_without_a_measured_one_that_is_near() -> None:
    """Other classes, a log that tells a third as much, a verdict of little: no table. Nothing that is there twice."""
    assert _network(classes=3).withheld == "no table is near"
    assert _network(guessed={"accuracy": Guessed(before=0.1, after=0.3)}).withheld == "no table is near"
    assert _network(word="little").withheld == "little to lower"
    assert _network(guessed={}, classes=None).withheld == "nothing scored"
    has = present(_network(defences={"gradient": {"kind": "noise", "scale": 1e-4}}).network)
    assert not any("gradient" in it.defences for it in has.suggestions)


def test_the_measured_networks_are_those_of_the_results() -> None:
    """Each file is made of the committed results of the reproduction."""
    for name in measured_networks.SETS:
        kept = (measured_networks.OUT / f"{name}.json").read_text(encoding="utf-8")
        made_again = measured_networks.table(name, measured_networks.results_at_hand())
        assert networks.NetworkTable.model_validate_json(kept) == made_again
