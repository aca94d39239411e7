"""docs/reference/keys.md: every key of every file that a person writes, from the classes that read them.

A key's meaning is the docstring below its field, or its entry among the class's `Attributes`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from contextlib import ExitStack, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from unittest.mock import patch

from pydantic import BaseModel, ValidationError

from tools.renderers.commands import escaped
from treetap.attacks.audit_file import SETTINGS, Accuracies, AuditFile
from treetap.attacks.files import AuditedParty, LabelTable, ScoredPrediction, Victim
from treetap.attacks.registry import rows
from treetap.commands.approvals.client import ApproverConfig, ConsoleConfig
from treetap.commands.certs.authority import AuthorityFile
from treetap.commands.jobs.client import OperatorConfig
from treetap.commands.jobs.job_file import JobFile, JobTableOfFederation
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError
from treetap.lab.experiment.experiment_file import DefenceRow, ExperimentFile
from treetap.lab.experiment.file_tables import AuditTable, DataTable, OutputTable, PartyTable, PredictTable
from treetap.lattice.histogram_parameters import secrecy_words
from treetap.neural.params import Bottom, Top
from treetap.ops.gateway.config import AskedParty, GatewayConfig
from treetap.ops.relay.command import RelayConfig
from treetap.party.approvals.decisions import Bounds, StandingFile
from treetap.party.config import PartyConfig, ServeConfig
from treetap.party.defences.settings import Defences, DpSgdTable, Gradient, IdLmid, LabelDp, ReducedLeakage
from treetap.party.policy import Policy
from treetap.party.policy_tables import TABLES, KeyPolicy
from treetap.process.config import Secret, TelemetryConfig, TlsConfig
from treetap.protocols.limits import Limits, Partner
from treetap.protocols.registry import TRAINING, training
from treetap.tables.config import TableConfig
from treetap.trees import job_params
from treetap.workers.settings import ClusterConfig

HEAD = """# Keys

Every key of every file that a person writes: its type, its default, its range and what it says. This page is for a
reader who writes such a file by hand; [configuration.md](../configuration.md) shows whole files. It is generated from
the classes that read them, so that a key which is not here is refused.

A *name* has lower-case letters, digits and inner hyphens, at most 63. An *address* is `HOST:PORT`. A relative path
starts at the folder of its file. A key without a default is "required"; "none" stands for nothing.

