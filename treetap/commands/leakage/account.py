"""The label holder's account of what released sets of records say about its labels, from its own state folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from party.config import read
from party.runtime.job_store import JobStore
from treetap import terminal
from treetap.commands.model.view import reading
from treetap.errors import BadInput, DataError
from treetap.models.store import LEAKAGE, read_leakage

Json = dict[str, Any]


def account(job: str, config: Path) -> Json:
    """The lines of all trees so far.

    Raises:
        BadInput: this party has no such job, or no account of it, or a file cannot be read.
    """
    state = read(config).state
    store = JobStore(state / "jobs" / job, state / "models" / job)
    with reading(store.model if store.published else store.folder):
        if store.published:
            lines = read_leakage(store.model)
        elif store.has(LEAKAGE):
            lines = store.lines(LEAKAGE).read()
        else:
            lines = []
    if not lines:
        raise BadInput(
            f"{state}: there is no account of a job {job!r}; the label holder has one of jobs whose labels are "
            "classes, from the first stored tree on"
        )
    document = {"job": job, "published": store.published, "trees": lines}
    try:
        _head(document), leakage_table(lines)
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        place = store.model if store.published else store.folder
        raise DataError(f"{place / LEAKAGE}: is damaged ({failure!r}); bring a back-up of it back") from None
    return document


def print_account(found: Json) -> None:
    """Print the figures after the last tree, and the largest bound of all."""
    terminal.out.print(_head(found))
    terminal.out.print(leakage_table(found["trees"]))
    terminal.out.print("Bounds, in nats, are per node, not joint: sets that say nothing alone may say all together.")


def _head(found: Json) -> str:
    last = found["trees"][-1]
    noisy = " (noisy labels, on which it trains)" if last["noisy_labels"] else ""
    entropy = f"the label's entropy is {last['entropy_nats']:.4f} nats{noisy}"
    return f"{found['job']}: {len(found['trees'])} trees; {entropy}"


def leakage_table(trees: list[Json]) -> Table:
    """A row for each party: its sets and the largest bound of all trees, its signature's figures after the last."""
    table = terminal.table("party", "sets", "largest bound", "tree, node", "signature", "by chance", "beyond chance")
    for party in trees[-1]["parties"]:
        rows = [(tree["tree"], tree["parties"][party]) for tree in trees]
        number, worst = max(rows, key=lambda row: row[1]["bound_nats"])
        for of, said in _kinds(rows[-1][1]):
            table.add_row(
                f"{party}{of}",
                str(sum(row["sets"] for _, row in rows)),
                "" if of else f"{worst['bound_nats']:.4f}",
                "" if of or worst["node"] is None else f"{number}, {worst['node']}",
                f"{said['information_nats']:.4f}",
                f"{said['by_chance_nats']:.4f}",
                f"{100 * said['excess_share']:.1f} % of H(Y)",
            )
    return table


def _kinds(row: Json) -> list[tuple[str, Json]]:
    """The signature's figures by the labels of the training, and by the true ones where these differ."""
    return [("", row), *([(", true labels", row["clean"])] if "clean" in row else [])]
