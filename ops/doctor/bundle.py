"""`treetap doctor --bundle`: one archive for those who help, of what is known to tell nothing of a table or a secret.

Nothing is taken out of what is there; only this is put in: versions; of the configuration the keys that treetap has,
yes or no, numbers and the words that a key may have, and for all else its kind and length; how many files the state
folder has; findings without their texts; of each line of a log its time, level and logger, the text that the source has
for such lines, without what was filled in, and the places of a traceback.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic import BaseModel

import treetap
from treetap import version
from treetap.commands.options import reading
from treetap.errors import BadInput, refuse
from treetap.logs import LEVELS, LONGEST_LINE, LONGEST_TRACEBACK
from treetap.models.durable import write_whole
from treetap.models.store import MANIFEST
from treetap.ops.doctor.connections import Finding
from treetap.party.policy import Policy
from treetap.party.runtime.job_store import DECISIONS, DRAWS, PREVIEWED, QUERIES, TRANSCRIPTS
from treetap.strict import read_toml
from treetap.wire.frame import PATHS
from treetap.wire.v2 import control_pb2

#: Last lines of a log that are looked at, and bytes that these can have.
MOST_LINES, MOST_BYTES = 20_000, 1 << 25
#: Folders of a state folder; another name may be anybody's.
FOLDERS = {"jobs", "models", "predictions", TRANSCRIPTS, DRAWS, QUERIES, DECISIONS, PREVIEWED}
#: Subjects of findings; another one has the name of a table or a process.
SUBJECTS = {
    *("certificate", "key", "revoked", "authority", "proxy", "folders", "policy", "native kernels", "arithmetic"),
    *("cluster", "organisation", "serve.clients", "attacks", "addresses", "configuration"),
}
Json = Mapping[str, Any]
_TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]+) (?P<logger>\S+) "
    r"(?:\[(?>[^]]*?\bstep=(?P<step>\w+))?[^]]*\] )?(?P<message>.*)"
)
_FRAME = re.compile(r'File ".*?([\w-]+/[\w-]+\.py)", line (\d+), in (\w+)')
_FILLED = re.compile(r"%[-#0 +]*[\d.*]*[sdrfgxi]")
#: Letters that a text of the source must have itself, so that what was filled in does not pass for it.
_LEAST = 7


def write_bundle(
    path: Path, config: Path | None, schema: type[BaseModel], findings: Sequence[Finding], logs: Sequence[Path]
) -> Finding:
    """Write the archive, and say what it has.

    `schema`: of the configuration file. Raises `BadInput` where the archive is there or cannot be written, or a log
    cannot be read.
    """
    refuse(
        (path.exists(), f"{path}: is there already; name another file, or remove it"),
        (not path.parent.is_dir(), f"{path.parent}: is no folder; make it, or name another one"),
        *((log.exists() and not log.is_file(), f"{log}: is no file; write its lines into one first") for log in logs),
        kind=BadInput,
    )
    names = sorted({re.split(r"[^\w.-]", text)[0] for text in metadata.requires("treetap") or ()})
    installed = {one.metadata["Name"].lower(): one.version for one in metadata.distributions()}
    members: dict[str, object] = {
        "versions.json": {
            "treetap": version.package_version(),
            "protocol": version.PROTOCOL_VERSION,
            "python": sys.version,
            "system": platform.platform(),
            "libraries": {name: installed.get(name.lower()) for name in names},
        },
        "findings.json": [{"level": finding.level, "subject": _subject(finding.subject)} for finding in findings],
    }
    if config is not None:
        plain = read_toml(config)
        members["configuration.json"] = shown(plain, whole := schema.model_json_schema(), whole)
        if isinstance(policy := plain.get("policy"), str):
            whole = Policy.model_json_schema()
            members["policy.json"] = shown(read_toml(config.absolute().parent / policy), whole, whole)
        if isinstance(state := plain.get("state"), str):
            members["state.json"] = _state(config.absolute().parent / state)
    for number, log in enumerate(logs, 1):
        with reading(log):
            members[f"log-{number}.json"] = list(_lines(log))
    content = BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as file:
        for name, member in members.items():
            file.writestr(name, json.dumps(member, indent=1))
    with reading(path):
        write_whole(path, content.getvalue())
    has = f"{', '.join(members)}, without ids, cells, labels, keys or names of columns"
    return Finding("ok", "bundle", f"{path}: {has}; read it before you send it")


def shown(value: object, schema: Json, whole: Json, *, own: bool = False) -> object:
    """A value of a configuration as far as its schema knows it.

    `own`: below a key that the file's owner has chosen, as a table or a column is named: numbers are not shown either,
    nor is yes or no right at such a key, which may be a cell.
    """
    parts = list(_parts(schema, whole))
    if isinstance(value, dict):
        known = dict[str, Json]()
        for part in parts:
            known |= part.get("properties", {})
            known |= dict.fromkeys(part.get("propertyNames", {}).get("enum", ()), part.get("additionalProperties"))
        more = [part["additionalProperties"] for part in parts if isinstance(part.get("additionalProperties"), dict)]
        rest = {"anyOf": more} if more else {}
        kept = {name: shown(value[name], one, whole, own=own) for name, one in known.items() if name in value}
        others = [inner for name, inner in value.items() if name not in known]
        return kept | {
            f"<{number}>": "<bool>" if isinstance(inner, bool) else shown(inner, rest, whole, own=True)
            for number, inner in enumerate(others, 1)
        }
    if isinstance(value, list):
        return [shown(one, {"anyOf": [part.get("items", {}) for part in parts]}, whole, own=own) for one in value]
    words = {
        word
        for part in parts
        for word in (*part.get("enum", ()), part.get("const"), part.get("default"))
        if isinstance(word, str)
    }
    if parts and (isinstance(value, bool) or value in words or (isinstance(value, int | float) and not own)):
        return value
    return f"<{type(value).__name__} of {len(str(value))}>"


def _parts(schema: Json, whole: Json) -> Iterator[Json]:
    """The schema and all that it stands for."""
    if "$ref" in schema:
        yield from _parts(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    elif schema:
        yield schema
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _parts(part, whole)


def _subject(subject: str) -> str:
    """The check's own words."""
    own = subject.partition(" = ")[0]
    return own if " = " in subject or own in SUBJECTS else "a table" if own.startswith("table ") else "another process"