"""
#: File → what reads it, and its tables: heading → (class, remark). A job's parameters have sections of their own.
FILES: dict[str, dict[str, tuple[type, str]]] = {
    "Party file": {
        "": (PartyConfig, "`treetap party --config FILE`: one party's addresses, tables and defences."),
        "[tls]": (TlsConfig, "The same in every process's file."),
        "[telemetry]": (TelemetryConfig, "Also in the coordinator's file."),
        "[cluster]": (ClusterConfig, ""),
        "[tables.NAME]": (TableConfig, "Also a file `NAME.toml` of `tables_folder`."),
        "[serve]": (ServeConfig, ""),
        "[defences]": (Defences, "No other party and no job sees them."),
        "[defences.id_lmid]": (IdLmid, ""),
        "[defences.label_dp]": (LabelDp, ""),
        "[defences.reduced_leakage]": (ReducedLeakage, ""),
        "[defences.gradient]": (Gradient, ""),
        "[defences.dp_sgd]": (DpSgdTable, ""),
    },
    "Policy file": {
        "": (Policy, "The file that a party's `policy` names: what the party is willing to do and to show."),
        **{f"[{name}]": (table, str(table.__doc__)) for name, table in TABLES.items()},
        "[limits]": (Limits, "A job that breaks one is refused, also by `treetap train --check`."),
        "[partners.NAME]": (Partner, "Counted by `ledger.jsonl` in the state folder; `treetap ledger` shows it."),
    },
    "Coordinator file": {"": (CoordinatorConfig, "`treetap coordinator --config FILE`.")},
    "Relay file": {"": (RelayConfig, "`treetap relay FILE`.")},
    "Gateway file": {"": (GatewayConfig, "`treetap gateway FILE`."), "[party]": (AskedParty, "")},
    "Operator file": {
        "": (OperatorConfig, "`operator.toml` of the commands that call a coordinator, or `--operator FILE`.")
    },
    "Approver file": {
        "": (ApproverConfig, "`approver.toml` of `treetap jobs`, `approve`, `refuse` and `console`."),
        "[console]": (ConsoleConfig, "The pages of `treetap console`."),
    },
    "Authority file": {
        "": (AuthorityFile, "`authority.toml` in an authority's folder, which `treetap certs` reads there."),
        "{ passphrase }": (Secret, "The place of a secret, also of `passphrase` in every other file."),
    },
    "Standing approval": {
        "": (StandingFile, "`treetap approve --standing FILE`."),
        "[document]": (Bounds, "The bounds of one field."),
    },
    "Job file": {
        "": (JobFile, "`treetap train FILE`."),
        "[job]": (JobTableOfFederation, "Beside these the [parameters](#parameters-of-a-job) of its protocol."),
    },
    "Experiment file": {
        "": (ExperimentFile, "`treetap experiment FILE`, and `treetap frontier FILE`."),
        "[data]": (DataTable, ""),
        "[[party]]": (PartyTable, ""),
        "[audit]": (AuditTable, ""),
        "[predict]": (PredictTable, ""),
        "[output]": (OutputTable, ""),
        "[[defence]]": (DefenceRow, "Compared by `treetap frontier`."),
    },
    "Audit file": {
        "": (AuditFile, "`audit.toml`, which `treetap audit` reads."),
        "[label], [known], [evaluation]": (LabelTable, ""),
        "[[party]] of an audit": (AuditedParty, ""),
        "[[victim]]": (Victim, ""),
        "[[prediction]]": (ScoredPrediction, ""),
        "[accuracy]": (Accuracies, ""),
    },
}
#: Class and field → what is computed of it, said after its meaning.
COMPUTED: dict[tuple[type, str], str] = {(KeyPolicy, "min_lattice_bits"): f"In a training it is {secrecy_words()}."}
#: Tables of networks.
OF_NETWORKS = {"[job.bottom.NAME]": Bottom, "[job.top]": Top}
#: Parameters that are given a value, so that their ranges are looked at too.
GIVEN = {"early_stopping_rounds": 1, "epsilon": 1.0, "label_scale": 1.0}


#: Parameters that some protocols keep at their defaults, each with a job that has another value.
WITHHELD = {"scheme": "lattice", "instance_spaces": "withheld"}
CHANGED: dict[str, dict[str, Any]] = {
    "subsample": {"subsample": 0.5},
    "colsample_bytree": {"colsample_bytree": 0.5},
    "party_dropout": {"party_dropout": {"b": 0.1}},
    "instance_spaces": WITHHELD,
    "pad_trees": {**WITHHELD, "pad_trees": True},
}


class Key(NamedTuple):
    """A row of the page."""

    name: str
    kind: str
    default: str
    range: str
    meaning: str


def rendered(docs: Path) -> dict[Path, str]:
    """The page; ValueError naming every key without a meaning."""
    silent: list[str] = []
    lines = [HEAD.rstrip(), ""]
    for file, tables in FILES.items():
        lines += [f"## {file}", ""]
        for heading, (schema, remark) in tables.items():
            lines += [f"### {escaped(heading)}", ""] if heading else []
            lines += [*textwrap.wrap(remark, 118), ""] if remark else []
            lines += _table(_keys_of(schema), schema, silent)
        if file == "Job file":
            lines += _parameters(silent)
        if file == "Audit file":
            lines += _settings(silent)
    if silent:
        raise ValueError(f"no docstring says what these keys mean: {', '.join(silent)}")
    return {docs / "reference" / "keys.md": "\n".join(lines).rstrip() + "\n"}


def _keys_of(schema: type) -> list[Key]:
    """The keys of a table that pydantic reads; of a job those that are no protocol's own."""
    own = {field.name for name in TRAINING for field in fields(training(name).params)} - {"seed", "missing"}
    found = []
    for name, field in schema.model_fields.items() if issubclass(schema, BaseModel) else ():
        if issubclass(schema, JobTableOfFederation) and name in own:
            continue
        kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else _shown(default)
        said = f"{meaning(schema, name)} {COMPUTED.get((schema, name), '')}".strip()
        found.append(Key(field.alias or name, _kind(kind), shown, _range(kind), said))
    return found


