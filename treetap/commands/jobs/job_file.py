"""The `[job]` table of a job or experiment file: parameters under the names that XGBoost and scikit-learn give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field, ValidationError, create_model, model_validator

from treetap.errors import BadInput, ConfigError, quoted
from treetap.names import NAME, NAME_RULE
from treetap.protocols.exclusions import TRAININGS, Feature, broken, named_in
from treetap.protocols.job_spec import (
    ALIGNMENTS,
    DECIDES,
    OPENED,
    PRIVACY,
    PRIVATE,
    PUBLISHED,
    SUMS,
    WITHHELD,
    check_spec,
    privacy_of,
    put_params,
)
from treetap.protocols.key_options import (
    BREAKABLE_BITS,
    KEY_FIELDS,
    KEY_LENGTHS,
    LATTICE,
    LINE_KEY,
    PAILLIER,
    SCHEMES,
    KeyKind,
    Obfuscation,
    bin_faults,
    bits_per_second,
    key_faults,
)
from treetap.protocols.messages import INNER, JOINS
from treetap.protocols.registry import TRAINING, training
from treetap.strict import WHOLE, Name, Strict, faults_of
from treetap.trees.job_params import JobParams
from treetap.trees.params import ADDITIVE, contradicted
from treetap.wire.v2 import setup_pb2


class ParameterTable(Strict):
    """A table inside the parameters; `kind` is the dataclass that it stands for."""

    kind_: ClassVar[type]

    def value(self) -> Any:
        """The dataclass, whose defaults stand for keys that are not given."""
        return self.kind_(**{name: plain(getattr(self, name)) for name in self.model_fields_set})


def toml_fields(kind: type) -> dict[str, Any]:
    """Name → type of each field of a dataclass of parameters, as TOML can have it."""
    hints = get_type_hints(kind)
    return {field.name: _toml_type(hints[field.name]) for field in fields(kind)}


def plain(value: Any) -> Any:
    """A value of a table as the dataclass of the parameters has it."""
    if isinstance(value, ParameterTable):
        return value.value()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _toml_type(hint: Any) -> Any:
    kind, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _table(hint)
    if kind is tuple:  # of any length: no parameter has another
        return list[_toml_type(inner[0])]  # type: ignore[misc] # a type that is known when it runs
    if kind is Mapping:
        return dict[Name, _toml_type(inner[1])]  # type: ignore[misc]
    if kind in (Union, UnionType):
        return Union[tuple(_toml_type(part) for part in inner)]  # noqa: UP007 # made of a list
    return hint


@cache
def _table(kind: type) -> type[ParameterTable]:
    """The schema of a dataclass's table."""
    needed = {part.name for part in fields(kind) if part.default is MISSING and part.default_factory is MISSING}
    made = {name: (part, ... if name in needed else None) for name, part in toml_fields(kind).items()}
    table: type[ParameterTable] = create_model(kind.__name__, __base__=ParameterTable, **made)  # type: ignore[call-overload]
    table.kind_ = kind
    return table


#: The scheme of a draft: the cheaper one, decided before the job is signed.
AUTO = "auto"


