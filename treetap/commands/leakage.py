"""What others have learnt of a party, from its own state folder.

The label holder's account says what released sets of records say about its labels; a feature party's, which of its
cells an additive model's left sets show; any party's, which previews of alignments have told how many of its records
others have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from rich.table import Table

from treetap import terminal
from treetap.commands.options import print_json, reading
from treetap.errors import BadInput, DataError
from treetap.models.store import LEAKAGE, PLACED, TREES, read_leakage, read_manifest
from treetap.strict import Part

if TYPE_CHECKING:
    from treetap.party.config import PartyConfig


class Signature(Part):
    """The information of all sets together on labels: as measured, by chance, their difference over the entropy."""

    signatures: int
    information_nats: float
    by_chance_nats: float
    excess_share: float


class PartyAccount(Signature):
    """The sets of a tree that a party knows, the largest bound of one and its node; `clean`: by the true labels."""

    sets: int
    bound_nats: float
    node: int | None
    clean: Signature | None = None


class TreeAccount(Part):
    """The account after a tree, by party. `noisy_labels`: figures are of the labels on which it trains."""

    tree: int
    noisy_labels: bool
    entropy_nats: float
    parties: dict[str, PartyAccount]


_LINES = TypeAdapter(list[TreeAccount], config=ConfigDict(defer_build=True))


def trees_of(lines: Sequence[dict[str, Any]], folder: Path) -> list[TreeAccount]:
    """The trees of an account's lines in a folder. Raises `DataError` where one is damaged."""
    try:
        return _LINES.validate_python(lines, strict=True)
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DataError(f"{folder / LEAKAGE}: is damaged ({fault}); bring a back-up of it back") from None


def leakage_table(trees: Sequence[TreeAccount]) -> Table:
    """A row for each party: its sets and the largest bound of all trees, its signature's figures after the last."""
    table = terminal.table("party", "sets", "largest bound", "tree, node", "signature", "by chance", "beyond chance")
    for name, last in trees[-1].parties.items():
        rows = [(tree.tree, tree.parties[name]) for tree in trees if name in tree.parties]
        number, worst = max(rows, key=lambda row: row[1].bound_nats)
        sets = str(sum(row.sets for _, row in rows))
        place = "" if worst.node is None else f"{number}, {worst.node}"
        table.add_row(name, sets, f"{worst.bound_nats:.4f}", place, *_shown(last))
        if last.clean is not None:
            table.add_row(f"{name}, true labels", sets, "", "", *_shown(last.clean))
    return table


def _shown(signature: Signature) -> list[str]:
    return [
        f"{signature.information_nats:.4f}",
        f"{signature.by_chance_nats:.4f}",
        f"{100 * signature.excess_share:.1f} % of H(Y)",
    ]


def show(job: str | None, config: Path, *, as_json: bool) -> None:
    """Show the account of a job's labels at its label holder, that of its cells at a feature party of an additive
    model, or the preview of that name; without one, all previews.

    Raises:
        BadInput: this party has no such job, or no account of it, or a file cannot be read.
    """
    from treetap.party.config import read  # experiments import this module for its documents
    from treetap.party.runtime.ledger import ledger_of

    party = read(config)
    if job is not None and (_shows_labels(job, party, as_json=as_json) or _shows_cells(job, party, as_json=as_json)):
        return
    ledger = ledger_of(party.state)
    with reading(ledger.path):
        previews = [
            {
                "at": charge.at,
                "job": charge.occasion.job,
                "coordinator": charge.occasion.coordinator,
                "answer": charge.details["answer"],
                "table": charge.occasion.table,
                "partners": list(charge.occasion.parties),
                "told": told,  # the number of common records, as all its parties know it, or nothing
            }
            for charge, told in ledger.previews()
            if job in (None, charge.occasion.job)
        ]
    if not previews and job is None:
        raise BadInput(f"{party.state}: there is no account of previews; of labels, name the JOB")
    if not previews:
        raise BadInput(
            f"{party.state}: there is no account of a job {job!r}; the label holder has one of jobs whose labels are "
            "classes, from the first stored tree on, and a feature party of additive models, once published"
        )
    most = party.policy.previews_per_day
    if as_json:
        print_json({"party": party.name, "previews_per_day": most, "previews": previews}, allow_nan=False)
        return
    rows = [
        (row["job"], row["at"], row["table"], ", ".join(row["partners"]), row["answer"], row["told"] or "no answer")
        for row in previews
    ]
    terminal.print_table(("preview", "at", "table", "with", "answer", "common records"), rows)
    said = "the parties of a preview and its coordinator know the number of common records"
    policy = f"its policy lets previews_per_day = {most} with each party"
    terminal.out.print(f"{party.name}: {said}; {policy}", soft_wrap=True)


def _shows_labels(job: str, party: PartyConfig, *, as_json: bool) -> bool:
    """Show the account of all trees so far: the figures after the last one and the largest bound of all.

    False if there is none.
    """
    from treetap.party.runtime.job_store import JobStore

    store = JobStore(party.state / "jobs" / job, party.state / "models" / job)
    place = store.model if store.published else store.folder
    with reading(place):
        if store.published:
            lines = read_leakage(store.model)
        else:
            lines = [line[LEAKAGE] for line in store.lines(TREES).read() if LEAKAGE in line]
    if not lines:
        return False
    trees = trees_of(lines, place)
    if as_json:
        plain = [tree.plain() for tree in trees]
        print_json({"job": job, "published": store.published, "trees": plain}, allow_nan=False)
        return True
    last = trees[-1]
    noisy = " (noisy labels, on which it trains)" if last.noisy_labels else ""
    entropy = f"the label's entropy is {last.entropy_nats:.4f} nats{noisy}"
    terminal.out.print(f"{job}: {len(trees)} trees; {entropy}")
    terminal.out.print(leakage_table(trees))
    terminal.out.print("Bounds, in nats, are per node, not joint: sets that say nothing alone may say all together.")
    return True


def _shows_cells(job: str, party: PartyConfig, *, as_json: bool) -> bool:
    """Show the share of the party's cells that left sets place, after trees; False if the model is not additive."""
    folder = party.state / "models" / job
    if not folder.is_dir():
        return False
    with reading(folder):
        manifest = read_manifest(folder)
    if not (shares := manifest.get(PLACED)):
        return False
    from treetap.trees.placed_cells import steps_to

    if as_json:
        print_json({"job": job, "party": party.name, PLACED: shares}, allow_nan=False)
        return True
    terminal.print_table(
        ("trees", "cells placed"),
        [(str(trees), f"{100 * shares[trees - 1]:.1f} %") for trees in steps_to(len(shares))],
    )
    terminal.out.print(
        f"{party.name}: cells (records × {len(manifest['columns'])} columns) whose bin {manifest['label_holder']} has, "
        "by the left sets of this party's splits, if it knows which of them are of one column",
        soft_wrap=True,
    )
    return True
