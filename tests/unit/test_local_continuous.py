"""The ideal local mechanisms are judged against mpmath with 60 digits, stored values and searches.

The closed forms of the parameters (Ferrari for PM-OPT, the cosine for Three-Outputs) cancel in
floating point; they serve here, where digits are free. Laws are integrated, compared pair by pair
for the privacy ratio, and searched over ``x`` for their worst case.
"""

import csv
import itertools
import math
from fractions import Fraction
from pathlib import Path

import mpmath  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest

from dpcore.errors import ParameterError
from dpcore.local.continuous import (
    NAMES,
    Duchi,
    Laplace,
    Law,
    Mechanism,
    Mixture,
    Piecewise,
    ThreeOutputs,
    continuous,
    hm_alpha,
    hm_joint,
    hm_tp_beta,
    pm_opt_t,
    three_outputs_a,
)

VECTORS = Path(__file__).parents[1] / "vectors"
LN2 = math.log(2)
LAST = math.log((3 + math.sqrt(65)) / 2)
# Both ends of the range, both sides of every change of branch, and points between.
BRANCHES = [
    *(LN2, math.nextafter(LN2, 1), LN2 + 1e-12, LN2 + 1e-6),
    *(LAST - 1e-5, math.nextafter(LAST, 1), LAST, math.nextafter(LAST, 2)),
    *(0.607, 0.608, 0.6093, 0.6094, 0.61, 0.62, 2.029, 2.03, 5.44),
]
EPSILONS = sorted(
    [
        *BRANCHES,
        *(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.6, 0.65, 0.69, 0.7, 0.8, 1.0, 1.1, 1.3, 1.5),
        *(1.7, 1.72, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0, 30.0, 36.2, 37.0, 40.0, 50.0),
    ]
)
INPUTS = (-1.0, -0.999, -0.7, -0.5, -0.1, -1e-9, 0.0, 1e-12, 0.25, 0.5, 0.83, 0.9999, 1.0)


