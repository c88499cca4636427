"""Every public callable, each parameter in turn, with values that nobody should pass.

`surface` lists the callables, `cases` gives a valid call of each, `judge` says what is wrong with
what came of a bad one, and `exceptions` names what is documented to be otherwise.
"""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from cases import CASES, METHODS
from exceptions import ALLOWED
from interop_cases import INTEROP
from judge import BAD, NUMBER, SECRET, Allowed, Books, faults
from sklearn.base import BaseEstimator
from surface import Case, public_callables

import dpcore
from dpcore.errors import DPCoreError, ParameterError

ALL = CASES | METHODS | INTEROP
TRIALS = [(name, parameter) for name, case in ALL.items() for parameter in case.valid]


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    return Books(tmp_path_factory.mktemp("ledgers"))


@pytest.fixture(autouse=True)
def somewhere_else(monkeypatch, tmp_path):
    """Some strings are good names of files."""
    monkeypatch.chdir(tmp_path)


def test_there_is_a_case_for_every_public_callable():
    assert set(public_callables()) - set(CASES | INTEROP) == set()


def test_exceptions_are_of_parameters_that_exist():
    named = {*ALLOWED.taken, *ALLOWED.foreign, *ALLOWED.charged}
    assert named <= set(TRIALS)
    assert {kind for kinds in ALLOWED.taken.values() for kind in kinds} <= set(BAD)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_the_case_works(name):
    ALL[name].run(ALL[name].valid)


@pytest.mark.parametrize(("name", "parameter"), TRIALS, ids=lambda text: text)
def test_bad_values_are_refused_in_a_sentence_or_taken(name, parameter, books):
    found = []
    for kind in BAD:
        found += faults(name, parameter, ALL[name], kind, ALLOWED, books)
    assert not found


def numbers(result):
    """All arrays and numbers in a result."""
    if isinstance(result, np.ndarray | int | float):
        return [np.asarray(result)]
    if isinstance(result, tuple | list):
        return [part for item in result for part in numbers(item)]
    if is_dataclass(result):
        return [part for item in fields(result) for part in numbers(getattr(result, item.name))]
    return []


RELEASING = sorted(name for name, case in ALL.items() if "noise" in case.valid and not case.make)


@pytest.mark.parametrize("name", RELEASING)
def test_refused_calls_use_up_no_noise(name):
    case, noise = ALL[name], dpcore.Noise.from_key(bytes(range(32))).stream("robust")
    given = {**case.valid, "noise": noise}
    try:
        first = numbers(case.run(given))
    except ParameterError:
        assert "pinned" in PINNED.get(name, "")
        return
    for parameter in case.valid:
        with pytest.raises(DPCoreError):
            case.run({**given, parameter: BAD["object"]})
    second = numbers(case.run(given))
    assert len(first) == len(second)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


PINNED = {"dpcore.audit.mechanism": "refuses a pinned stream: its runs would not be independent"}


# The judge is judged by callables with planted defects.


def of_number(x):
    if not isinstance(x, float):
        raise TypeError("x must be real number")


def echoing(x):
    raise ParameterError(f"The 'x' parameter must not be {x}.")


def wordless(x):
    raise ParameterError("bad x")


def credulous(epsilon):
    return epsilon


def charging(x):
    dpcore.laplace([1], epsilon=1.0, sensitivity=1)
    raise ParameterError("The 'x' parameter must be something else.")


def drawing(x):
    np.random.random()  # noqa: NPY002
    raise ParameterError("The 'x' parameter must be something else.")


def threading(x):
    dpcore.set_num_threads(dpcore.get_num_threads() + 1)
    raise ParameterError("The 'x' parameter must be something else.")


def overwriting(x):
    x[:] = 0
    raise ParameterError("The 'x' parameter must be something else.")


class HalfFitted(BaseEstimator):
    def __init__(self, x=1):
        self.x = x

    def fit(self, X):
        self.privacy_ = None
        raise ParameterError("The 'x' parameter must be something else.")


class Changed(HalfFitted):
    def fit(self, X):
        self.x = 1
        raise ParameterError("The 'x' parameter must be something else.")


@pytest.mark.parametrize(
    ("defective", "kind", "fault"),
    [
        (of_number, "text", "TypeError"),
        (echoing, "text", "not a sentence"),
        (echoing, "array", "not a sentence"),
        (wordless, "text", "not a sentence"),
        (credulous, "nan", "taken"),
        (credulous, "none", "taken"),
        (charging, "nan", "charged"),
        (drawing, "nan", "drew"),
        (threading, "nan", "threads"),
        (overwriting, "array", "changed its input"),
        (HalfFitted, "nan", "changed the estimator"),
        (Changed, "nan", "changed the estimator"),
    ],
)
def test_planted_defects_are_found(defective, kind, fault, tmp_path):
    name = "epsilon" if defective is credulous else "x"
    case = Case(defective, {name: 1.0})
    if isinstance(defective, type):
        case = Case(lambda model, _: model.fit(NUMBER), {name: 1}, lambda given: defective(**given))
    found = faults("planted", name, case, kind, Allowed(), Books(tmp_path))
    assert len(found) == 1
    assert fault in found[0]


def test_what_is_right_is_not_flagged(tmp_path):
    case = Case(dpcore.gaussian_sigma, {"epsilon": 1.0, "delta": 1e-6})
    books = Books(tmp_path)
    assert not [f for kind in BAD for f in faults("right", "epsilon", case, kind, Allowed(), books)]


def test_foreign_errors_must_not_tell_either(tmp_path):
    def telling(x):
        raise ValueError(f"Expected 2D array, got {x}")

    allowed = Allowed(foreign={("telling", "x")})
    case, books = Case(telling, {"x": 1}), Books(tmp_path)
    assert "tells" in faults("telling", "x", case, "text", allowed, books)[0]
    assert SECRET in str(BAD["text"])
