"""`treetap protocol`: a protocol's steps and messages, read from what its roles conduct and its rows declare.

The pages of the protocols (tools/renderers/orders.py) and tests read the same.

A protocol drawn as SVG: a lane for each actor, its steps in order, an arrow for each message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby
from pathlib import Path
from textwrap import shorten
from typing import TypeAlias

from treetap.errors import ConfigError, did_you_mean
from treetap.pages.page import render
from treetap.party.alignment.steps import Alignment
from treetap.party.prediction.reasons import NumberedColumns
from treetap.party.prediction.steps import NAMES, table_for
from treetap.party.prediction.tree_model import NamesSent, NamesTaken
from treetap.party.protocols import PREDICTION, TRAINING, roles_for_prediction, roles_for_training
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    ANY,
    LATER,
    NEXT_ROUND,
    NEXT_STAGE,
    ONCE,
    OPENING,
    RESUMED,
    SAME,
    THIS_ROUND,
    Next,
    StepTable,
    declared_steps,
    table_of,
)
from treetap.protocols import job_spec, messages
from treetap.protocols.alignment import ALIGNMENTS, LOOK_UPS
from treetap.protocols.exclusions import Feature
from treetap.protocols.libraries import require_library
from treetap.protocols.messages import Members, MessageRow, always, classes_of
from treetap.protocols.registry import prediction, training
from treetap.wire.disclosure import CLASSES

#: Pixels: of the margin with the bands' names, a lane, a step's box, an arrow's line, and the head with actors' names.
_MARGIN, _LANE, _BOX, _LINE, _HEAD = 110, 260, 34, 22, 44
#: Colours of classes by kind, in the order of the legend; the last is of all further ones.
_COLOURS = {
    "open": ("#b42318", "#bf6a02", "#a40e6f", "#7a4b00", "#d1242f", "#953800"),
    "sealed": ("#1f6feb", "#8250df", "#0a7ea4", "#5a32a3"),
    "plain": ("#8c959f", "#57606a", "#4d7358", "#6b6347", "#41616b"),
}
#: A step, its actors, how often it comes, and the messages that it sends, each from one lane to another.
Row: TypeAlias = "tuple[str, Sequence[str], str, Sequence[tuple[ShownMessage, tuple[str, str]]]]"


def picture(title: str, lanes: Sequence[str], rows: Sequence[Row]) -> str:
    """The SVG document."""
    used = {_telling(message) for _, _, _, arrows in rows for message, _ in arrows}
    told = [known for known in CLASSES.values() if known.name in used]
    # of more classes of a kind than its palette has colours the last share one
    colours: dict[str, str] = {}
    for kind, palette in _COLOURS.items():
        names = [one.name for one in told if one.kind == kind]
        colours |= {name: palette[min(k, len(palette) - 1)] for k, name in enumerate(names)}
    centres = {lane: _MARGIN + _LANE * k + _LANE // 2 for k, lane in enumerate(lanes)}
    heights = [_BOX + _LINE * len(arrows) + (8 if arrows else 0) for *_, arrows in rows]
    tops = list(accumulate(heights, initial=2 * _HEAD))
    placed = list(zip(rows, tops, tops[1:], strict=False))
    grouped = [[*group] for _, group in groupby(placed, key=lambda it: it[0][2])]
    bands = [(group[0][0][2], group[0][1], group[-1][2]) for group in grouped]
    return (
        render(
            __package__,
            "protocol.svg.j2",
            title=title,
            centres=centres,
            bands=bands,
            rows=placed,
            told=told,
            colours=colours,
            telling=_telling,
            shorten=shorten,
            bottom=tops[-1],
            margin=_MARGIN,
            lane=_LANE,
            box=_BOX,
            line=_LINE,
            head=_HEAD,
        )
        + "\n"
    )


#: Names in a table that are no steps: as what was done, as what may come.
NO_STEPS = {
    OPENING: ("opening the job", ""),
    ALIGNMENT: ("the alignment", "the steps of the alignment"),
    NAMES: ("the names", "the step of the names"),
}
#: Step → the phase whose it is.
_PHASES = {
    **dict.fromkeys(declared_steps(Alignment), ALIGNMENT),
    **{step: NAMES for part in (NamesSent, NamesTaken, NumberedColumns) for step in declared_steps(part)},
}
_COORDINATOR = "coordinator"


@dataclass(frozen=True)
class ShownStep:
    """A step of an actor, and what may follow it, as a page says it."""

    step: str
    actor: str
    often: str
    may_follow: tuple[str, ...]


@dataclass(frozen=True)
class ShownMessage:
    """A message: the steps that send it (`also`: further ones), its pairs of actors, and its row in words.

    `only`: the jobs that have it; empty: all. `perhaps`: classes that some tables or policies leave out.
    """

    message: str
    step: str
    also: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    route: str
    often: str
    at_most: str
    classes: tuple[str, ...]
    perhaps: tuple[str, ...]
    only: str


@dataclass(frozen=True)
class Shown:
    """A protocol that trains or predicts; its steps in the order in which they come."""

    protocol: str
    does: str
    actors: tuple[str, ...]
    steps: tuple[ShownStep, ...]
    messages: tuple[ShownMessage, ...]


def shown(name: str) -> list[Shown]:
    """The protocols of that name: its training and its prediction, where both have it.

    Raises:
        ConfigError: there is none, or it needs a library that is not installed.
    """
    protocols = []
    if name in TRAINING:
        require_library(name, training(name))
        tables = {actor: table_of(role) for actor, role in roles_for_training(name).items()}
        protocols.append(_shown(name, "trains", tables, list(_rows_of_training(name)), "t"))
    if name in PREDICTION:
        require_library(name, prediction(name))
        tables = {actor: table_for(name, table_of(role)) for actor, role in roles_for_prediction(name).items()}
        protocols.append(_shown(name, "predicts", tables, list(_rows_of_prediction(name)), "b"))
    if not protocols:
        names = dict.fromkeys([*TRAINING, *PREDICTION])
        raise ConfigError(f"protocol {name!r}: must be one of {', '.join(names)}{did_you_mean(name, names)}")
    return protocols


def lines_of(table: StepTable, t: str, mark: str = "") -> Iterator[tuple[str, str, list[str]]]:
    """Each row of a table: its name, as what was done, and what may come then. `t`: the name of a round.

    `mark`: what stands around names of steps.
    """
    often = _often(table)
    for done, row in table.items():
        arguments = {"each round": f"({t})", "each stage": f"({t}, l)"}.get(often.get(done, ""), "")
        after = NO_STEPS[done][0] if done in NO_STEPS else f"{mark}{done}{arguments}{mark}"
        yield done, after, [_may_come(following, t, often[following.step], mark) for following in row]


def _often(table: StepTable) -> dict[str, str]:
    """Step → how often it comes."""
    places: dict[str, set[object]] = {}
    for following in (following for row in table.values() for following in row):
        places.setdefault(following.step, set()).add(following.place)
    return {
        name: "each stage" if at & {SAME, NEXT_STAGE, ANY, LATER} else "each round" if at - {ONCE} else "once"
        for name, at in places.items()
    }


def _may_come(following: Next, t: str, often: str, mark: str) -> str:
    if following.step in NO_STEPS:
        name = NO_STEPS[following.step][1]
    else:
        rounds, stages = often != "once", often == "each stage"
        places = {SAME: f"({t}, l)", NEXT_STAGE: f"({t}, l+1)", ANY: f"({t}, l)", LATER: f"({t}', l')"}
        places[ONCE] = "(0, 0)" if stages else "(0)" if rounds else ""
        places |= dict.fromkeys((THIS_ROUND, RESUMED), f"({t}, 0)" if stages else f"({t})")
        places[NEXT_ROUND] = f"({t}+1, 0)" if stages else f"({t}+1)"
        name = f"{mark}{following.step}{places[following.place]}{mark}"
    notes = {
        RESUMED: f" for a round {t} to go on with",
        ANY: f" for any {t} and l",
        LATER: f" for ({t}', l') > ({t}, l)",
    }
    note = notes.get(following.place, "")
    return name + note + (f"{',' if note else ''} if {following.when}" if following.when else "")


def _rows_of_training(name: str) -> Iterator[tuple[MessageRow, str]]:
    """Rows, and the jobs that have them."""
    yield from ((row, f"alignment {method}") for method, rows in ALIGNMENTS.items() for row in rows)
    for row in (*job_spec.MESSAGES, *training(name).sends):
        only = "" if row.when is always else "by the job's parameters"
        yield row, "by the parties' tables or files" if row.by_tables else only


def _rows_of_prediction(name: str) -> Iterator[tuple[MessageRow, str]]:
    described = prediction(name)
    yield from ((row, f"alignment {method}") for method, rows in ALIGNMENTS.items() for row in rows)
    yield from ((row, "") for row in (messages.OPENED_TREES if described.of_trees else messages.OPENED))
    # messages that a table and a served model share have no condition
    yield from ((row, "" if row in messages.SERVING else "of a table") for row in messages.PREDICTION)
    if Feature.SERVE in described.capabilities:
        served = (*messages.SERVING, *described.sends_served)
        yield from ((row, "served") for row in served if row not in messages.PREDICTION)
    yield from ((row, "") for row in described.sends)
    if Feature.LOOK_UP in described.capabilities:
        yield from ((row, "with look-ups") for row in LOOK_UPS)
    if Feature.EXPLAIN in described.capabilities:
        yield from ((row, "explained") for row in messages.EXPLANATIONS)
    if Feature.REASONS in described.capabilities:
        yield from ((row, "with reasons") for row in messages.REASONS)
    yield from ((row, "with attributions") for row in described.sends_attributions)


def _shown(name: str, does: str, tables: Mapping[str, StepTable], rows: list[tuple[MessageRow, str]], t: str) -> Shown:
    first, other, *dealers = [*tables, "other parties"][: max(2, len(tables))]
    members = Members(_COORDINATOR, first, (f"{other} 1", f"{other} 2"), "".join(dealers))
    messages = [_message(row, only, members, other) for row, only in rows]
    order = _in_turn(tables, [message.step for message in messages])
    steps = [
        ShownStep(done, actor, often, tuple(may_come))
        for done in order
        for actor, often, may_come in _at_actors(tables, done, t)
    ]
    return Shown(name, does, (first, other, *dealers), tuple(steps), tuple(messages))


def _at_actors(tables: Mapping[str, StepTable], done: str, t: str) -> Iterator[tuple[str, str, list[str]]]:
    for actor, table in tables.items():
        often = _often(table).get(done, "once")
        yield from ((actor, often, may_come) for name, _, may_come in lines_of(table, t) if name == done)


def _message(row: MessageRow, only: str, members: Members, other: str) -> ShownMessage:
    lanes = dict.fromkeys(members.feature_parties, other)
    pairs = dict.fromkeys((lanes.get(one, one), lanes.get(to, to)) for one, to in row.route(members))
    return ShownMessage(
        message=row.content,
        step=row.step,
        also=row.also,
        pairs=tuple(pairs),
        route=_sentence(row.route),
        often=row.times.__name__.replace("_", " ") if row.times else "in answer",
        at_most=_sentence(row.bound) if row.bound else "",
        classes=tuple(sorted(classes_of(row.content) - row.perhaps)),
        perhaps=tuple(sorted(row.perhaps & classes_of(row.content))),
        only=only,
    )


def _sentence(function: object) -> str:
    """The first line of a docstring, without its end."""
    return (function.__doc__ or "").partition("\n")[0].removesuffix(".")


def _in_turn(tables: Mapping[str, StepTable], sending: Sequence[str]) -> list[str]:
    """The names in all tables, each actor's in its order; those of several actors as their messages come.

    `sending`: the steps of the messages, in the order of these. A step that no other actor has comes when its round
    does, before steps of later messages.
    """
    waiting = [[name for name in table if name != OPENING] for table in tables.values()]
    often = {name: how for table in tables.values() for name, how in _often(table).items()}
    order = [OPENING]
    while any(waiting):
        ranked = []
        for names in filter(None, waiting):
            upcoming = [sending.index(later) for later in names if later in sending]
            begun = any(often.get(name, "once") != "once" for name in order)  # what comes once then is at the end
            turns = ("each round", "each stage", "once") if begun else ("once", "each round", "each stage")
            rank = turns.index(often[names[0]]), (upcoming or [len(sending)])[0]
            ranked.append((any(names[0] in others[1:] for others in waiting), *rank, names[0]))
        order.append(min(ranked)[-1])
        waiting = [names[1:] if names[:1] == order[-1:] else names for names in waiting]
    return order


def drawn(one: Shown) -> str:
    """The protocol as SVG: lanes of actors, steps in order, an arrow for each message."""
    rows: list[Row] = []
    by_step: dict[str, list[ShownMessage]] = {}
    for message in one.messages:
        if message.step:
            for step in (message.step, *message.also):
                by_step.setdefault(_PHASES.get(step, step), []).append(message)
    names = dict.fromkeys(step.step for step in one.steps if step.step != OPENING)
    for name in names:
        # a step of several actors is one row with a box at each
        at = [step for step in one.steps if step.step == name]
        arrows = [(message, pair) for message in by_step.get(name, []) for pair in _drawn_pairs(message.pairs)]
        actors = one.actors if len({step.actor for step in one.steps}) == 1 else tuple(step.actor for step in at)
        rows.append((NO_STEPS.get(name, (name,))[0], actors, at[0].often, arrows))
    return picture(f"{one.protocol} {one.does}: steps and messages", (_COORDINATOR, *one.actors), rows)


def _drawn_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of which each has an arrow; where all send to all, the one between the two lanes stands for the others."""
    if all((to, one) in pairs for one, to in pairs):
        return [pair for pair in pairs if pair[0] != pair[1]][:1] or list(pairs)
    return list(pairs)