def rows(name: str) -> list[dict[str, str]]:
    with (VECTORS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def worst(name: str, epsilon: float) -> float:
    return continuous(name, epsilon).worst_case_variance


def mixture(name: str, epsilon: float) -> Mixture:
    found = continuous(name, epsilon)
    assert isinstance(found, Mixture)
    return found


def piecewise(name: str, epsilon: float) -> Piecewise:
    found = continuous(name, epsilon)
    assert isinstance(found, Piecewise)
    return found


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(60):
        yield


# References with 60 digits.


def exact_t(epsilon: float) -> mpmath.mpf:
    e = mpmath.exp(epsilon)
    m2 = e**2 - mpmath.cbrt(4 * e**2 * (e**2 - 1))
    r, g = mpmath.sqrt(m2), e**3 - 2 * e
    if e**2 <= 2:
        return -e / 2 + (r + mpmath.sqrt(3 * e**2 - m2 - 2 * g / r)) / 2
    return -e / 2 + (-r + mpmath.sqrt(3 * e**2 - m2 + 2 * g / r)) / 2


def exact_a(epsilon: float) -> mpmath.mpf:
    e = mpmath.exp(epsilon)
    if e <= 2:
        return mpmath.mpf(0)
    if e >= (3 + mpmath.sqrt(65)) / 2:
        return e / (e + 2)
    a3, a2, a1, a0 = 2 * e, -(e**2 + 4 * e + 5), -(e**2 + 4 * e - 7), 2 * (e - 2)
    p = (3 * a3 * a1 - a2**2) / (3 * a3**2)
    g = (2 * a2**3 - 9 * a3 * a2 * a1 + 27 * a3**2 * a0) / (27 * a3**3)
    angle = mpmath.acos(3 * g / (2 * p) * mpmath.sqrt(-3 / p)) / 3 - 2 * mpmath.pi / 3
    return e * (-a2 / (3 * a3) + 2 * mpmath.sqrt(-p / 3) * mpmath.cos(angle))


def exact_piecewise(epsilon: float, t: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Curvature and floor of the variance, in the forms that cancel."""
    e = mpmath.exp(epsilon)
    return (t + 1) / (e - 1), (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)


def exact_three(epsilon: float, a: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Floor and rise of the variance."""
    e = mpmath.exp(epsilon)
    c = (e + 1) / ((e - 1) * (1 - a / e))
    return c**2 * (1 - a), c**2 * a * (1 - 1 / e)


def exact_mixture(
    epsilon: float, t: mpmath.mpf, a: mpmath.mpf
) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """Best share of PM(t), worst variance, and where it is met."""
    (curvature, base), (floor, rise) = exact_piecewise(epsilon, t), exact_three(epsilon, a)
    m = 1 + curvature
    disc = rise**2 + 4 * m * (floor - base)
    alone = mpmath.mpf(0), floor + rise**2 / 4, rise / 2
    if disc <= 0:
        return alone
    d = curvature * rise / mpmath.sqrt(disc)
    r, r1 = (d + curvature) / m, 2 * curvature / (2 - rise + 2 * curvature)
    if r >= 1:
        return alone
    if r <= r1:
        return 1 - r1, (1 - r1) * (curvature + base) + r1 * (floor + rise - 1), mpmath.mpf(1)
    return 1 - r, (1 - r) * base + r * floor + rise**2 * r**2 / (4 * d), rise * r / (2 * d)


def relative(value: float, truth: mpmath.mpf) -> float:
    return abs(value) if truth == 0 else float(abs(value / truth - 1))


# Stored values.


@pytest.mark.parametrize("row", rows("ldp_oracle.csv"), ids=lambda row: row["eps_label"])
def test_stored_parameters_and_variances(row):
    epsilon = float(row["eps"])
    three, duchi = ThreeOutputs(epsilon), Duchi(epsilon)
    hm_tp = mixture("hm-tp", epsilon)
    found = {
        f"var_{name.replace('-', '_')}": worst(name, epsilon) for name in NAMES if name != "hm-j"
    }
    for name in ("pm", "pm-sub", "pm-opt"):
        key, mechanism = name.replace("-", ""), piecewise(name, epsilon)
        found |= {f"{key}_t": mechanism.t, f"{key}_A": mechanism.A}
    found |= {"three_a": three.a, "three_C": three.C, "three_x_star": three.worst_case_input}
    found |= {"duchi_C": duchi.C, "hm_alpha": hm_alpha(epsilon), "hmtp_beta": hm_tp_beta(epsilon)}
    found |= {"hmtp_x_star": hm_tp.worst_case_input}
    assert found.keys() == row.keys() - {"eps", "eps_label"}
    for column, value in found.items():
        assert value == pytest.approx(float(row[column]), rel=1e-12, abs=0), column


@pytest.mark.parametrize("row", rows("ldp_hmj_oracle.csv"), ids=lambda row: row["eps_label"])
def test_stored_joint_optimum(row):
    epsilon = float(row["eps"])
    a, t, beta = hm_joint(epsilon)
    assert worst("hm-j", epsilon) == pytest.approx(float(row["var_worst"]), rel=1e-12)
    assert a == pytest.approx(float(row["a"]), rel=1e-12, abs=0)
    # These two columns hold 12 digits; t is left out where PM(t) is not used.
    assert beta == pytest.approx(float(row["beta"]), rel=5e-12, abs=0)
    assert (beta == 0) == (row["branch"] == "duchi") == (row["t"] == "nan")
    if beta:
        assert t == pytest.approx(float(row["t"]), rel=5e-12)
    assert (a > 0) == (row["branch"] == "three+pm")


def test_published_single_values():
    expected = {
        "duchi": 4.68269437683117,
        "pm": 5.22359745204369,
        "pm-opt": 5.06568115214613,
        "pm-sub": 5.08233879607134,
        "three-outputs": 4.45545171590443,
        "hm": 4.28899249328181,
        "hm-tp": 4.41762595336163,
        "laplace": 8.0,
        "hm-j": 4.26714588030292,
    }
    assert {name: worst(name, 1.0) for name in NAMES} == pytest.approx(expected, rel=2e-15)
    assert three_outputs_a(1.0) == pytest.approx(0.286076897133511, rel=2e-15)
    assert math.isclose(ThreeOutputs(1.0).C, 2.41847846225356, rel_tol=2e-15)
    assert three_outputs_a(1.5) == pytest.approx(0.606609426529439, rel=2e-15)
    assert three_outputs_a(LN2) == 0
    assert three_outputs_a(2.0) == pytest.approx(0.786986042161598, rel=2e-15)
    assert pm_opt_t(1.0) == pytest.approx(1.28875656944402611, rel=4e-16)
    assert pm_opt_t(3.0) == pytest.approx(2.26709660740782585, rel=4e-16)
    assert pm_opt_t(50.0) == pytest.approx(13737194.0526046759, rel=4e-16)
    assert pm_opt_t(0.001) == pytest.approx(1.00025003125651156, rel=4e-16)
    betas = {
        1.0: 0.161673838436279,
        2.0: 0.239696292470808,
        5.0: 0.916395119939514,
        LN2: 0.306755895217845,
    }
    for epsilon, beta in betas.items():
        assert hm_tp_beta(epsilon) == pytest.approx(beta, rel=5e-15)
    assert hm_tp_beta(0.61) == 0
    rounded = {0.69: 0.3055, 1.71: 0.0459, 2.0: 0.2397, 8.0: 0.9897}
    assert {epsilon: round(hm_tp_beta(epsilon), 4) for epsilon in rounded} == rounded


# Accuracy over the whole range.


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_parameters_have_double_accuracy(epsilon):
    t, a = exact_t(epsilon), exact_a(epsilon)
    floor, rise = exact_three(epsilon, a)
    three = ThreeOutputs(epsilon)
    assert relative(pm_opt_t(epsilon), t) < 4e-16
    assert relative(three_outputs_a(epsilon), a) < 1e-15
    assert relative(three.complement, 1 - a) < 1e-15
    assert relative(three.floor, floor) < 2e-15
    assert relative(three.rise, rise) < 2e-15
    assert relative(three.worst_case_variance, floor + rise**2 / 4) < 1e-15
    roots = {
        "pm": mpmath.exp(mpmath.mpf(epsilon) / 2),
        "pm-sub": mpmath.exp(mpmath.mpf(epsilon) / 3),
    }
    for name, root in (*roots.items(), ("pm-opt", t)):
        mechanism, e = piecewise(name, epsilon), mpmath.exp(epsilon)
        assert relative(mechanism.t, root) < 2e-15
        assert relative(mechanism.A, (e + root) * (root + 1) / (root * (e - 1))) < 1e-15
        assert relative(mechanism.c, root * (e - 1) * e / (2 * (root + e) ** 2)) < 3e-15
        assert relative(mechanism.worst_case_variance, sum(exact_piecewise(epsilon, root))) < 2e-15


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mixtures_have_double_accuracy(epsilon):
    beta, variance, _ = exact_mixture(
        epsilon, mpmath.exp(mpmath.mpf(epsilon) / 3), exact_a(epsilon)
    )
    found = mixture("hm-tp", epsilon)
    assert found.worst_case_variance == pytest.approx(float(variance), rel=2e-15)
    # beta falls to 0.046 near 1.71 through a difference; its complement does not suffer.
    assert abs(found.weight - beta) < 3e-15
    assert relative(found.complement, 1 - beta) < 3e-15

    e, r = mpmath.exp(epsilon), mpmath.exp(mpmath.mpf(epsilon) / 2)
    constant = (r + 3) / (3 * r * (r - 1)) + (e + 1) ** 2 / (r * (e - 1) ** 2)
    alone = ((e + 1) / (e - 1)) ** 2
    assert relative(worst("hm", epsilon), constant if hm_alpha(epsilon) else alone) < 2e-15
    assert relative(mixture("hm", epsilon).complement, 1 / r if hm_alpha(epsilon) else 1) < 2e-15


@pytest.mark.parametrize("epsilon", [0.61, 0.65, 1.0, 1.7, 2.029, 2.03, 2.5, 5.0, 12.0, 50.0])
def test_joint_optimum_is_stationary_to_double_accuracy(epsilon):
    a, t, beta = hm_joint(epsilon)
    exact_chance = mpmath.exp(epsilon) / (mpmath.exp(epsilon) + 2) if a else mpmath.mpf(0)

    def variance(root: mpmath.mpf) -> mpmath.mpf:
        return exact_mixture(epsilon, root, exact_chance)[1]

    root = mpmath.findroot(
        lambda root: mpmath.diff(variance, root), (mpmath.mpf(t), t * (1 + mpmath.mpf("1e-9")))
    )
    share, least, _ = exact_mixture(epsilon, root, exact_chance)
    assert relative(t, root) < 2e-15
    assert relative(beta, share) < 5e-15
    assert relative(worst("hm-j", epsilon), least) < 2e-15


def test_limits_of_the_best_t():
    assert pm_opt_t(0.001) == pytest.approx(1 + 0.001 / 4, abs=1e-7)
    assert pm_opt_t(50.0) == pytest.approx(math.exp(50) ** (1 / 3) / 2 ** (1 / 3), rel=1e-12)
    for epsilon in EPSILONS:
        third = math.exp(epsilon / 3)
        assert max(1.0, third / 2 ** (1 / 3)) <= pm_opt_t(epsilon) <= third


def test_best_three_outputs_keeps_its_worst_case_inside():
    peaks = {epsilon: ThreeOutputs(epsilon).worst_case_input for epsilon in np.arange(0.7, 8, 0.01)}
    assert max(peaks.values()) == pytest.approx(0.831, abs=5e-4)
    assert max(peaks, key=lambda epsilon: peaks[epsilon]) == pytest.approx(1.71, abs=0.011)


def test_three_outputs_at_large_epsilon():
    for epsilon in (LAST, 2.0, 5.0, 20.0, 50.0):
        e, three = math.exp(epsilon), ThreeOutputs(epsilon)
        assert math.isclose(three.C, (e + 2) / (e - 1), rel_tol=1e-14)
        expected = (e + 2) * (e + 10) / (4 * (e - 1) ** 2)
        assert three.worst_case_variance == pytest.approx(expected, rel=1e-14)
        assert three.worst_case_variance >= 0.25


def test_variance_of_pm_in_its_own_form():
    for epsilon in EPSILONS:
        less = math.expm1(epsilon / 2)
        pm = piecewise("pm", epsilon)
        assert pm.worst_case_variance == pytest.approx(4 * (less + 1) / (3 * less**2), rel=3e-15)
        at_half = 0.25 / less + (less + 4) / (3 * less**2)
        assert pm.variance(0.5) == pytest.approx(at_half, rel=3e-15)


# Changes of branch.


def test_where_hm_starts():
    root = mpmath.sqrt(241)
    cubes = mpmath.cbrt(6353 - 405 * root) + mpmath.cbrt(6353 + 405 * root)
    start = mpmath.log((2 * cubes - 5) / 27)
    r = mpmath.exp(start / 2)
    assert abs((r + 3) * (r + 1) ** 2 - 3 * (r**2 + 1) ** 2) < mpmath.mpf("1e-50")
    below, above = float(start) - 1e-15, float(start) + 1e-15
    assert hm_alpha(below) == 0 < hm_alpha(above)
    assert hm_alpha(above) == -math.expm1(-above / 2)


def test_where_the_best_a_changes():
    assert three_outputs_a(LN2) == 0  # The double is 2.3e-17 below the logarithm.
    assert three_outputs_a(math.nextafter(LN2, 1)) > 0
    assert mpmath.log((3 + mpmath.sqrt(65)) / 2) == pytest.approx(LAST, abs=3e-16)
    for epsilon in (math.nextafter(LAST, 1), LAST, math.nextafter(LAST, 2)):
        e = math.exp(epsilon)
        assert three_outputs_a(epsilon) == pytest.approx(e / (e + 2), rel=2e-15)
    assert three_outputs_a(1.7) < ThreeOutputs(1.7).a_max


def floor_above_duchi(epsilon: mpmath.mpf, t: mpmath.mpf) -> mpmath.mpf:
    e = mpmath.exp(epsilon)
    return exact_piecewise(epsilon, t)[1] - ((e + 1) / (e - 1)) ** 2


def test_where_hm_tp_starts():
    """PM-SUB helps Duchi once its variance at 0 is the smaller one."""
    start = mpmath.findroot(lambda at: floor_above_duchi(at, mpmath.exp(at / 3)), 0.61)
    assert float(start) == pytest.approx(0.610986335420020502, rel=1e-15)
    assert hm_tp_beta(float(start) - 1e-14) == 0
    assert hm_tp_beta(float(start) + 1e-14) > 0.26
    for epsilon in (0.611, 0.65, LN2):
        curvature = mixture("hm-tp", epsilon).first.curvature
        assert hm_tp_beta(epsilon) == pytest.approx(1 / (1 + curvature), rel=1e-15)


def test_where_hm_j_starts():
    """Some PM(t) helps once the least variance at 0 over all t is below Duchi's.

    Printed elsewhere as 0.607597029667, but there the mixture is already the better one.
    """

    def conditions(epsilon: mpmath.mpf, t: mpmath.mpf) -> list[mpmath.mpf]:
        e = mpmath.exp(epsilon)
        slope = 2 * t**4 + (e + 3) * t**3 - 4 * e * t - 2 * e**2
        return [floor_above_duchi(epsilon, t), slope]

    start, t = mpmath.findroot(conditions, (mpmath.mpf("0.6076"), mpmath.mpf("1.2985")))
    assert abs(mpmath.diff(lambda at: floor_above_duchi(start, at), t)) < mpmath.mpf("1e-40")
    assert float(start) == pytest.approx(0.607584964626174, rel=1e-15)
    assert hm_joint(float(start) - 1e-14)[2] == 0
    assert hm_joint(float(start) + 1e-14)[2] > 0.26
    before = mpmath.mpf("0.60759")
    assert exact_mixture(before, t, mpmath.mpf(0))[1] < exact_three(before, mpmath.mpf(0))[0]


def test_where_the_joint_optimum_takes_the_third_output():
    change = 2.02946298058
    assert hm_joint(change - 1e-10)[0] == 0
    assert hm_joint(change + 1e-10)[0] == ThreeOutputs(change + 1e-10).a_max


# Who wins. The two inner crossings of HM and HM-TP are not in print, which has HM below
# HM-TP from 0.6094 to 1.5934 throughout; `test_hm_tp_beats_hm_at_ln_2` is the proof by hand.
CROSSINGS = [
    ("duchi", "pm", 1.28978468285676),
    ("duchi", "pm-sub", 1.19304819183586),
    ("duchi", "pm-opt", 1.18310163832044),
    ("three-outputs", "pm", 3.26935848211127),
    ("three-outputs", "pm-sub", 2.56108930963925),
    ("three-outputs", "pm-opt", 2.49981115654899),
    ("duchi", "laplace", 2.32417012191429),
    ("three-outputs", "laplace", 5.49952737292509),
    ("hm", "three-outputs", 1.60359412246116),
    ("three-outputs", "hm", 2.72035538265848),
    ("hm", "pm-sub", 2.41653132604937),
    ("hm", "pm-opt", 2.31900301267021),
    ("hm", "hm-tp", 0.65010029978173),
    ("hm-tp", "hm", 0.69489055641485),
    ("hm", "hm-tp", 1.5933777023361),
    ("hm-tp", "pm-opt", 5.44011156021341),
]


@pytest.mark.parametrize(("better_before", "better_after", "epsilon"), CROSSINGS)
def test_crossings_of_worst_case_variances(better_before, better_after, epsilon):
    before, after = epsilon - 1e-9, epsilon + 1e-9
    assert worst(better_before, before) < worst(better_after, before)
    assert worst(better_before, after) > worst(better_after, after)


def changes(first: str, second: str) -> list[float]:
    """Where the order of two worst-case variances changes on a grid, ties left out."""
    found, previous = [], 0
    for epsilon in np.concatenate(
        [np.geomspace(1e-3, 50, 700), np.linspace(0.6, 0.72, 120)]
    ).tolist():
        found.append((epsilon, worst(first, epsilon), worst(second, epsilon)))
    turns = []
    for epsilon, one, other in sorted(found):
        sign = 0 if math.isclose(one, other, rel_tol=1e-13) else int(math.copysign(1, one - other))
        if sign and previous and sign != previous:
            turns.append(epsilon)
        previous = sign or previous
    return turns


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.combinations(sorted(set(NAMES) - {"hm-j"}), 2))
)
def test_no_other_crossings(first, second):
    listed = sorted(at for *pair, at in CROSSINGS if set(pair) == {first, second})
    assert changes(first, second) == pytest.approx(listed, rel=0.02)