class JobOptions(Strict):
    """The fields of every training job, whatever its protocol."""

    protocol: Literal[tuple(TRAINING)] = next(iter(TRAINING))  # type: ignore[valid-type] # the registry is the one list
    """Kind of training: "boosting", "forest", "pivodl" (labels spread over the parties) or "splitnn" (a split network).
    """
    privacy: Literal[PRIVACY] = PUBLISHED  # type: ignore[valid-type]
    """What the parties learn of each other. "published": SecureBoost as in the paper. "withheld": feature parties get
    no set of records. "private": nobody opens sums either, which needs a dealer. Boosting and forest. The word decides
    `scheme` (but of "published"), `instance_spaces` and `sums`, which then need not be named.
    """
    scheme: Literal[*SCHEMES, AUTO] = PAILLIER  # type: ignore[valid-type]
    """Scheme of the sums: "paillier" or "lattice" (many times as fast, a construction of its own; boosting and forest,
    native kernels at every party). Every policy must name it. "auto": of those that the policies name the cheaper, by
    bytes and processor time that follow from layout; decided, and said, before the job is signed.
    """
    key_bits: Literal[BREAKABLE_BITS, *KEY_LENGTHS] = 2048  # type: ignore[valid-type]
    """Bits of the modulus: 2048 or 3072; 1024 for tests. 512 can be broken and repeats published measurements.
    "lattice" and "splitnn" have none.
    """
    obfuscation: Obfuscation = "short-exponent"
    """Randomness of the label holder's ciphertexts; "lattice" and "splitnn" have none."""
    line: Annotated[str, AfterValidator(lambda line: bits_per_second(line) and line)] = LINE_KEY
    """Of "lattice": speed of the slowest line between two parties, a number and bit/s, kbit/s, Mbit/s or Gbit/s. All
    parties choose the way of sums by it that takes less time, processors' and the line's together.
    """
    alignment: Literal[ALIGNMENTS] = ALIGNMENTS[0]  # type: ignore[valid-type]
    """Private set intersection, or tables in which all parties hold the same ids; digests of these are compared."""
    join: Literal[JOINS] = INNER  # type: ignore[valid-type]
    """Records: "inner", those that all parties have; or "left", all of the label holder, where the columns of a party
    that lacks a record are missing. Boosting and forest; predictions by "interactive", "eini" and "eini-lattice".
    """
    sums: Literal[SUMS] = OPENED  # type: ignore[valid-type]
    """Sums of split candidates: "opened" by the label holder; or "shared", so that it learns of each winner the owner
    and the left set alone. Boosting and forest, with scheme = "lattice", instance_spaces = "withheld" and a dealer.
    """
    base_model: Name | None = None
    """Boosting: continue from this published model of the same parties and tables; n_estimators counts further rounds.
    """
    seed: int = 0
    """Governs all draws that are not secret: records, columns, what is set aside, who sits out. 0 to 2^63 − 1."""
    missing: float = math.nan
    """A number that counts as missing, beside NaN and empty cells."""


def _parameters() -> dict[str, Any]:
    """The fields of all protocols' parameters, each of which a job of another protocol may not name."""
    parameters: dict[str, Any] = {}
    for protocol in TRAINING:
        for name, hint in toml_fields(training(protocol).params).items():
            if name not in JobOptions.model_fields:
                parameters[name] = (hint | None, None)
    return parameters


def has_parameter(protocol: str, name: str) -> bool:
    """True if a training protocol has a parameter of that name."""
    return name in {field.name for field in fields(training(protocol).params)}


Parameters = create_model("Parameters", __base__=JobOptions, **_parameters())