def _state(state: Path) -> Json:
    """How many files and bytes each folder has, and how many models are whole."""
    counted: dict[str, list[int]] = {}
    with reading(state):
        for file in state.rglob("*"):
            if file.is_file():
                folder = file.relative_to(state).parts[0]
                row = counted.setdefault(folder if folder in FOLDERS else "other", [0, 0])
                row[0], row[1] = row[0] + 1, row[1] + file.stat().st_size
    folders = {name: {"files": n, "bytes": b} for name, (n, b) in counted.items()}
    return {"folders": folders, "models": len(list(state.glob(f"models/*/{MANIFEST}")))}


def _lines(log: Path) -> Iterator[Json]:
    """The last lines of a log, as text or JSON; lines of a traceback are told by their frames of Python."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MOST_BYTES))
        lines = file.read(MOST_BYTES).decode(errors="replace").splitlines()
    for line in lines[-MOST_LINES:]:  # journals and engines put words of theirs before each
        fits = _TEXT.search(line[:LONGEST_LINE])
        try:
            part = fits.groupdict() if fits else json.loads(line[max(0, line.find("{")) :])
        except (ValueError, RecursionError):
            part = {"traceback": line}
        if isinstance(part, dict):
            frames = [":".join(frame) for frame in _FRAME.findall(str(part.get("traceback", ""))[:LONGEST_TRACEBACK])]
            if row := _line(part) | ({"frames": frames} if frames else {}):
                yield row


def _line(part: Json) -> dict[str, object]:
    level, logger, time = (str(part.get(name, "")) for name in ("level", "logger", "time"))
    if level.lower() not in LEVELS:
        return {}
    message, (modules, texts) = str(part.get("message", "")), said()
    text = next((text for text, pattern in texts if pattern.fullmatch(message)), "<a text with nothing of the source>")
    return {
        "time": time if re.fullmatch(r"\d{4}-\d\d-\d\d[ T][\d:.,+-]{8,21}", time) else "",
        "level": level.lower(),
        "logger": logger if logger in modules else "another",
        **({"step": step} if (step := part.get("step")) in PATHS[control_pb2.StepRequest] else {}),
        "text": text,
    }


@cache
def said() -> tuple[frozenset[str], list[tuple[str, re.Pattern[str]]]]:
    """The modules of treetap, and the texts that its source gives to logs, the longest first, as patterns of lines."""
    root, texts, modules = Path(treetap.__file__).parent, set(), {"grpc", "stderr"}
    for folder in (root, *(part for part in root.iterdir() if part.is_symlink())):  # in a clone those of the actors
        for file in folder.rglob("*.py"):
            modules.add(".".join(("treetap", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"))
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "log." in text else ():
                if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("log.") in {
                    "exception",
                    "log",
                    *LEVELS,
                }:
                    texts |= {arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)}
    kept = [text for text in texts if isinstance(text, str) and len(_FILLED.sub("", text)) >= _LEAST]
    return frozenset(modules), [(text, _pattern(text)) for text in sorted(kept, key=len, reverse=True)]


def _pattern(text: str) -> re.Pattern[str]:
    """What fits the text with anything filled in; a part is looked for once, since to try all its places takes ages."""
    first, *rest = map(re.escape, _FILLED.split(text))
    parts = [*(f"(?>.*?{part})" for part in rest[:-1]), *(f".*{part}" for part in rest[-1:])]
    return re.compile("".join([first, *parts]), re.DOTALL)