def test_hm_tp_beats_hm_at_ln_2():
    """With E = 2 both are mixtures with Duchi, C**2 = 9, and the variances need no calculus."""
    r, t = mpmath.sqrt(2), mpmath.cbrt(2)
    hm = (r + 3) / (3 * r * (r - 1)) + 9 / r
    share = 1 / (2 + t)
    hm_tp = share * (t + 2) * ((t + 1) ** 3 + 1) / (3 * t**2) + (1 - share) * 9
    assert hm_tp < hm - mpmath.mpf("0.0029")
    assert worst("hm", LN2) == pytest.approx(float(hm), rel=1e-15)
    assert worst("hm-tp", LN2) == pytest.approx(float(hm_tp), rel=1e-15)


def test_order_of_worst_case_variances():
    for epsilon in EPSILONS:
        found = {name: worst(name, epsilon) for name in NAMES}
        assert found["pm-opt"] < found["pm-sub"] < found["pm"] < found["laplace"]
        assert found["three-outputs"] <= found["duchi"] * (1 + 1e-15)
        if epsilon <= LN2:
            assert found["three-outputs"] == found["duchi"]
        elif epsilon > LN2 + 1e-7:
            assert found["three-outputs"] < found["duchi"]
        assert found["hm-tp"] <= min(found["three-outputs"], found["pm-sub"]) * (1 + 1e-15)
        assert found["hm-j"] <= min(found.values()) * (1 + 1e-15)
    for epsilon in (0.6095, 0.63, 0.65, 0.695, 0.8, 1.1, 1.4, 1.593):
        assert worst("hm", epsilon) < worst("hm-tp", epsilon)
    for epsilon in (0.6502, 0.67, LN2, 0.6948, 1.594, 2.0, 8.0, 50.0):
        assert worst("hm", epsilon) > worst("hm-tp", epsilon)
    assert 1 - worst("hm", 1.1) / worst("hm-tp", 1.1) == pytest.approx(0.030, abs=5e-4)
    for epsilon in (5.4402, 6.0, 8.0, 20.0, 50.0):
        assert worst("pm-opt", epsilon) < worst("hm-tp", epsilon)
    assert 1 - worst("pm-opt", 8.0) / worst("hm-tp", 8.0) == pytest.approx(0.035, abs=5e-4)


