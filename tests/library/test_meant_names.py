"""Names that are not known: the one that was probably meant, and what XGBoost's other names are called here."""

from __future__ import annotations

from pathlib import Path

import pytest
import xgboost

from treetap.commands.jobs.job_file import ALIASES, ELSEWHERE, NOT_OFFERED, JobFile, JobTable, unknown_parameter
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError, did_you_mean, nearest
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.party.config import PartyConfig
from treetap.strict import Strict, load

NAMES = ["income", "Age", "day-opened", "x1"]
JOB = '[job]\nlabel_holder = "a"\nfeature_parties = ["b"]\n'


@pytest.mark.parametrize(
    ("name", "meant"),
    [("incmoe", "income"), ("age", "Age"), ("day_opened", "day-opened"), ("day opened", "day-opened"), ("zzz", None)],
)
def test_the_nearest_name(name: str, meant: str | None) -> None:
    """Letters that are swapped, another case, and another joint; a name that is like none has none."""
    assert nearest(name, NAMES) == meant
    assert did_you_mean(name, NAMES) == ("" if meant is None else f"; did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("content", "schema", "line"),
    [
        ('[data]\nlable = "y"\n', ExperimentFile, "data.lable: unknown key; did you mean 'label'?"),  # not 'table'
        ('nmae = "a"\n', PartyConfig, "nmae: unknown key; did you mean 'name'?"),
        ("tables.a.id_column = 1\n", PartyConfig, "tables.a.id_column: unknown key; did you mean 'id'?"),
        ("tables.a.parse_dates = 1\n", PartyConfig, "parse_dates: unknown key; did you mean 'date_format'?"),
        ("tables.a.target = 1\n", PartyConfig, "tables.a.target: unknown key; did you mean 'label'?"),
        ("tables.a.encod = 1\n", PartyConfig, "tables.a.encod: unknown key; did you mean 'encode'?"),
        ('[tables.path]\ncolums = ["a"]\n', PartyConfig, "tables.path.colums: unknown key; did you mean 'columns'?"),
        (
            "[defences.label_dp]\nepsilom = 1\n",
            PartyConfig,
            "defences.label_dp.epsilom: unknown key; did you mean 'eps",
        ),
        ("partys = {}\n", CoordinatorConfig, "partys: unknown key; did you mean 'parties'?"),
        ('[[party]]\nname = "a"\nshrae = 1\n', ExperimentFile, "party.[1].shrae: unknown key; did you mean 'share'?"),
        ("[tables.a]\nserve = 1\n", PartyConfig, "tables.a.serve: unknown key; it is a key of the whole file"),
        (JOB + "min_child_wieght = 1\n", JobFile, "unknown key; did you mean 'min_child_weight'?"),
        (JOB + 'protocol = "boosting2"\n', JobFile, "(it is 'boosting2'); did you mean 'boosting'?"),
        (JOB + 'objective = "binary:logisitc"\n', JobFile, "not 'binary:logisitc'; did you mean 'binary:logistic'?"),
        (JOB + "eta = 0.1\n", JobFile, "job.eta: unknown key; write learning_rate"),
        (JOB + 'tree_method = "exact"\n', JobFile, "unknown key; of XGBoost, not offered: there is one way to grow"),
        (
            JOB + 'objective = "multi:softmax"\n',
            JobFile,
            "'multi:softmax' is of XGBoost, not offered: write 'multi:softp",
        ),
        (JOB + "max_depth = 0\n", JobFile, 'max_depth = 0 is XGBoost\'s "no limit", not offered'),
        (JOB + "n_jobs = 4\n", JobFile, "job.n_jobs: unknown key; it has another place: processes of each party are"),
        (JOB + "zzz = 0\n", JobFile, "job.zzz: unknown key"),
    ],
)
def test_keys_of_files(content: str, schema: type[Strict], line: str, tmp_path: Path) -> None:
    """In the file itself, in its tables, in tables by name and in lists of tables."""
    path = tmp_path / "file.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as failure:
        load(path, schema)
    assert line in str(failure.value)


#: Parameters of XGBoost that are no fields of the estimator: those of docs/parameter.rst of release 3.2.
OTHERS = [
    "eta",
    "min_split_loss",
    "lambda",
    "alpha",
    "nthread",
    "seed_per_iteration",
    "num_class",
    "disable_default_eval_metric",
    "rate_drop",
    "skip_drop",
    "sample_type",
    "normalize_type",
    "one_drop",
    "updater",
    "refresh_leaf",
    "process_type",
    "max_cached_hist_node",
    "extmem_single_page",
    "feature_selector",
    "top_k",
    "tweedie_variance_power",
    "huber_slope",
    "quantile_alpha",
    "aft_loss_distribution",
    "lambdarank_pair_method",
    "lambdarank_num_pair_per_sample",
    "lambdarank_normalization",
    "lambdarank_score_normalization",
    "lambdarank_unbiased",
    "lambdarank_bias_norm",
    "ndcg_exp_gain",
    "use_rmm",
    "seed",
    "num_round",
]


def test_every_parameter_of_xgboost_has_an_answer() -> None:
    """It is a parameter here too, has another name, or is refused with a reason; none is two of these."""
    offered = set(JobTable.model_fields)
    for name in [*xgboost.XGBClassifier().get_params(), *OTHERS]:
        assert (name in offered) != (unknown_parameter(name) is not None), name
    assert set(ALIASES.values()) <= offered
    assert len({*ALIASES, *ELSEWHERE, *NOT_OFFERED}) == len(ALIASES) + len(ELSEWHERE) + len(NOT_OFFERED)