def _parameters(silent: list[str]) -> list[str]:
    """The parameters of every training protocol, and the tables of networks."""
    lines = ["### Parameters of a job", "", "In the table `[job]`, of a job file or of an experiment's.", ""]
    for protocol in TRAINING:
        kind = training(protocol).params
        keys = [key for key in _of_dataclass(kind) if _has(protocol, key.name)]
        lines += [f"#### {protocol}", "", *_table(keys, kind, silent)]
    for heading, kind in OF_NETWORKS.items():
        lines += [f"#### {escaped(heading)}", "", *_table(_of_dataclass(kind), kind, silent)]
    return lines


def _has(protocol: str, name: str) -> bool:
    """False for a parameter that must be left as it is in jobs of a protocol."""
    if name not in CHANGED:
        return True
    who = {"parties": ["a", "b"]} if training(protocol).one_role else {"label_holder": "a", "feature_parties": ["b"]}
    try:
        JobTableOfFederation.model_validate({"protocol": protocol, **who, **CHANGED[name]})
    except ValidationError:
        return False
    return True


def _settings(silent: list[str]) -> list[str]:
    """The settings of attacks, a table for each kind."""
    lines = []
    for heading, needs in SETTINGS.items():
        for kind in dict.fromkeys(attack.settings for attack in rows(needs).values()):
            assert kind is not None
            lines += [f"### [{heading}] of attacks", "", *_table(_of_dataclass(kind), kind, silent)]
    return lines


def _of_dataclass(kind: type) -> list[Key]:
    hints, allowed = get_type_hints(kind), _limits(kind)
    found = []
    for field in fields(kind):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        shown = "required" if default is MISSING else _shown(default)
        hint = hints[field.name]
        of = allowed.get(field.name, "" if hint is not int else _range(hint))
        found.append(Key(field.name, _kind(hint), shown, of, meaning(kind, field.name)))
    return found


@cache
def _limits(kind: type) -> dict[str, str]:
    """Name of a parameter → the range or the choices that its class checks."""
    found: dict[str, str] = {}

    def ranges(_: object, named: dict[str, job_params.Range]) -> list[str]:
        found.update({name: _interval(allowed) for name, allowed in named.items()})
        return []

    def choices(_: object, named: dict[str, tuple[str, ...]]) -> list[str]:
        found.update({name: ", ".join(f"`{json.dumps(each)}`" for each in allowed) for name, allowed in named.items()})
        return []

    names = {field.name for field in fields(kind)}
    replaced = {"out_of_range": ranges, "not_a_choice": choices}
    with ExitStack() as patches:
        for module in [module for name, module in sys.modules.items() if name.startswith(("treetap.", "attacks."))]:
            for name in replaced.keys() & vars(module).keys():
                patches.enter_context(patch.object(module, name, replaced[name]))
        made = kind(**{name: value for name, value in GIVEN.items() if name in names})
        if hasattr(made, "validate"):
            with suppress(ConfigError):  # not all of these go together
                made.validate()
        elif kind is Bottom:
            made.faults("")
    return found


def _interval(allowed: job_params.Range) -> str:
    more = " or more" if allowed.open_high else ""
    low = f"above {_number(allowed.low)}" if allowed.open_low else f"{_number(allowed.low)}{more}"
    high = f"below {_number(allowed.high)}" if allowed.open_high else f"{_number(allowed.high)}"
    return f"{low} to {high}" if not (allowed.open_low or allowed.open_high) else f"{low}, {_most(allowed, high)}"


def _most(allowed: job_params.Range, high: str) -> str:
    return high if allowed.open_high else f"at most {high}"