def best_share(epsilon, a, t):
    """Least worst-case variance over the share of PM(t), for arrays, by plain search."""
    e = math.exp(epsilon)
    curvature = (t + 1) / (e - 1)
    base = (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
    c = (e + 1) / ((e - 1) * (1 - a / e))
    floor, rise = c**2 * (1 - a), c**2 * a * (1 - 1 / e)

    def highest(beta):
        square, slope = beta * curvature - (1 - beta), (1 - beta) * rise
        x = np.where(square < 0, np.minimum(1, slope / np.maximum(-2 * square, 1e-300)), 1.0)
        return square * x**2 + slope * x + beta * base + (1 - beta) * floor

    low, high = np.zeros(np.broadcast(a, t).shape), np.ones(np.broadcast(a, t).shape)
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        keep_left = highest(left) < highest(right)
        low, high = np.where(keep_left, low, left), np.where(keep_left, right, high)
    return highest((low + high) / 2)


@pytest.mark.parametrize("epsilon", [0.3, 0.606, 0.62, 0.69, 1.0, 1.6, 1.75, 2.02, 2.04, 3.0, 8.0])
def test_joint_optimum_beats_a_search_over_all_parameters(epsilon):
    a = np.linspace(0, ThreeOutputs(epsilon).a_max, 25)[:, None]
    t = np.geomspace(1, 1.2 * math.exp(epsilon / 2), 90)[None, :]
    least = best_share(epsilon, a, t).min()
    assert worst("hm-j", epsilon) <= least * (1 + 1e-12)
    assert worst("hm-j", epsilon) >= least * (1 - 2e-3)


@pytest.mark.parametrize("epsilon", [0.5, 0.62, 0.7, 1.0, 1.7, 1.72, 2.5, 5.0, 12.0])
def test_parameters_minimise_the_worst_case(epsilon):
    tolerance = 1 + 1e-14
    for t in np.geomspace(1, math.exp(epsilon), 60):
        assert worst("pm-opt", epsilon) <= Piecewise(epsilon, t).worst_case_variance * tolerance
    three = ThreeOutputs(epsilon)
    for share in np.linspace(0, 1, 60):
        other = ThreeOutputs(epsilon, share * three.a_max)
        assert three.worst_case_variance <= other.worst_case_variance * tolerance
    hm_tp = mixture("hm-tp", epsilon)
    for share in np.linspace(0, 1, 60):
        other_mixture = Mixture(hm_tp.first, hm_tp.second, share)
        assert hm_tp.worst_case_variance <= other_mixture.worst_case_variance * tolerance


def test_worst_case_of_a_best_mixture_is_never_at_the_edge_alone():
    """What lets the code leave out the branch r <= r1 of the published rule where a > 0.

    The edge x = 1 would decide alone only if Three-Outputs had the larger variance there; its
    variance at the edge is below that of every PM(t), as the least of those over t shows.
    """
    for epsilon in [*EPSILONS, *np.geomspace(1e-3, 50, 300).tolist()]:
        edge = max(Duchi(epsilon).variance(1.0), ThreeOutputs(epsilon).variance(1.0))
        assert edge < worst("pm-opt", epsilon)


# Laws.


def rounding(mechanism: Mechanism) -> float:
    """Relative error of the mass of the narrow piece, whose ends are doubles near 1."""
    part = mechanism.first if isinstance(mechanism, Mixture) else mechanism
    return 4e-16 * (8 + (part.c if isinstance(part, Piecewise) else 0.0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laws_are_normalised_unbiased_and_of_the_stated_variance(name, epsilon):
    mechanism = continuous(name, epsilon)
    error = rounding(mechanism)
    for x in INPUTS:
        law = mechanism.law(x)
        reach = 1.0 if name == "laplace" else mechanism.support
        assert law.total() == pytest.approx(1, abs=error)
        assert law.mean() == pytest.approx(x, abs=4e-15 * reach)
        assert law.variance() == pytest.approx(mechanism.variance(x), rel=10 * error)
        assert all(chance > 0 for _, chance in law.atoms)
        assert all(left < right and density > 0 for left, right, density in law.pieces)
        ends = [abs(value) for value, _ in law.atoms]
        ends += [max(abs(left), abs(right)) for left, right, _ in law.pieces]
        assert not ends or max(ends) == mechanism.support


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.65, 1.0, 1.7, 2.5, 8.0, 20.0, 50.0])
def test_variances_in_exact_arithmetic(name, epsilon):
    """The stable forms agree with the published formulas."""
    mechanism = continuous(name, epsilon)
    for x in (0.0, 1e-9, 0.3, -0.8, 1.0):
        far = abs(mpmath.mpf(x))
        if isinstance(mechanism, Laplace):
            expected = 8 / mpmath.mpf(epsilon) ** 2
        else:
            one, other = mechanism, mechanism
            weight, rest = mpmath.mpf(isinstance(mechanism, Piecewise)), mpmath.mpf(1)
            rest -= weight
            if isinstance(mechanism, Mixture):
                one, other = mechanism.first, mechanism.second
                weight, rest = mpmath.mpf(mechanism.weight), mpmath.mpf(mechanism.complement)
            expected = mpmath.mpf(0)
            if isinstance(one, Piecewise):
                curvature, base = exact_piecewise(epsilon, mpmath.mpf(one.t))
                expected += weight * (curvature * far**2 + base)
            if isinstance(other, ThreeOutputs):
                a = exact_a(epsilon) if other.a else mpmath.mpf(0)
                floor, rise = exact_three(epsilon, a)
                expected += rest * (floor + rise * far - far**2)
        assert relative(mechanism.variance(x), expected) < 4e-15


@pytest.mark.parametrize("name", NAMES)
def test_worst_case_is_the_largest_variance(name):
    for epsilon in EPSILONS:
        mechanism = continuous(name, epsilon)
        inputs = np.linspace(-1, 1, 401).tolist()
        highest = max(mechanism.variance(x) for x in inputs)
        assert mechanism.worst_case_variance >= highest * (1 - 2e-15)
        assert mechanism.worst_case_variance <= highest * (1 + 2e-5)
        assert mechanism.worst_case_variance == mechanism.variance(mechanism.worst_case_input)
        assert 0 <= mechanism.worst_case_input <= 1


def test_hm_has_the_same_variance_everywhere():
    for epsilon in (epsilon for epsilon in EPSILONS if hm_alpha(epsilon)):
        assert continuous("hm", epsilon).worst_case_input == 1  # Not left to rounding.
        found = [continuous("hm", epsilon).variance(x) for x in INPUTS]
        assert max(found) <= min(found) * (1 + 2e-15)


def largest_ratio(first: Law, second: Law) -> float:
    """Largest ratio of the chances of an output under two laws of one mechanism."""
    if first.laplace_scale is not None:
        return math.exp(abs(first.x - second.x) / first.laplace_scale)
    ratios = [0.0]
    chances = dict(second.atoms)
    assert chances.keys() == dict(first.atoms).keys()
    ratios += [chance / chances[value] for value, chance in first.atoms]
    cuts = sorted({end for law in (first, second) for piece in law.pieces for end in piece[:2]})
    for left, right in itertools.pairwise(cuts):
        ratios.append(density_between(first, left, right) / density_between(second, left, right))
    return max(ratios)


def density_between(law: Law, left: float, right: float) -> float:
    (density,) = [c for start, end, c in law.pieces if start <= left and right <= end]
    return density


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "epsilon", [0.001, 0.1, 0.61, LN2, 1.0, 1.5, 2.0, 2.5, 5.0, 20.0, 40.0, 50.0]
)
def test_privacy_ratio(name, epsilon):
    mechanism = continuous(name, epsilon)
    laws = [mechanism.law(x) for x in np.linspace(-1, 1, 33).tolist()]
    ratio = max(largest_ratio(one, other) for one, other in itertools.permutations(laws, 2))
    assert ratio <= math.exp(epsilon) * (1 + 1e-12)
    if not name.startswith("hm"):
        assert ratio == pytest.approx(math.exp(epsilon), rel=1e-12)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5, 2), Fraction(10)])