def _telling(message: ShownMessage) -> str:
    """The class of a message that tells most of the records: an open one, else a sealed one, else what runs the job."""
    kinds, names = ("open", "sealed", "plain"), list(CLASSES)
    every = ("CONTROL", "SIZE", "USAGE")  # of nearly every message
    return min(message.classes, key=lambda name: (kinds.index(CLASSES[name].kind), name in every, names.index(name)))


def show(name: str, svg: Path | None, *, as_json: bool) -> None:
    """Print a protocol, or without a name the list of all; also draw it to a file, if asked."""
    if not name:
        listed = {
            protocol: [does for does, names in (("trains", TRAINING), ("predicts", PREDICTION)) if protocol in names]
            for protocol in dict.fromkeys([*TRAINING, *PREDICTION])
        }
        lines = (f"{protocol}: {' and '.join(does)}" for protocol, does in listed.items())
        print(json.dumps(listed, indent=1) if as_json else "\n".join(lines), flush=True)
        return
    described = shown(name)
    if svg is not None:
        svg.write_text(drawn(described[0]), encoding="utf-8")
    if as_json:
        print(json.dumps([asdict(one) for one in described], indent=1), flush=True)
    else:
        from treetap import terminal

        for one in described:
            terminal.out.print(f"{one.protocol}: {one.does}")
            steps = ((step.step, step.actor, "; ".join(step.may_follow) or "nothing") for step in one.steps)
            terminal.print_table(("step", "of", "may follow"), steps)
            messages = terminal.table("message", "in step", "from and to", "how often", "at most", "classes")
            for message in one.messages:
                classes = [*message.classes, *(f"{name} perhaps" for name in message.perhaps)]
                called = f"{message.message} ({message.only})" if message.only else message.message
                messages.add_row(
                    called,
                    ", ".join((message.step, *message.also)) or "each",
                    message.route,
                    message.often,
                    message.at_most,
                    ", ".join(classes),
                )
            terminal.out.print(messages)
