"""Bases of typed content, and TOML files checked against a schema, all faults reported together."""

from __future__ import annotations

import codecs
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from treetap.errors import ConfigError, did_you_mean
from treetap.names import check_address, check_name, check_process_name, check_reachable

#: A measured figure, None where it is undefined or infinite.
Figure = Annotated[
    float | None,
    BeforeValidator(lambda value: None if isinstance(value, float) and not math.isfinite(value) else value),
]
Name = Annotated[str, AfterValidator(check_name)]
ProcessName = Annotated[Name, AfterValidator(check_process_name)]
Address = Annotated[str, AfterValidator(check_address)]
#: An entry of a policy's list of addresses of peers.
Reachable = Annotated[str, AfterValidator(check_reachable)]
#: A name or an address of a host, without a port.
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,253}$")]


class Strict(BaseModel):
    """Base of all configuration: an unknown key and a value of another type are errors, not silent defaults.

    A whole number may stand for a real one. Text may not stand for a number, nor true for 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    @classmethod
    def about_unknown(cls, key: str) -> str:
        """The end of the error about a key that this table does not have: the one that was probably meant."""
        return did_you_mean(key, _keys(cls))

    @field_validator("*", mode="before")
    @classmethod
    def _as_path(cls, value: Any, info: ValidationInfo) -> Any:
        """TOML has no paths: where one is wanted, text is one."""
        kind = cls.model_fields[info.field_name or ""].annotation
        return Path(value) if isinstance(value, str) and Path in (kind, *get_args(kind)) else value

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """What a file holds; relative paths in it are relative to its folder. Raises as `load` does."""
        return load(path, cls).below(path.absolute().parent)

    def below(self, base: Path) -> Self:
        """The same with relative paths taken from a folder, those of tables within it too."""
        moved = {name: new for name, value in self if (new := _below(value, base)) is not value}
        return self.model_copy(update=moved) if moved else self


def _below(value: Any, base: Path) -> Any:
    if isinstance(value, Path):
        return base / value
    if isinstance(value, dict):
        moved = {name: new for name, inner in value.items() if (new := _below(inner, base)) is not inner}
        return value | moved if moved else value  # the same object does not count as a key that the file has
    return value.below(base) if isinstance(value, Strict) else value


class Part(BaseModel):
    """Base of the parts of documents that are written and read: an unknown field is an error, and so is a number that
    JSON cannot express.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True, defer_build=True)

    def plain(self) -> dict[str, Any]:
        """The fields that were given, as JSON types under the names of the JSON object."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def fitting(pattern: str, says: str, *, shown: bool = True) -> BeforeValidator:
    """Text of a pattern; else an error that says so. `shown`: it may show what was written."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(says) if shown else unshown(says)
        return value

    return BeforeValidator(check)


def unshown(message: str) -> PydanticCustomError:
    """An error of a field whose value no message shows, since it may be a password."""
    return PydanticCustomError(_UNSHOWN, message)


#: The place of a fault of the whole content.
WHOLE = "the file"
_UNSHOWN = "unshown"
_FIXED = {"extra_forbidden": "unknown key", "missing": "is missing"}
Schema = TypeVar("Schema", bound=BaseModel)