def test_a_above_its_limit_breaks_privacy(epsilon):
    e = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)

    def ratio(a: mpmath.mpf) -> mpmath.mpf:
        """P[C] at x = 1 over P[C] at x = 0, by the definition of the mechanism."""
        c = (e + 1) / ((e - 1) * (1 - a / e))
        return (1 - a / e + 1 / c) / (1 - a)

    limit, step = e / (e + 2), mpmath.mpf("1e-40")
    assert abs(ratio(limit) / e - 1) < mpmath.mpf("1e-50")
    assert ratio(limit - step) < e < ratio(limit + step)
    three = ThreeOutputs(epsilon, float(limit) - 1e-12)
    assert three.law(1.0).atoms[2][1] / three.law(0.0).atoms[2][1] < math.exp(epsilon)
    with pytest.raises(ParameterError, match="The 'a' parameter must be a number between 0 and E"):
        ThreeOutputs(epsilon, float(limit) + 1e-12)


def test_an_a_that_rounds_to_its_limit_keeps_privacy():
    for epsilon in (30.0, 36.2, 37.0, 50.0):
        given = ThreeOutputs(epsilon, three_outputs_a(epsilon))
        assert given.law(0.0) == ThreeOutputs(epsilon).law(0.0)
        assert given.complement == pytest.approx(2 * math.exp(-epsilon), rel=1e-12)