class JobTable(Parameters):  # type: ignore[misc, valid-type] # made of the protocols' parameters
    """The parameters of a training.

    A parameter that is not given has its protocol's default, one that the protocol does not have is refused.
    """

    @classmethod
    def about_unknown(cls, key: str) -> str:
        """XGBoost's names first, of which some are not those of this table."""
        known = unknown_parameter(key)
        return super().about_unknown(key) if known is None else f"; {known}"

    @model_validator(mode="before")
    @classmethod
    def _decided(cls, content: Any) -> Any:
        """With the keys that words decide; without a word of privacy the one to which the keys come."""
        if isinstance(content, dict) and content.get("model") == ADDITIVE:
            if content.get("max_depth", 1) != 1:
                raise ValueError(contradicted(content["max_depth"]))
            content = {**content, "max_depth": 1}
        if not isinstance(content, dict) or content.get("protocol", next(iter(TRAINING))) not in TRAINING:
            return content
        word = content.get("privacy")
        if word is None:
            word = privacy_of(*(content.get(key, usual) for key, usual in DECIDES[PUBLISHED].items()))
            return content if word == PUBLISHED else {**content, "privacy": word}
        if word not in PRIVACY:
            return content
        said, decided = f"privacy = {quoted(word)}", DECIDES[word]
        protocol = content.get("protocol", next(iter(TRAINING)))
        asked = {WITHHELD: {Feature.WITHHELD}, PRIVATE: {Feature.SHARED}}.get(word, set())
        if rows := broken(TRAININGS, asked, protocol, training(protocol).capabilities):
            raise ValueError("; ".join(map(str, rows)))
        against = [
            f"{key} = {quoted(str(content[key]))}"
            for key, value in decided.items()
            if content.get(key, value) not in ((value, AUTO) if key == "scheme" else (value,))
        ]
        if against:
            *most, last = decided
            raise ValueError(f"{said} decides {', '.join(most)} and {last}: remove {' and '.join(against)}")
        return content if word == PUBLISHED else {**content, **decided}

    @model_validator(mode="after")
    def _in_range(self) -> JobTable:
        if self.scheme == AUTO:
            try:
                self.drafts(JobTable.params)
            except ConfigError as refusal:
                raise ValueError(str(refusal)) from None
            return self
        given, protocol = self._given(), training(self.protocol)
        used = {Feature.LATTICE} if self.scheme == LATTICE else set[Feature]()
        key = self.key
        faults = key_faults(key.scheme, key.bits, self._obfuscation)
        # a network has no key: whoever gives one is told so, and not that it is too short
        if not protocol.grows_trees:
            used, faults = {Feature.NETWORK, *map(Feature, self.model_fields_set.intersection(KEY_FIELDS))}, []
        if "line" in self.model_fields_set and self.scheme != LATTICE:
            faults.append(f"line: is of scheme {LATTICE!r} alone; leave it out")
        faults += map(str, broken(TRAININGS, used, self.protocol, protocol.capabilities))
        if faults:
            raise ValueError("; ".join(faults))
        names = {field.name for field in fields(protocol.params)}
        if foreign := [name for name in given if name not in names]:
            have = ", ".join(foreign)
            raise ValueError(f"protocol {self.protocol!r} has no parameter {have}; remove it, or name another protocol")
        try:
            self.params().validate()
        except BadInput as failure:
            said = filter(None, (unknown_value(name, value) for name, value in given.items() if name in str(failure)))
            raise ValueError("; ".join([str(failure), *said])) from None
        if faults := bin_faults(self.scheme, getattr(self.params(), "max_bin", 0)):
            raise ValueError("; ".join(faults))
        return self

    def drafts(self, check: Callable[[Self], object]) -> list[Self]:
        """The jobs that this one may become before it is signed: itself or, of "auto", one for each scheme.

        `check`: raises `BadInput` for what cannot be; a scheme's is raised where no other can.
        """
        made, faults = list[Self](), list[str]()
        for scheme in SCHEMES if self.scheme == AUTO else (str(self.scheme),):
            of_others = {"line"} if scheme == PAILLIER else {"key_bits", "obfuscation"}
            given = self.model_dump(exclude_unset=True, exclude=of_others)
            try:
                job = type(self).model_validate({**given, "scheme": scheme}) if self.scheme == AUTO else self
                check(job)
                made.append(job)
            except ValidationError as fault:
                faults.append("; ".join(it.removeprefix(f"{WHOLE}: ") for it in faults_of(fault, type(self))))
            except BadInput as refusal:
                faults.append(str(refusal))
        if not made:
            raise ConfigError(faults[0])
        return made

    def with_privacy(self, word: str) -> Self:
        """The same job by another word. Raises ValidationError for one that it cannot have."""
        of_lattice = {"key_bits", "obfuscation"} if "scheme" in DECIDES[word] else set[str]()
        given = self.model_dump(exclude_unset=True, exclude={"privacy", *DECIDES[word], *of_lattice})
        job: Self = type(self).model_validate({**given, "privacy": word})
        return job

    def params(self) -> JobParams:
        """The model's parameters."""
        return training(self.protocol).params(**self._given(), seed=self.seed, missing=self.missing)

    def spec(
        self, aggregator: str, others: list[str], table: str, eval_table: str = "", dealer: str = ""
    ) -> setup_pb2.JobSpec:
        """The job as it goes to the coordinator; the aggregator is the label holder, if there is one."""
        spec = setup_pb2.JobSpec(
            table=table,
            eval_table=eval_table,
            aggregator=aggregator,
            feature_parties=others,
            alignment=self.alignment,
            join="" if self.join == INNER else self.join,
            base_model=self.base_model or "",
            dealer=dealer,
            sums=self.sums,
        )
        if training(self.protocol).grows_trees:
            spec.scheme, spec.key_bits, spec.obfuscation = self.scheme, self.key.bits, self._obfuscation
            spec.line = bits_per_second(self.line) if self.scheme == LATTICE else 0
        put_params(spec, self.params())
        check_spec(spec)
        return spec

    @property
    def key(self) -> KeyKind:
        """Scheme and length of the key; a scheme without keys has the length that the file names, which is a fault."""
        return KeyKind(self.scheme, self.key_bits if self._has("key_bits") else 0)

    @property
    def key_by_name(self) -> dict[str, str | int]:
        """The scheme and, where it has keys, their length, under the names of this table."""
        return {"scheme": self.scheme, **({"key_bits": self.key.bits} if self.key.bits else {})}

    @property
    def _obfuscation(self) -> str:
        return str(self.obfuscation) if self._has("obfuscation") else ""

    def _has(self, field: str) -> bool:
        """True for a field of keys whose default holds, or that the file names."""
        return self.scheme != LATTICE or field in self.model_fields_set

    def _given(self) -> dict[str, Any]:
        """Parameters of the model that the file names, except those that every protocol has."""
        values = {name: getattr(self, name) for name in JobTable.model_fields if name not in JobOptions.model_fields}
        return {name: plain(value) for name, value in values.items() if value is not None}


