"""Bounds, the search for sets, refusals, and the command."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

import dpcore
from dpcore import audit, cli, local
from dpcore.accounting import Ledger
from dpcore.audit import bounds, shipped
from dpcore.audit.result import Claim
from dpcore.audit.search import Finding, Statistic, Views, search, summarise
from dpcore.errors import ParameterError

ALPHA = 1e-6


# Bounds


@pytest.mark.parametrize("n", [1, 2, 17, 1000, 10**6, 10**8])
@pytest.mark.parametrize("share", [0, 1e-6, 0.01, 0.3, 0.5, 0.9, 1])
@pytest.mark.parametrize("alpha", [0.05, 1e-6, 1e-12])
def test_clopper_pearson_agrees_with_scipy_and_errs_to_the_careful_side(n, share, alpha):
    k = round(n * share)
    low, high = bounds.lower_share(k, n, alpha), bounds.upper_share(k, n, alpha)
    exact_low = stats.beta.ppf(alpha, k, n - k + 1) if k else 0.0
    exact_high = stats.beta.isf(alpha, k + 1, n - k) if k < n else 1.0
    assert exact_low * (1 - 2e-5) <= low <= exact_low * (1 + 1e-12)
    assert exact_high * (1 - 1e-12) <= high <= exact_high * (1 + 2e-5)


@pytest.mark.parametrize(("k", "n", "p"), [(3, 10, 0.2), (75, 100, 0.75), (10, 10**6, 1e-5)])
def test_binomial_tails_agree_with_scipy(k, n, p):
    assert bounds.log_tail(k, n, p) == pytest.approx(stats.binom.logsf(k - 1, n, p), rel=1e-8)


def test_binomial_tails_at_the_ends():
    assert bounds.log_tail(0, 5, 0.5) == 0
    assert bounds.log_tail(6, 5, 0.5) == -math.inf
    assert bounds.log_tail(1, 5, 0.0) == -math.inf
    assert bounds.log_tail(5, 5, 1.0) == 0


def reference_p_value(m, r, v, epsilon, delta):
    q = 1 / (1 + math.exp(-epsilon))
    below = np.cumsum(stats.binom.pmf(np.arange(v - 1, -1, -1), r, q))
    steepest = max(below / np.arange(1, v + 1), default=0.0)
    return min(1.0, stats.binom.sf(v - 1, r, q) + 2 * m * delta * steepest)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-4])
@pytest.mark.parametrize(("m", "r", "v"), [(100, 100, 75), (1000, 100, 90), (2000, 500, 500)])
def test_the_p_value_of_one_run_agrees_with_the_formula(m, r, v, delta):
    for epsilon in (0.0, 0.5, math.log(3), 4.0):
        found = bounds.one_run_p_value(m, r, v, epsilon, delta)
        assert found == pytest.approx(reference_p_value(m, r, v, epsilon, delta), rel=1e-4)


def test_the_p_value_of_one_run_at_a_published_point():
    """75 of 100 right at epsilon = log 3: P[Binomial(100, 3/4) >= 75] = 0.553."""
    assert bounds.one_run_p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(0.5535, abs=1e-3)


def test_one_run_refutes_up_to_where_the_p_value_reaches_the_level():
    for delta in (0.0, 1e-12):
        epsilon = bounds.one_run_epsilon(1000, 200, 190, delta, ALPHA)
        assert epsilon > 1.5
        assert bounds.one_run_p_value(1000, 200, 190, epsilon, delta) < ALPHA
        assert bounds.one_run_p_value(1000, 200, 190, epsilon + 1e-6, delta) > ALPHA
    assert bounds.one_run_epsilon(1000, 200, 190, 1e-5, ALPHA) == 0
    assert bounds.one_run_epsilon(1000, 200, 100, 0.0, ALPHA) == 0


def test_a_bound_with_delta_and_one_with_mu():
    plain = Claim(1.0).bound(5000, 10_000, 1000, 10_000, 1e-6)
    assert plain < Claim(1.0).bound(5000, 10_000, 1000, 10_000, 1e-3) < math.log(5)
    assert Claim(1.0, 0.1).bound(5000, 10_000, 1000, 10_000, 1e-6) < plain - 0.2
    assert Claim(1.0, 0.9).bound(5000, 10_000, 1000, 10_000, 1e-6) == -math.inf
    gaussian = Claim(1.0, 1e-5, mu=0.5)
    mu = gaussian.bound(5000, 10_000, 1000, 10_000, 1e-6)
    assert 1.1 < mu < stats.norm.ppf(0.5) - stats.norm.ppf(0.1)
    assert gaussian.as_epsilon(mu) == pytest.approx(dpcore.gaussian_epsilon(1 / mu, 1e-5))
    assert gaussian.as_epsilon(-1.0) == 0


# Search


def view_of(values, n=40_000, seed=0, shift=0):
    random = np.random.default_rng(seed)
    return Views.split(*(random.integers(0, values, (n, 1)) + move for move in (0, shift)))


IDENTITY = [Statistic("x", lambda rows: rows[:, 0])]


def bound_of(views, claim):
    findings = list(search(views, IDENTITY, claim, "here"))
    return summarise("test", claim, findings, 1 - ALPHA, 1)


def test_sets_are_chosen_on_one_half_and_counted_on_the_other():
    """What is held back changes the counts and nothing else."""
    one, two = (view_of(50, seed=seed, shift=5) for seed in (1, 2))
    mixed = Views(one.chosen, two.held)
    found = [list(search(view, IDENTITY, Claim(0.1), "here")) for view in (one, mixed)]
    assert [f.text for f in found[0]] == [f.text for f in found[1]]
    assert [f.k for f in found[0]] != [f.k for f in found[1]]


def test_nothing_is_found_where_there_is_nothing():
    for values in (2, 50, 4000, 10**12):
        assert bound_of(view_of(values), Claim(0.01)).passed


def test_false_alarms_are_as_rare_as_stated():
    alarms = 0
    m = local.GRR(0.5, 2)
    for seed in range(100):
        options = {"noise": dpcore.Noise.insecure(seed), "random_state": seed}
        alarms += not audit.mechanism(m, trials=1000, confidence=0.8, **options).passed
    assert alarms <= stats.binom.isf(ALPHA, 100, 0.2)


def test_a_set_of_scattered_codes_is_found():
    random = np.random.default_rng(1)
    even, odd = (
        2 * random.integers(0, 500, (20_000, 1)) + (random.random((20_000, 1)) < share)
        for share in (0.1, 0.9)
    )
    result = bound_of(Views.split(even, odd), Claim(1.0))
    assert not result.passed
    assert math.log(9) > result.lower_bound > 1.9


def test_an_atom_in_a_continuous_law_is_found():
    random = np.random.default_rng(2)
    smooth, atom = random.standard_normal((2, 40_000, 1))
    atom[random.random(40_000) < 0.05] = 0.125
    result = bound_of(Views.split(smooth, atom), Claim(1.0))
    assert not result.passed


def test_floats_and_wide_integers_are_told_apart_by_their_tails():
    random = np.random.default_rng(3)
    for scale, kind in ((1.0, float), (1e9, int)):
        low, high = (scale * (random.laplace(0, 1, (40_000, 1)) + x) for x in (0, 2))
        result = bound_of(Views.split(low.astype(kind), high.astype(kind)), Claim(1.0))
        assert 1.7 < result.lower_bound < 2


def test_more_tests_lower_the_bound():
    finding = Finding("x", 5000, 10_000, 1000, 10_000)
    one = summarise("a", Claim(1.0), [finding], 1 - ALPHA, 1)
    many = summarise("a", Claim(1.0), [finding] * 1000, 1 - ALPHA, 1)
    assert many.lower_bound < one.lower_bound
    assert many.tests == 1000
    expected = Claim(1.0).bound(5000, 10_000, 1000, 10_000, (1 - many.confidence) / 1000)
    assert many.lower_bound == expected


def test_a_set_of_everything_does_not_hide_the_others():
    """Its shares are both 1, which have no quantiles."""
    findings = [Finding("all", 100, 100, 100, 100), Finding("x", 5000, 10_000, 1000, 10_000)]
    for order in (findings, findings[::-1]):
        assert summarise("a", Claim(1.0, 1e-5, mu=0.5), order, 1 - ALPHA, 1).worst == "x"


# The interface


def test_an_audit_says_what_it_found():
    result = audit.mechanism(local.GRR(1.0, 3), trials=10_000, noise=dpcore.Noise.insecure(1))
    assert (result.mechanism, result.epsilon, result.delta, result.trials) == ("grr", 1, 0, 10_000)
    assert result.confidence == 1 - 1e-6
    assert re.fullmatch(r"grr: passed, claimed epsilon 1, observed at least 0\.\d+ .*", str(result))
    flagged = audit.mechanism(local.GRR(4.0, 3), epsilon=0.5, trials=10_000, name="wrong")
    assert str(flagged).startswith("wrong: FLAGGED, claimed epsilon 0.5")
    with pytest.raises(AttributeError):
        result.epsilon = 2.0


def test_an_audit_repeats_itself_on_the_same_seeds():
    results = [
        audit.mechanism(local.Duchi(1.0), trials=10_000, noise=dpcore.Noise.insecure(5))
        for _ in range(2)
    ]
    assert results[0] == results[1]


def test_wide_outputs_lower_the_number_of_trials():
    result = audit.mechanism(local.OUE(1.0, 4000), trials=20_000, noise=dpcore.Noise.insecure(1))
    assert result.passed
    assert result.trials == (1 << 25) // 4000


def test_an_audit_of_a_local_mechanism_is_not_charged(tmp_path):
    ledger = Ledger(tmp_path / "study.sqlite", epsilon=1.0)
    with ledger:
        audit.mechanism(local.Duchi(1.0), trials=1000)
        audit.mechanism(local.OUE(1.0, 3), trials=1000)
        audit.mechanism(local.Tuple([local.Numeric("a", 0, 1)], 1.0), trials=1000)
    assert ledger.spent == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((local.Duchi(1.0),), {"trials": 10}, "trials"),
        ((local.Duchi(1.0),), {"confidence": 1}, "confidence"),
        ((local.Duchi(1.0),), {"delta": -0.1}, "delta"),
        ((local.Duchi(1.0),), {"epsilon": 0}, "epsilon"),
        ((local.Duchi(1.0),), {"noise": 3}, "noise"),
        ((local.Duchi(1.0),), {"noise": dpcore.Noise.insecure(1).stream("a")}, "noise"),
        ((local.Duchi(1.0), [0, 1]), {"epsilon": 1}, "m"),
        ((len,), {}, "inputs"),
        ((len,), {"epsilon": 1}, "m"),
        ((abs, [0]), {"epsilon": 1}, "inputs"),
        ((abs, [0, 1]), {}, "epsilon"),
        ((abs, [0, 1]), {"epsilon": 1, "mu": 1}, "mu"),
        ((abs, [0, 1]), {"mu": 1}, "delta"),
        ((str, [0, 1]), {"epsilon": 1}, "m"),
    ],
)
def test_refusals_name_the_parameter(arguments, options, name):
    with pytest.raises(ParameterError, match=f"The '{name}' parameter"):
        audit.mechanism(*arguments, **options)


# The command


@pytest.mark.slow
def test_the_command_audits_everything_and_draws_it(capsys, tmp_path):
    picture = tmp_path / "audit.png"
    assert cli.main(["audit", "--quick", "--trials", "50000", "--plot", str(picture)]) == 0
    output = capsys.readouterr().out
    lines = output.splitlines()
    assert lines[0].split() == ["mechanism", "claimed", "delta", "at", "least", "trials", "verdict"]
    assert len(lines) == len(shipped.jobs()) + 2
    assert lines[-1] == f"{len(shipped.jobs())} audited, 0 flagged"
    for name in (*local.NAMES, "grr", "oue", "duchi-multi", "tuple", "split-budget"):
        assert any(line.startswith(f"local {name} ") for line in lines), name
    for name in (
        "laplace",
        "gaussian",
        "label counts, replace",
        "histogram, replace",
        "bounded_mean, add-remove",
    ):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_fails_where_something_is_flagged(capsys, monkeypatch):
    def wrong(trials):
        return audit.mechanism(local.Duchi(4.0), epsilon=1.0, trials=trials, name="wrong")

    monkeypatch.setattr(shipped, "jobs", lambda noise=None: [("wrong", wrong)])
    assert cli.main(["audit", "--trials", "10000"]) == 1
    output = capsys.readouterr().out
    assert "FLAGGED" in output
    assert output.endswith("1 audited, 1 flagged\n")


def test_the_command_refuses_too_few_trials(capsys):
    assert cli.main(["audit", "--trials", "5"]) == 1
    assert "'trials'" in capsys.readouterr().err