def test_ends_of_the_piecewise_law():
    for epsilon in EPSILONS:
        for name in ("pm", "pm-sub", "pm-opt"):
            mechanism = piecewise(name, epsilon)
            assert mechanism.interval(1.0)[1] == mechanism.A == -mechanism.interval(-1.0)[0]
            assert len(mechanism.law(1.0).pieces) == len(mechanism.law(-1.0).pieces) == 2
            left, right = mechanism.interval(0.0)
            inside = (right - left) * mechanism.c
            assert inside == pytest.approx(1 / (1 + mechanism.t * mechanism.s), rel=4e-15)


def test_simple_laws():
    assert continuous("laplace", 2.0).law(0.5) == Law(laplace_scale=1.0, x=0.5)
    assert continuous("laplace", 2.0).support == math.inf
    assert [value for value, _ in Duchi(1.0).law(0.5).atoms] == [-Duchi(1.0).C, Duchi(1.0).C]
    assert math.isclose(Duchi(1.0).C, 1 / math.tanh(0.5), rel_tol=1e-15)
    assert continuous("hm", 0.5).law(0.1) == continuous("duchi", 0.5).law(0.1)
    assert continuous("hm", 0.5).support == Duchi(0.5).C
    law = Mixture(piecewise("pm", 1.0), Duchi(1.0), 1.0).law(0.25)
    assert law == continuous("pm", 1.0).law(0.25)
    assert Law(atoms=((0.0, 0.5), (1.0, 0.5))).variance() == 0.25
    assert Law(pieces=((0.0, 1.0, 1.0),)).variance() == pytest.approx(1 / 12)