class JobTableOfFederation(JobTable):
    """A `[job]` table that also names the parties: all in one list where the protocol has one role for them."""

    label_holder: Name | None = None
    """The party with the labels, which wins every tie; required but for "pivodl"."""
    feature_parties: list[Name] | None = None
    """The other parties, in the order in which ties go to them; required but for "pivodl"."""
    parties: list[Name] | None = None
    """PIVODL, required: all parties, 2 to 10, in the order in which ties go to them."""
    dealer: Name | None = None
    """With privacy = "private": the process that deals their randomness. Its organisation is none of the parties', and
    the policies of all name it under `dealers`.
    """
    table: str = "train"
    """The name under which every party's file lists the table."""
    records: Annotated[int, Field(ge=1)] | None = None
    """With `columns`: how many records the tables have in common, about. Then the command says what a job of trees that
    is large will cost; scheme = "auto" needs both.
    """
    columns: dict[Name, Annotated[int, Field(ge=1)]] | None = None
    """Feature party = number of its columns, about."""
    eval_table: str | None = None
    """Boosting and forest: table of further records that are scored after every round, with a label at the label
    holder; early stopping then watches it. Not with label_dp or base_model.
    """
    replaces: Name | None = None
    """Train in the place of this published model of the same parties: each deletes its part of it once the new one
    opens to predict or serve. Every policy must name `operators`, or have approval = "manual". Not with base_model.
    """

    @model_validator(mode="after")
    def _named(self) -> JobTableOfFederation:
        apart = ("label_holder", "feature_parties")
        together = training(self.protocol).one_role
        wanted, foreign = (("parties",), apart) if together else (apart, ("parties",))
        faults = [f"{name} is missing" for name in wanted if getattr(self, name) is None]
        if given := [name for name in foreign if getattr(self, name) is not None]:
            why = "each may have labels" if together else "one of them has all labels"
            faults.append(
                f"protocol {self.protocol!r} names its parties under {' and '.join(wanted)}, since {why}; remove "
                f"{' and '.join(given)}"
            )
        for key, name in {"table": self.table, "eval_table": self.eval_table}.items():
            if name and not NAME.match(name):
                faults.append(f"{key} = {name!r} is no name of a table: {NAME_RULE}")
        if self.eval_table == "":
            faults.append("eval_table names no table; remove it, or name one that every party has")
        counted = self.records is not None and {*(self.columns or {})} == {*(self.feature_parties or [])}
        if not counted and (self.scheme == AUTO or self.records is not None or self.columns is not None):
            faults.append("records, columns: give both, of every feature party; scheme = 'auto' decides by them")
        # keys that are given, not defaults, say which features a person asks for
        used = named_in({name: vars(self)[name] for name in self.model_fields_set})
        faults += map(str, broken(TRAININGS, used, self.protocol, training(self.protocol).capabilities))
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def in_order(self) -> list[str]:
        """All parties, the label holder, or where there is none the aggregator, first."""
        if self.parties is not None:
            return list(self.parties)
        return [*([self.label_holder] if self.label_holder else []), *(self.feature_parties or [])]


class JobFile(Strict):
    """The file that `treetap train` reads."""

    name: Name | None = None
    """The job's name; without it one is made up."""
    job: JobTableOfFederation
    """The parties, the table and the parameters."""

    def to_spec(self, job: JobTableOfFederation | None = None) -> setup_pb2.JobSpec:
        """The job as it is sent to the coordinator; `job`: one that its own may become."""
        job = self.job if job is None else job
        first, *others = job.in_order or [""]
        spec = job.spec(first, others, job.table, job.eval_table or "", job.dealer or "")
        spec.replaces = job.replaces or ""
        check_spec(spec)
        return spec


#: Other names of parameters → what to write.
ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
    "num_round": "n_estimators",
    "num_boost_round": "n_estimators",
    "random_state": "seed",
    "xgb_model": "base_model",
}
_WORKERS = "processes of each party are `workers` in its own file, or in [[party]] of an experiment"
_PROCESSORS = "sums of ciphertexts are computed by processors; `workers` and `arithmetic` in each party's file say how"
_DART = "no tree is left out of scores (DART), as all keep the weights with which they were grown"
_HIST = "there is one way to grow trees, that of tree_method = 'hist' on each party's own bins, which max_bin bounds"
_COLUMNS = "each party draws its columns once for a tree, by colsample_bytree"
_TYPES = "which columns are numbers, dates or categories follows from each party's table and its `encode`"
_RANKING = "no objective ranks records"
_STORAGE = "is about the memory of XGBoost's own histograms"

