"""Backends of arithmetic that a benchmark measures in turn, the machine they run on, and their ratios to gmpy2."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from treetap import terminal
from treetap.errors import BadInput
from treetap.native import arithmetic, library

PAIR = ("gmpy2", "auto")
# What a benchmark starts keeps its byte code, as on a machine that nothing has been set on.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def add_arithmetic(parser: argparse.ArgumentParser, default: Sequence[str] = PAIR) -> None:
    """The option that names backends."""
    parser.add_argument(
        "--arithmetic",
        nargs="+",
        choices=arithmetic.CHOICES,
        default=default,
        metavar="NAME",
        help=f"of every party, each in turn: {', '.join(arithmetic.CHOICES)} (default {' '.join(default)}); a form "
        "that the processor lacks is left open, and named",
    )


def add_forms(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    """The option that names forms of the kernels."""
    parser.add_argument(
        "--forms",
        nargs="+",
        choices=forms,
        default=list(forms),
        help="(default: all; those that the processor lacks are named)",
    )


def backends(asked: Sequence[str]) -> list[arithmetic.Name]:
    """The backends that the option's names mean on this machine, each once; ends the program where it has none."""
    left_out = left_open(asked)
    if len(left_out) == len(asked):
        sys.exit("\n".join(left_out.values()))
    return list(dict.fromkeys(arithmetic.choose(name).name for name in asked if name not in left_out))


def left_open(asked: Sequence[str]) -> dict[str, str]:
    """Name → why it cannot be had on this machine, of those that cannot: no figure stands for them."""
    faults = {}
    for name in asked:
        try:
            arithmetic.choose(name)
        except BadInput as fault:
            faults[name] = str(fault)
    return faults


def machine(asked: Sequence[str]) -> dict[str, Any]:
    """The processor, how the kernels were compiled, and the names that it left open."""
    return {"processor": library.processor(), "kernels": library.built(), "left_open": left_open(asked)}


def print_machine(asked: Sequence[str]) -> None:
    """The same for people."""
    this = machine(asked)
    terminal.out.print(terminal.text(f"{this['processor']}; {this['kernels']}"), soft_wrap=True)
    for name, why in this["left_open"].items():
        terminal.out.print(terminal.text(f"{name}: left open: {why}"), soft_wrap=True)


def ratios(
    runs: Sequence[Mapping[str, Any]], by: Sequence[str], figures: Mapping[str, str]
) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """gmpy2 ÷ each other backend: medians of the ratios of pairs, in the order of the runs.

    Args:
        runs: each with its backend as `arithmetic`.
        by: figures that tell settings apart; only runs of one setting are paired.
        figures: title → the run's figure.

    Returns:
        (the setting and the backend as `arithmetic`, title → ratio); none of settings that lack runs of either.
    """
    rows = []
    for key in dict.fromkeys(tuple(run[name] for name in (*by, "arithmetic")) for run in runs):
        slow, fast = (
            [run for run in runs if tuple(run[name] for name in (*by, "arithmetic")) == (*key[:-1], backend)]
            for backend in ("gmpy2", key[-1])
        )
        if key[-1] != "gmpy2" and len(slow) == len(fast):
            medians = {
                title: statistics.median(a[name] / b[name] for a, b in zip(slow, fast, strict=True))
                for title, name in figures.items()
            }
            rows.append((dict(zip((*by, "arithmetic"), key, strict=True)), medians))
    return rows


def print_ratios(runs: Sequence[Mapping[str, Any]], by: Sequence[str], figures: Mapping[str, str]) -> None:
    """A line for each of the ratios."""
    for setting, medians in ratios(runs, by, figures):
        *told, backend = map(str, setting.values())
        said = ", ".join(f"{title} {ratio:.2f}" for title, ratio in medians.items())
        terminal.out.print(terminal.text(" ".join([*told, f"gmpy2 ÷ {backend}: {said}"])), soft_wrap=True)
