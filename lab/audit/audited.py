"""The audit of one run or of all runs of an experiment: reports, documents, figures for a person, limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from treetap import terminal
from treetap.attacks import audit, audit_file
from treetap.attacks import limits as gate
from treetap.attacks.audit_file import Runs
from treetap.attacks.document import Document
from treetap.attacks.report import html as report
from treetap.attacks.report import print_summary, print_verdict
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput
from treetap.lab.audit.options import AuditOptions
from treetap.models.durable import write_whole
from treetap.pages.page import drawn


def audit_runs(runs: Runs, asked: AuditOptions, *, as_json: bool) -> list[str]:
    """Audit the runs, write and print what was found; returns the figures above a limit, which are printed too.

    Raises:
        BadInput: a file has a fault or cannot be written, or figures are too few to be judged by limits.
        Malformed: a transcript was changed.
    """
    limits, html, document = gate.parse(asked.fail_above or []), asked.html, asked.document
    if runs.several and html is not None:
        raise BadInput(
            f"--html: each run of an experiment has its report in its folder; name one, as {runs.audited[0]}"
        )
    if runs.silent and limits and not asked.allow_partial:
        raise BadInput(f"{_unaudited(runs.silent[0])}: --fail-above needs --allow-partial to judge by the others")
    # faults of all files and folders are named before the first audit, which may take minutes
    files = [_file(run, asked) for run in runs.audited]
    pages = [html or (run if run.is_dir() else run.parent) / "audit.html" for run in runs.audited]
    for folder in {path.parent for path in (*pages, document or pages[0])}:
        if not folder.is_dir():
            raise BadInput(f"{folder}: there is no such folder for the report")
    plain, above = {}, []
    for run, file, page in zip(runs.audited, files, pages, strict=True):
        name = run.name if runs.several else ""
        with progress_view.steps(" ".join(("audit", name)).strip()) as progress:
            content = audit.audit(file, by_tree=asked.by_tree(thorough=bool(limits)), progress=progress)
        exceeded = _above(content, limits, allow_partial=asked.allow_partial)
        above += [f"{name}: {line}" if name else line for line in exceeded]
        plain[name] = content.plain()
        if not as_json:
            if name:
                terminal.out.rule(terminal.text(name))
            print_verdict(plain[name], terminal.out)
            if asked.details:
                print_summary(plain[name], terminal.out)
        told = drawn(page, partial(report, plain[name]))
        if write_report(page, told, "--html", named=html is not None) and not as_json:
            terminal.out.print(f"report: {page}", soft_wrap=True)
    text = json.dumps({"runs": plain} if runs.several else plain[""], indent=1)
    if document is not None:
        write_report(document, text, "--document", named=True)
    if as_json:
        print(text, flush=True)
    for line in [*(f"note: {_unaudited(run)}" for run in runs.silent), *above]:
        terminal.err.print(terminal.text(line), soft_wrap=True)
    return above


def _unaudited(run: Path) -> str:
    return f"{run}: holds no {audit_file.FILE}, hence is not audited"


def _file(run: Path, asked: AuditOptions) -> audit_file.AuditFile:
    """The audit file of a run with what was asked for in the place of its own."""
    file = audit_file.read(run)
    given: dict[str, object] = {"job": asked.job, "ca": asked.ca, "revoked": asked.revoked, "frontier": asked.frontier}
    update = {key: value for key, value in given.items() if value is not None}
    if asked.attacks is not None:
        try:
            update["attacks"] = audit_file.known_attacks([name.strip() for name in asked.attacks.split(",")])
        except ValueError as fault:
            raise BadInput(f"--attacks: {fault}") from None
    return file.model_copy(update=update)


def _above(document: Document, limits: Mapping[str, float], *, allow_partial: bool) -> list[str]:
    """The figures above a limit. Raises BadInput where faults of a transcript may hide some."""
    above = gate.exceeded(document, limits)
    if limits and not above and not allow_partial and (faults := audit.incomplete(document)):
        raise BadInput(f"{faults[0]}; figures may be too small: --fail-above needs --allow-partial to judge by them")
    return above


def write_report(path: Path, content: str | None, option: str, *, named: bool) -> bool:
    """Write a report; False of None, which could not be drawn.

    Where the person has not named the place, a link is replaced: RUN may be from elsewhere.
    """
    if content is None:
        return False
    try:
        if named:
            path.write_text(content, encoding="utf-8")
        else:
            write_whole(path, content.encode(), mode=0o644)
    except OSError as failure:
        raise BadInput(f"{path}: cannot be written: {failure.strerror}; say {option} FILE") from None
    return True