#: What other files and tables have → where.
ELSEWHERE = {
    **dict.fromkeys(("n_jobs", "nthread"), _WORKERS),
    **dict.fromkeys(("enable_categorical", "feature_types"), _TYPES),
    "monotone_constraints": "each party names its own columns in its table's settings; in an experiment, in [data]",
    "sample_weight": "the label holder's table names the column, as `weight`; in an experiment, [data]",
    **dict.fromkeys(
        ("base_margin", "exposure", "label_upper"),
        "the label holder's table names the column; experiments have no place for it",
    ),
}
#: Parameters that are not offered → why.
NOT_OFFERED = {
    **dict.fromkeys(("device", "gpu_id", "predictor", "use_rmm"), _PROCESSORS),
    **dict.fromkeys(("rate_drop", "skip_drop", "one_drop", "sample_type", "normalize_type"), _DART),
    **dict.fromkeys(("tree_method", "updater", "sketch_eps"), _HIST),
    **dict.fromkeys(("colsample_bylevel", "colsample_bynode"), _COLUMNS),
    **dict.fromkeys(("max_cached_hist_node", "extmem_single_page"), _STORAGE),
    **dict.fromkeys(("process_type", "refresh_leaf"), "trees that were published are not changed"),
    **dict.fromkeys(("feature_selector", "top_k"), "linear boosters are not offered"),
    **dict.fromkeys(("lambdarank_pair_method", "lambdarank_num_pair_per_sample", "lambdarank_normalization"), _RANKING),
    **dict.fromkeys(("lambdarank_score_normalization", "lambdarank_unbiased", "lambdarank_bias_norm"), _RANKING),
    **dict.fromkeys(("ndcg_exp_gain",), _RANKING),
    "huber_slope": "its objective is not offered",
    "booster": "trees are what is grown, as with booster = 'gbtree'",
    "callbacks": "a job is a file, and calls nothing",
    "disable_default_eval_metric": "metrics follow from the objective",
    "eval_metric": "metrics follow from the objective: the best round has the least of XGBoost's default metric",
    "feature_weights": "columns of a party are drawn with equal chances",
    "importance_type": "reports have `weight`, `gain` and `cover`",
    "interaction_constraints": "the label holder, who chooses splits, does not know at which columns others split",
    "num_class": "the classes are those of the label holder's column",
    "num_parallel_tree": "a round grows one tree for each output; random ones have a protocol of their own",
    "sampling_method": "records are drawn with equal chances: draws by gradients would tell other parties of labels",
    "seed_per_iteration": "the draws of each tree follow from `seed` and its number",
    "use_label_encoder": "classes may have any names",
    "validate_parameters": "parameters are always checked",
    "verbosity": "what a process logs is its option --log-level",
}

#: Values that are not offered → why, or what to write.
_OBJECTIVES = {
    "reg:linear": "write 'reg:squarederror', its name since XGBoost 0.83",
    "reg:logistic": "write 'binary:logistic' for two classes; labels between 0 and 1 are not offered",
    "binary:logitraw": "write 'binary:logistic': predictions have its margin too, in the column `score`",
    "binary:hinge": "write 'binary:logistic': predictions name the class too",
    "multi:softmax": "write 'multi:softprob': predictions name the most probable class too",
    "reg:squaredlogerror": "use 'reg:squarederror' of logarithms, or 'reg:gamma' for amounts",
    **dict.fromkeys(("reg:absoluteerror", "reg:pseudohubererror"), "use 'reg:quantileerror' for the median"),
    **dict.fromkeys(("rank:ndcg", "rank:map", "rank:pairwise"), _RANKING),
}


def unknown_parameter(name: str) -> str | None:
    """Sentence about a parameter of XGBoost that a `[job]` table does not have; None for any other name."""
    if name in ALIASES:
        return f"write {ALIASES[name]}"
    if name in ELSEWHERE:
        return f"it has another place: {ELSEWHERE[name]}"
    return f"of XGBoost, not offered: {NOT_OFFERED[name]}" if name in NOT_OFFERED else None


def unknown_value(name: str, value: Any) -> str | None:
    """The same of a value that a parameter cannot have here."""
    if name == "objective" and value in _OBJECTIVES:
        return f"{value!r} is of XGBoost, not offered: {_OBJECTIVES[value]}"
    if name == "max_depth" and value == 0 and isinstance(value, int):
        return (
            'max_depth = 0 is XGBoost\'s "no limit", not offered: numbers of nodes are those of a heap, which it bounds'
        )
    return None