# Parameters out of range.


@pytest.mark.parametrize(
    "epsilon",
    [0, -1.0, 9.99e-4, 50.01, math.inf, -math.inf, math.nan, True, "1", None, 1j, 10**400],
)
def test_epsilon_out_of_range(epsilon):
    calls = [pm_opt_t, three_outputs_a, hm_alpha, hm_tp_beta, hm_joint]
    calls += [lambda epsilon, name=name: continuous(name, epsilon) for name in NAMES]
    for call in calls:
        with pytest.raises(ParameterError) as raised:
            call(epsilon)
        assert str(raised.value) == "The 'epsilon' parameter must be a number between 0.001 and 50."


@pytest.mark.parametrize("x", [1.0000001, -2, math.nan, math.inf, "0", None, True])
@pytest.mark.parametrize("name", NAMES)
def test_input_out_of_range(name, x):
    for call in (continuous(name, 1.0).law, continuous(name, 1.0).variance):
        with pytest.raises(ParameterError, match="The 'x' parameter must be a number between -1"):
            call(x)


def test_other_parameters_out_of_range():
    for name in ("gauss", "", None, 3, ["pm"]):
        with pytest.raises(ParameterError, match="The 'name' parameter must be one of 'laplace'"):
            continuous(name, 1.0)  # type: ignore[arg-type]
    for t in (0.999, math.nan, math.inf):
        with pytest.raises(ParameterError, match="The 't' parameter"):
            Piecewise(1.0, t)
    with pytest.raises(ParameterError, match="The 'a' parameter"):
        ThreeOutputs(1.0, -1e-9)
    with pytest.raises(ParameterError, match="must have the same epsilon"):
        Mixture(Piecewise(1.0, 2.0), Duchi(2.0), 0.5)
    for weight, complement in ((0.5, 0.6), (0.5, math.nan), (1.0, -1e-16)):
        with pytest.raises(ParameterError, match="must sum to 1"):
            Mixture(Piecewise(1.0, 2.0), Duchi(1.0), weight, complement)
    with pytest.raises(ParameterError, match="The 'weight' parameter"):
        Mixture(Piecewise(1.0, 2.0), Duchi(1.0), 1.5)


def test_other_kinds_of_numbers():
    assert pm_opt_t(Fraction(1)) == pm_opt_t(1) == pm_opt_t(np.float64(1)) == pm_opt_t(1.0)
    assert continuous("pm", 1).law(np.float64(0.5)) == continuous("pm", 1.0).law(Fraction(1, 2))
    assert pm_opt_t(Fraction(1, 1000)) == pm_opt_t(0.001)
    for name in NAMES:
        for x in (np.float64(0.5), Fraction(1, 2)):
            assert type(continuous(name, np.float64(1)).variance(x)) is float
