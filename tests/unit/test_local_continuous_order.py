"""Which ideal local mechanism has the least worst-case variance, by crossings and searches."""

import itertools
import math

import mpmath  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from continuous_support import DIGITS, EPSILONS, LN2, mixture, worst

from dpcore.local.continuous import NAMES, Duchi, Mixture, Piecewise, ThreeOutputs


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(DIGITS):
        yield


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
