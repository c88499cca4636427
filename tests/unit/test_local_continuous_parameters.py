"""Parameters of the ideal local mechanisms against mpmath with 60 digits and stored values."""

import csv
import math
from fractions import Fraction
from pathlib import Path

import mpmath  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from continuous_support import (
    DIGITS,
    EPSILONS,
    LAST,
    LN2,
    exact_a,
    exact_mixture,
    exact_piecewise,
    exact_t,
    exact_three,
    mixture,
    piecewise,
    relative,
    worst,
)

from dpcore.errors import ParameterError
from dpcore.local.continuous import (
    NAMES,
    Duchi,
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


def rows(name: str) -> list[dict[str, str]]:
    with (VECTORS / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(DIGITS):
        yield


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
