"""`treetap capacity`: how long a training takes on machines that are not there yet, and what bounds it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap.commands.options import needs
from treetap.errors import BadInput

if TYPE_CHECKING:
    from treetap.capacity.measurements import Measurements
    from treetap.capacity.site import Nodes
    from treetap.protocols.key_options import KeyKind
    from treetap.trees.params import BoostingParams

SCHEME, KEY_BITS, OBFUSCATION = "paillier", 2048, "short-exponent"


def capacity(
    records: Annotated[int, typer.Option(help="Records that all parties have; 0 with --measure: only measure.")] = 0,
    columns: Annotated[
        str, typer.Option(metavar="N,N,...", help="Columns of the label holder, then of each feature party.")
    ] = "25,25",
    max_bin: Annotated[int, typer.Option(help="Bins of each column, as in the job.")] = 32,
    missing: Annotated[bool, typer.Option("--missing", help="Columns lack values: twice as many candidates.")] = False,
    trees: Annotated[int, typer.Option(help="n_estimators of the job.")] = 100,
    depth: Annotated[int, typer.Option(help="max_depth of the job.")] = 3,
    subsample: Annotated[float, typer.Option(help="Part of the records that a tree draws.")] = 1.0,
    smaller_share: Annotated[
        float,
        typer.Option(help="Part of a node's records in its smaller child, the one that is summed: 0.5 is the most."),
    ] = 0.5,
    scheme: Annotated[str, typer.Option(help="paillier or okamoto-uchiyama.")] = SCHEME,
    key_bits: Annotated[int, typer.Option(help="Length of the key.")] = KEY_BITS,
    obfuscation: Annotated[str, typer.Option(help="short-exponent, half-length or standard.")] = OBFUSCATION,
    nodes: Annotated[
        str, typer.Option(metavar="N[,N]", help="Machines of the label holder and of each feature party.")
    ] = "1,1",
    cores: Annotated[int, typer.Option(help="Processors of a machine.")] = 16,
    workers: Annotated[int, typer.Option(help="Worker processes on a machine; 0: one for each processor.")] = 0,
    memory: Annotated[float, typer.Option(metavar="GB", help="Memory of a machine.")] = 64.0,
    bandwidth: Annotated[
        float, typer.Option(metavar="MBIT/S", help="Of a party's line to the others, in each direction.")
    ] = 1000.0,
    delay: Annotated[float, typer.Option(metavar="MS", help="Of a message between parties, one way.")] = 5.0,
    inner_bandwidth: Annotated[
        float, typer.Option(metavar="MBIT/S", help="Between the machines of one party.")
    ] = 10_000.0,
    cluster_holds_key: Annotated[
        bool,
        typer.Option(
            "--cluster-holds-key",
            help="The label holder's policy says so too: it encrypts on all its machines, else on the first.",
        ),
    ] = False,
    one_machine: Annotated[
        bool, typer.Option("--one-machine", help="All parties share one machine, as in an experiment.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine anew, about 20 s, and keep the file.")
    ] = False,
    measurements: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measured costs; without it measurements.json in the user's cache folder."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer as JSON on standard output and nothing else.")
    ] = False,
) -> None:
    """Estimate a boosting job on machines that you plan: time by phase, bytes, memory, and what saturates first.

    A simulation follows one tree message by message. Operations and sizes are the protocol's own; what each operation
    costs is measured on this machine, the first time and with --measure, and kept. Measure on a machine like those
    that you plan for, and take the file along: --measurements FILE. docs/capacity.md has the arithmetic behind it.

    treetap capacity --records 10000000 --columns 25,25 --nodes 4,4 --bandwidth 1000 --delay 5

    treetap capacity --records 10000000 --scheme okamoto-uchiyama --nodes 4,4 --cluster-holds-key

    A demand is the time that a tree would take if that resource alone bounded it: the largest is what saturates first.
    More machines help only where the demand is on workers; a main process is one, whatever the number of machines.
    """
    from treetap.protocols.key_options import KeyKind, key_faults

    if faults := key_faults(scheme, key_bits, obfuscation):
        raise BadInput("; ".join(faults))
    if not records and not measure:
        raise BadInput("--records: say how many records the parties have in common, or --measure to measure only")
    with needs("capacity"):
        from treetap.commands.capacity.document import Question, answer, document
        from treetap.commands.capacity.report import show
    key, file = KeyKind(scheme, key_bits), measurements or _cache()
    if not records:
        _print_measured(_measured(file, key, obfuscation, anew=True), as_json=as_json)
        return
    from treetap.capacity.site import Site

    params = _params(max_bin, trees, depth, subsample)
    question = Question(records, _numbers("--columns", columns), params, key, obfuscation, smaller_share, missing)
    holder, other = _nodes(nodes, cores, workers or cores, memory)
    rates = {"bits_per_s": bandwidth * 1e6, "delay_s": delay / 1e3, "inner_bits_per_s": inner_bandwidth * 1e6}
    site = Site(holder, other, **rates, cluster_holds_key=cluster_holds_key, one_machine=one_machine)
    site.check()
    training = question.training()  # faults of the question come before the time of a measurement
    if measurements is not None and not measure and not measurements.exists():
        raise BadInput(f"--measurements {measurements}: no such file; with --measure this machine's figures go there")
    found = answer(question, training, site, _measured(file, key, obfuscation, anew=measure))
    if as_json:
        print(json.dumps(document(found), indent=1, allow_nan=False), flush=True)
    else:
        show(found)


def _cache() -> Path:
    """The file of measurements in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "treetap" / "measurements.json"


def _measured(path: Path, key: KeyKind, obfuscation: str, *, anew: bool) -> Measurements:
    """The file's measurements, of this machine where they are missing.

    Raises:
        BadInput: the file is none, or cannot be written.
    """
    from treetap.capacity.measurements import Measurements

    known = Measurements.load(path) if path.exists() and not anew else None
    if known is not None and known.of(key, obfuscation) is not None:
        return known
    from treetap import terminal
    from treetap.commands.capacity.measuring import add_key, measure

    terminal.err.print(f"measuring this machine under {key.scheme}, {key.bits} bits: some seconds, kept in {path}")
    found = measure([(key, obfuscation)]) if known is None else add_key(known, key, obfuscation, path)
    try:
        found.save(path)
    except OSError as fault:
        raise BadInput(f"{path}: cannot be written: {fault.strerror or fault}; name a file: --measurements") from None
    return found


def _print_measured(costs: Measurements, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(costs.document(), indent=1), flush=True)
        return
    from treetap import terminal

    table = terminal.table("cost", "seconds of a processor, or bytes")
    for name, value in costs.figures():
        table.add_row(name, f"{value:.3g}")
    terminal.out.print(table)


def _params(max_bin: int, trees: int, depth: int, subsample: float) -> BoostingParams:
    from treetap.trees.params import BoostingParams

    return BoostingParams(n_estimators=trees, max_depth=depth, max_bin=max_bin, subsample=subsample)


def _nodes(text: str, cores: int, workers: int, memory: float) -> tuple[Nodes, Nodes]:
    from treetap.capacity.site import Nodes

    counts = _numbers("--nodes", text)
    if len(counts) > 2:
        raise BadInput(f"--nodes {text}: one number for all parties, or the label holder's and the feature parties'")
    holder, other = counts[0], counts[-1]
    return Nodes(holder, workers, cores, memory), Nodes(other, workers, cores, memory)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas between.

    Raises:
        BadInput: there is something else.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise BadInput(f"{option} {text}: must be whole numbers with commas between, as 25,25")
    return tuple(int(part) for part in parts)
