"""The label holder's account of what released sets of records say about its labels, from its own state folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.table import Table

from party.config import read
from party.runtime.job_store import JobStore
from treetap import terminal
from treetap.commands.model.view import reading
from treetap.errors import BadInput, DataError
from treetap.models.store import LEAKAGE, read_leakage
from treetap.strict import Part


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


class Account(Part):
    """The account of a job. `published`: its model is."""

    job: str
    published: bool
    trees: list[TreeAccount]


_LINES = TypeAdapter(list[TreeAccount])


def account(job: str, config: Path) -> Account:
    """The account of all trees so far.

    Raises:
        BadInput: this party has no such job, or no account of it, or a file cannot be read.
    """
    state = read(config).state
    store = JobStore(state / "jobs" / job, state / "models" / job)
    place = store.model if store.published else store.folder
    with reading(place):
        if store.published:
            lines = read_leakage(store.model)
        else:
            lines = store.lines(LEAKAGE).read() if store.has(LEAKAGE) else []
    if not lines:
        raise BadInput(
            f"{state}: there is no account of a job {job!r}; the label holder has one of jobs whose labels are "
            "classes, from the first stored tree on"
        )
    return Account(job=job, published=store.published, trees=trees_of(lines, place))


def trees_of(lines: Sequence[dict[str, Any]], folder: Path) -> list[TreeAccount]:
    """The trees of an account's lines in a folder. Raises `DataError` where one is damaged."""
    try:
        return _LINES.validate_python(lines, strict=True)
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DataError(f"{folder / LEAKAGE}: is damaged ({fault}); bring a back-up of it back") from None


def print_account(account: Account) -> None:
    """Print the figures after the last tree, and the largest bound of all."""
    last = account.trees[-1]
    noisy = " (noisy labels, on which it trains)" if last.noisy_labels else ""
    entropy = f"the label's entropy is {last.entropy_nats:.4f} nats{noisy}"
    terminal.out.print(f"{account.job}: {len(account.trees)} trees; {entropy}")
    terminal.out.print(leakage_table(account.trees))
    terminal.out.print("Bounds, in nats, are per node, not joint: sets that say nothing alone may say all together.")


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