def _number(value: float) -> str:
    if value == 2**63 - 1:
        return "2⁶³ − 1"
    if value == 2**31 - 1:
        return "2³¹ − 1"
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    return re.sub(r"e([+-])0*", lambda it: "e" + it[1].strip("+"), f"{value:g}")


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without `Annotated`, and what is annotated."""
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        bare, others = _parts(inner)
        return bare, (*others, *more)
    return kind, ()


def _range(kind: Any) -> str:
    """Bounds and choices of a type, its parts included."""
    bare, notes = _parts(kind)
    told: dict[str, Any] = {}
    for note in (inner for each in notes for inner in getattr(each, "metadata", [each])):
        told |= {
            name: value
            for name in ("gt", "ge", "lt", "le", "min_length")
            if (value := getattr(note, name, None)) is not None
        }
    said = [f"at least {told['min_length']}"] if told.get("min_length", 0) > 1 else []
    low = f"above {_number(told['gt'])}" if "gt" in told else f"{_number(told['ge'])}" if "ge" in told else ""
    high = f"below {_number(told['lt'])}" if "lt" in told else f"{_number(told['le'])}" if "le" in told else ""
    if low and high:
        plain = "ge" in told and "le" in told
        said.append(f"{low} to {high}" if plain else f"{low}, {'at most ' * ('le' in told)}{high}")
    elif low:
        said.append(low if "gt" in told else f"{low} or more")
    if get_origin(bare) is Literal:
        said.append(", ".join(f"`{json.dumps(each)}`" for each in get_args(bare)))
    if get_origin(bare) in (Union, UnionType, list, tuple):
        said += [inner for each in get_args(bare) if (inner := _range(each))]
    if get_origin(bare) is dict and (inner := _range(get_args(bare)[1])):
        said.append(inner)
    return "; ".join(dict.fromkeys(said))


#: Types by their words.
WORDS = {str: "text", bool: "true or false", int: "whole number", float: "number", Path: "path", Any: "anything"}


def _kind(kind: Any) -> str:  # noqa: PLR0911 - a word for each sort of type
    """A type in words."""
    bare, notes = _parts(kind)
    origin, inner = get_origin(bare), get_args(bare)
    checks = {getattr(getattr(note, "func", None), "__name__", "") for note in notes}
    if "check_name" in checks:
        return "name"
    if "check_address" in checks:
        return "address"
    if bare in WORDS:
        return WORDS[bare]
    if origin is Literal:
        return WORDS[type(inner[0])]
    if origin in (Union, UnionType):
        words = dict.fromkeys(_kind(each) for each in inner if each is not type(None))
        return " or ".join(word for word in words if word != "text" or "path" not in words)
    if (origin is not None and origin in (list, tuple)) or getattr(origin, "__name__", "") == "Sequence":
        return f"list of {_kind(inner[0]).partition(':')[0]}s"
    if origin is not None and len(inner) == 2:
        return f"table: {_kind(inner[0])} = {_kind(inner[1])}"
    return "table" if isinstance(bare, type) and (issubclass(bare, BaseModel) or is_dataclass(bare)) else str(bare)


def _shown(value: Any) -> str:
    """A default as TOML has it."""
    if value is None or isinstance(value, BaseModel):
        return "none"
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        return _toml({name: it for name, it in given.items() if it != type(value).__dataclass_fields__[name].default})
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(it)}" for name, it in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return f"{value!r}"
    return json.dumps(value, ensure_ascii=False)


@cache
def _said(kind: type) -> dict[str, str]:
    """Field → the docstring below it, or its entry among the `Attributes` of the class."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):  # made of a list while the program runs
        return {}
    assert isinstance(tree, ast.ClassDef)
    about = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2].split("\n\n")[0]
    told = {it[1]: " ".join(it[2].split()) for it in re.finditer(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", about, re.M)}
    told = {name: f"{text[0].upper()}{text[1:]}" for name, text in told.items()}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
            told[field.target.id] = " ".join(text.split())
    return told


def meaning(kind: type, name: str) -> str:
    """The meaning of a field; empty where nothing says it."""
    return next((_said(each)[name] for each in kind.__mro__ if name in _said(each)), "")


def _table(keys: list[Key], schema: type, silent: list[str]) -> list[str]:
    silent += [f"{schema.__name__}.{key.name}" for key in keys if not key.meaning]
    lines = ["| key | meaning | value | default |", "|---|---|---|---|"]
    for key in keys:
        named = key.range.startswith("`") and key.kind in ("text", "whole number")  # choices say what sort they are
        value = key.range if named else f"{key.kind}, {key.range}" if key.range else key.kind
        cells = [f"`{key.name}`", escaped(key.meaning), value, key.default.replace("|", "\\|")]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