def text_of(path: Path) -> str:
    """The text of a file that a person wrote, without the mark that some editors put before it.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read, or is not UTF-8.
    """
    return path.read_text(encoding="utf-8-sig")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; `ConfigError` names the file and the fault."""
    try:
        return tomllib.loads(text_of(path))
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as failure:
        raise ConfigError(f"{path}: cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError as failure:
        wide = failure.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = "UTF-16, as PowerShell writes, " if wide else ""
        raise ConfigError(f"{path}: is {encoding}not UTF-8 text ({failure.reason}): save it as UTF-8") from None
    except tomllib.TOMLDecodeError as failure:
        twice = "Cannot overwrite" in str(failure) or "Cannot declare" in str(failure)
        more = "; a key or table is defined twice: use each name once" if twice else ""
        raise ConfigError(f"{path}: is not TOML: {failure}{more}") from None
    except ValueError as failure:  # a path that is none, a number of thousands of digits
        raise ConfigError(f"{path}: cannot be read: {failure}") from None


def load(path: Path, schema: type[Schema]) -> Schema:
    """Read and check a TOML file; `ConfigError` names the file and every field that is wrong."""
    data = read_toml(path)
    try:
        return schema.model_validate(data)
    except ValidationError as failure:
        lines = faults_of(failure, schema)
        raise ConfigError("\n".join([f"{path}: {len(lines)} wrong:", *(f"  {line}" for line in lines)])) from None


def faults_of(failure: ValidationError, schema: type[BaseModel]) -> list[str]:
    """Faults of content that the schema refused: each field by its place, the fault, and what may be meant."""
    return [
        f"{'.'.join(f'[{part + 1}]' if isinstance(part, int) else part for part in error['loc']) or WHOLE}: "
        f"{_what(error)}{_about_key(error['loc'], schema) if error['type'] == 'extra_forbidden' else ''}"
        for error in failure.errors()
    ]


def _about_key(location: tuple[int | str, ...], schema: type[BaseModel]) -> str:
    """A hint for a key that its table does not have: it may belong to the file, and stand behind its last table."""
    *tables, key = location
    if tables and key in _keys(schema):
        return "; it is a key of the whole file: put it above the first [table]"
    kinds = (_schema_at(schema, tables), schema)  # the file knows tables beside this one
    return next(filter(None, (kind.about_unknown(str(key)) for kind in kinds if issubclass(kind, Strict))), "")


def _keys(schema: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in schema.model_fields.items()]


def _schema_at(schema: type[BaseModel], location: list[int | str]) -> type[BaseModel]:
    """The schema of a table inside a file; `location` has its keys, numbers in lists, and names of tables of tables."""
    named = False
    for part in location:
        kinds = {field.alias or name: field.annotation for name, field in schema.model_fields.items()}
        if named or part not in kinds:
            named = False
            continue
        inner, named = _inside(kinds[str(part)])
        schema = inner or schema
    return schema


def _inside(kind: Any) -> tuple[type[BaseModel] | None, bool]:
    """The schema that a field's type contains, and whether a table of such tables by name."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, False
    for part in get_args(kind):
        schema, named = _inside(part)
        if schema is not None:
            return schema, named or get_origin(kind) in (dict, Mapping)
    return None, False


def _what(error: object) -> str:
    assert isinstance(error, dict)
    if fixed := {**_FIXED, _UNSHOWN: str(error["msg"])}.get(error["type"]):
        return fixed
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        known = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        return f"{error['msg']}{_shown(error['input'])}{did_you_mean(error['input'], known)}"
    if error["type"] == "is_instance_of":  # of the fields of our files, only paths are no type of TOML
        return f"a path is text{_shown(error['input'])}"
    if error["type"] == "model_type":
        return f"a table of keys and values is needed{_shown(error['input'])}"
    if error["type"] == "list_type" and isinstance(error["input"], str):
        like = f", such as [{json.dumps(error['input'])}]" if _shown(error["input"]) else ""
        return f"a list of names{like}{_shown(error['input'])}"
    message = str(error["msg"]).removeprefix("Value error, ")
    quoted = isinstance(error["input"], str) and error["type"] in ("int_type", "float_type", "bool_type")
    message += ", without quotes" if quoted else ""
    if not _shown(value := error["input"]):  # the check may have named it
        message = message.replace(repr(value), "this value")
    return message if isinstance(value, dict) else f"{message}{_shown(value)}"


def _shown(value: object) -> str:
    """The end of a sentence that shows a value, unless it is, or holds, an address with a user, hence a password."""
    return "" if "@" in repr(value) else f" (it is {value!r})"
