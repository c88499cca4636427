"""What the budget of a prototype learner rests on: accounting, noise, and an audit of runs."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpcore import Noise, random
from dpcore.accounting import SampledGaussianEvent, compose
from dpcore.accounting.sampled import LEAST_NOISE
from dpcore.errors import ParameterError
from dpcore.learners import PrivateGLVQ, PrivateGMLVQ
from dpcore.learners.lvq import descent, training
from dpcore.learners.lvq import start as start_module
from dpcore.learners.lvq.budget import make_plan, paper_sigma
from dpcore.learners.lvq.clipped import clipped_sums, to_grid
from dpcore.learners.lvq.descent import Schedule, noisy_sums, private_descent
from dpcore.learners.lvq.kernel import Model, Sums, Transfer
from dpcore.learners.lvq.start import gaussian_start, laplace_start

ALPHA = 1e-6
DELTA = 1e-5


def sampled(sigma, rate=0.01, steps=5000):
    return SampledGaussianEvent(
        mechanism="step",
        noise_multiplier=sigma,
        sampling_rate=rate,
        adjacency="add-remove",
        count=steps,
    )


# Accounting


@pytest.mark.parametrize(
    ("epsilon", "sigma", "rdp", "pld"),
    [
        (0.6, 7.997543186980134, 0.33115, 0.30029),
        (1.2, 3.998771593490067, 0.71260, 0.64952),
        (2.0, 2.3992629560940406, 1.28894, 1.17893),
    ],
)
def test_what_the_printed_rule_gives_in_the_table(epsilon, sigma, rdp, pld):
    assert paper_sigma(epsilon, DELTA, 0.01, 5000) == pytest.approx(sigma, rel=1e-12)
    total = compose([sampled(sigma)])
    assert total.epsilon(DELTA, "rdp") == pytest.approx(rdp, rel=0.01)
    assert total.epsilon(DELTA, "pld") == pytest.approx(pld, rel=0.01)


@pytest.mark.parametrize(("epsilon", "needed"), [(0.6, 4.294), (1.2, 2.365), (2.0, 1.591)])
def test_the_noise_that_is_needed(epsilon, needed):
    """Figures of a coarser search; a pessimistic accountant confirms what is a little below."""
    plan = make_plan(epsilon, DELTA, start="independent", sampling_rate=0.01, steps=5000)
    assert needed * 0.998 <= plan.step <= needed * 1.015
    assert plan.privacy.epsilon <= epsilon
    assert plan.step == pytest.approx({0.6: 4.2893, 1.2: 2.3646, 2.0: 1.5902}[epsilon], rel=2e-4)


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(6, 0.01, 5000), (8, 0.01, 5000), (2, 0.001, 10_000)]
)
def test_the_printed_rule_is_refused_where_it_lies(epsilon, rate, steps):
    with pytest.raises(ParameterError, match="'epsilon' parameter claims"):
        make_plan(
            epsilon,
            DELTA,
            start="independent",
            sampling_rate=rate,
            steps=steps,
            sigma_rule="paper",
        )


def test_the_learner_refuses_it_too_and_reports_the_true_loss_elsewhere():
    x, y = np.random.default_rng(0).uniform(-1, 1, (60, 2)), np.arange(60) % 2
    learner = PrivateGLVQ(
        10.0,
        classes=[0, 1],
        bounds=(-1, 1),
        start="laplace",
        sampling_rate=0.01,
        n_steps=5000,
        sigma_rule="paper",
    )
    with pytest.raises(ParameterError) as caught:
        learner.fit(x, y)
    assert re.fullmatch(
        r"The 'epsilon' parameter claims 8 for the steps by the printed rule, at delta 1e-05, but "
        r"the accountant finds [\d.]+; use sigma_rule='accountant'\.",
        str(caught.value),
    )
    plan = make_plan(
        0.75, DELTA, start="laplace", sampling_rate=0.01, steps=5000, sigma_rule="paper"
    )
    assert plan.privacy.epsilon == pytest.approx(0.15 + 0.30029, rel=0.01)


@pytest.mark.parametrize("start", ["gaussian", "laplace", "independent", "count"])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_plan_spends_the_budget_and_no_more(start, rate):
    plan = make_plan(1.0, DELTA, start=start, sampling_rate=rate, steps=60)
    recomputed = compose(plan.events).epsilon(DELTA)
    assert recomputed == plan.privacy.epsilon
    assert 0.995 < recomputed <= 1.0
    assert plan.events[-1].count == 60


@pytest.mark.parametrize("start", ["gaussian", "laplace"])
def test_hardly_any_sampling_leaves_the_least_noise_that_can_be_accounted(start):
    plan = make_plan(1.0, DELTA, start=start, sampling_rate=1e-6, steps=5)
    assert plan.step == pytest.approx(LEAST_NOISE, rel=1e-9)
    assert plan.step >= LEAST_NOISE
    assert compose(plan.events).epsilon(DELTA) == plan.privacy.epsilon < 1.0


# Noise


def test_laplace_start_has_the_noise_of_the_paper():
    """Means of |noise| are the scales 2 / eps1 and 2 d / eps1; each test errs at 1e-6."""
    d, k, epsilon, runs = 3, 2, 1.0, 4000
    x, codes = np.zeros((0, d)), np.zeros(0, np.intp)
    source = Noise.insecure(11)
    drawn = {"counts": [], "sums": []}

    def capture(values, *, noise, **options):
        result = original(values, noise=noise, **options)
        drawn["counts" if np.ndim(values) == 1 else "sums"].append(np.asarray(result).ravel())
        return result

    from dpcore.learners.lvq import start as module

    original = module.laplace
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "laplace", capture)
    for i in range(runs):
        laplace_start(to_grid(x), codes, k, {"counts": epsilon, "sums": epsilon}, source.stream(i))
    patch.undo()
    for name, expected in (("counts", 1 / epsilon), ("sums", d / epsilon * 2**16)):
        noise = np.concatenate(drawn[name])
        # The discrete Laplace law has variance 2 e / (1 - e)**2 with e = exp(-1 / scale).
        e = math.exp(-1 / expected)
        deviation = math.sqrt(2 * e) / (1 - e)
        spread = deviation * math.sqrt(5 / 4 / len(noise))  # kurtosis 6 at most
        assert abs(noise.std() - deviation) < stats.norm.isf(ALPHA / 4) * spread
    assert deviation == pytest.approx(math.sqrt(2) * d / epsilon * 2**16, rel=1e-3)


def test_a_plan_is_found_where_sampling_hardly_helps():
    plan = make_plan(0.01, 1e-5, start="gaussian", sampling_rate=0.9, steps=2000)
    assert 0.0099 < plan.privacy.epsilon <= 0.01


def test_gaussian_start_is_centred_on_the_truth():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 4000)
    x = np.clip(rng.normal(codes[:, None] - 0.5, 0.1, (4000, 2)), -1, 1)
    weak = {"centre": 0.5, "radius": 0.5, "sums": 0.5}
    start = gaussian_start(to_grid(x), codes, 2, weak, Noise.insecure(1).stream("start"))
    assert abs(start.n_records - 4000) < 10
    np.testing.assert_allclose(start.centre, x.mean(axis=0), atol=0.01)
    truth = np.array([x[codes == c].mean(axis=0) for c in (0, 1)]) - x.mean(axis=0)
    np.testing.assert_allclose(start.means, truth, atol=0.05)
    norms = np.linalg.norm(x - x.mean(axis=0), axis=1)
    assert np.median(norms) <= start.radius <= 1.3 * np.median(norms)


def test_every_coordinate_gets_the_noise_that_is_accounted_for():
    """Zero gradients included: the empirical deviation is the multiplier times the clip norm."""
    clip, multiplier = 0.3, 5.0
    sums = Sums(np.zeros((10, 40)), np.zeros((50, 40)), 0.0)
    noisy = noisy_sums(sums, clip, multiplier, Noise.insecure(2))
    values = np.concatenate([noisy.prototypes.ravel(), noisy.omega.ravel()])
    assert (values != 0).mean() > 0.99
    n = values.size
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], n) / n
    assert low < values.var() / (multiplier * clip * (1 + 1 / 1024)) ** 2 < high * 1.003
    assert stats.kstest(values / (multiplier * clip * (1 + 1 / 2048)), "norm").pvalue > ALPHA


def test_an_empty_lot_moves_the_model_by_noise_alone():
    model = Model(np.zeros((2, 3)), np.array([0, 1]), np.eye(3))
    schedule = Schedule(1, 0.5, 10.0, 0.1, 1.0, 1.0, math.sqrt(3), Transfer())
    x, codes = np.zeros((0, 3)), np.zeros(0, np.intp)
    after = private_descent(x, codes, model, schedule, 2.0, Noise.insecure(3).stream("run"))
    assert np.isfinite(after.prototypes).all()
    assert np.isfinite(after.omega).all()
    assert (after.prototypes != 0).all()
    assert (after.omega != model.omega).all()


def test_lots_are_secret_poisson_samples(monkeypatch):
    """Each record takes part by its own exact coin, afresh in every step."""
    coins = []
    bernoulli = random.bernoulli

    def watch(p, size, *, noise):
        coins.append(np.asarray(bernoulli(p, size, noise=noise)))
        return coins[-1]

    monkeypatch.setattr(random, "bernoulli", watch)
    n, steps, rate = 500, 200, 0.25
    model = Model(np.zeros((2, 2)), np.array([0, 1]))
    schedule = Schedule(steps, rate, rate * n, 0.1, 1.0, 1.0, 1.0, Transfer())
    private_descent(
        np.zeros((n, 2)),
        np.zeros(n, np.intp),
        model,
        schedule,
        2.0,
        Noise.insecure(4).stream("run"),
    )
    drawn = np.array(coins)
    assert drawn.shape == (steps, n)
    taken = stats.binomtest(int(drawn.sum()), drawn.size, rate)
    assert taken.pvalue > ALPHA
    both = stats.binomtest(int((drawn[1:] & drawn[:-1]).sum()), drawn[1:].size, rate**2)
    assert both.pvalue > ALPHA
    sizes = drawn.sum(axis=1)
    assert sizes.var() == pytest.approx(n * rate * (1 - rate), rel=0.6)


# What is charged is what is drawn

X, Y = np.random.default_rng(6).uniform(-1, 1, (2000, 3)), np.arange(2000) % 2
PUBLIC = {"classes": [0, 1], "bounds": (-1, 1)}


@pytest.mark.parametrize("learner", [PrivateGLVQ, PrivateGMLVQ])
@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_every_step_has_the_noise_that_was_charged(learner, rate, monkeypatch):
    clips, lots, noise, streams = set(), [], set(), set()

    def sums(points, *others, clip, **options):
        clips.add(clip)
        lots.append(len(points))
        return clipped_sums(points, *others, clip=clip, **options)

    def noisy(sums, clip, multiplier, source):
        noise.add((clip, multiplier))
        streams.add(source.fingerprint("step"))
        return noisy_sums(sums, clip, multiplier, source)

    monkeypatch.setattr(descent, "clipped_sums", sums)
    monkeypatch.setattr(descent, "noisy_sums", noisy)
    fitted = learner(1.0, **PUBLIC, sampling_rate=rate, n_steps=40, noise=Noise.insecure(1))
    fitted.fit(X, Y)
    steps = fitted.privacy_.events[-1]
    assert clips == {fitted.clip_}
    assert noise == {(fitted.clip_, steps.noise_multiplier)}
    assert steps.count == len(lots) == len(streams) == 40
    low, high = stats.binom.ppf([1e-8, 1 - 1e-8], 2000, rate)
    assert all(low <= size <= high for size in lots)
    assert len(set(lots)) > 1 or rate == 1
    # Sums are divided by the noisy count, never by the true one or by the size of a lot.
    assert fitted.schedule_.lot == rate * fitted.n_records_
    assert fitted.n_records_ != 2000


def test_private_descent_without_its_noise_is_clipped_descent(monkeypatch):
    """Step by step, with a rate that throws prototypes against the walls of their cube."""
    monkeypatch.setattr(descent, "noisy_sums", lambda sums, *_: sums)
    model = Model(np.array([[0.5, 0.5, 0.0], [-0.5, 0.1, 0.2]]), np.array([0, 1]), np.eye(3))
    schedule = Schedule(5, 1.0, 2000.0, 0.3, 9000.0, 1.0, math.sqrt(3), Transfer())
    points = to_grid(X)
    found = private_descent(points, Y, model, schedule, 2.0, Noise.insecure(1).stream("run"))
    w, omega, walls = model.prototypes, model.omega, 0
    for _ in range(5):
        sums = clipped_sums(points, Y, Model(w, model.codes, omega), clip=0.3)
        w = np.clip(w - 9000 / 2000 * sums.prototypes, -2, 2)
        walls += (np.abs(w) == 2).sum()
        omega = omega - 1 / 2000 * sums.omega
        omega = omega * (math.sqrt(3) / np.sqrt(np.square(omega).sum()))
    np.testing.assert_array_equal(found.prototypes, w)
    np.testing.assert_array_equal(found.omega, omega)
    assert walls > 0


def test_the_printed_start_has_equal_halves():
    plan = make_plan(0.75, DELTA, start="laplace", sampling_rate=0.01, steps=5000)
    assert plan.start == pytest.approx({"counts": 0.075, "sums": 0.075})


def test_means_of_a_laplace_start_stay_in_the_cube():
    codes = np.arange(50) % 2
    source = Noise.insecure(2).stream("start")
    start = laplace_start(to_grid(X[:50]), codes, 2, {"counts": 0.01, "sums": 0.01}, source)
    assert np.abs(start.means).max() == 1


def released(monkeypatch, points, codes, given=None):
    """What the Gaussian start releases, before noise; `given` is what it goes on with."""
    seen = {}

    def watch(x, sensitivity, multiplier, source, name):
        seen[name] = np.asarray(x, np.float64), sensitivity
        return (seen if given is None else given)[name][0]

    monkeypatch.setattr(start_module, "_release", watch)
    multipliers = {"centre": 1.0, "radius": 1.0, "sums": 1.0}
    gaussian_start(points, codes, 2, multipliers, Noise.insecure(1).stream("start"))
    return seen


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [1, 2, 500])
def test_a_record_moves_the_start_by_at_most_its_sensitivity(n, order, monkeypatch):
    """With all that was released before equal in both worlds."""
    generator = np.random.default_rng(n)
    largest = dict.fromkeys(("centre", "radius", "sums"), 0.0)
    corners = [np.ones(9), -np.ones(9), np.sign(generator.normal(size=9)), np.zeros(9)]
    for record in [*corners, *generator.uniform(-1, 1, (6, 9))]:
        x = np.vstack([generator.uniform(-1, 1, (n, 9)), record])
        x = np.asarray(x, order=order)
        codes = generator.integers(0, 2, n + 1)
        without = released(monkeypatch, to_grid(x[:n]), codes[:n])
        with_it = released(monkeypatch, to_grid(x), codes, without)
        for name, (values, sensitivity) in with_it.items():
            moved = np.linalg.norm(values - without[name][0])
            assert moved <= sensitivity
            largest[name] = max(largest[name], moved / sensitivity)
    assert min(largest.values()) > 0.9


# Audit: two worlds, with and without one record


def audit(learner, *, runs=1500):
    """A lower bound, at 1e-6, on the epsilon of a whole run: tell the worlds apart by the model.

    Half of the runs find the direction and the threshold, the others are counted.
    """
    rng = np.random.default_rng(5)
    y = np.arange(40) % 2
    x = np.clip(rng.normal(0.2 * y[:, None] - 0.1, 0.05, (40, 2)), -1, 1)
    canary_x, canary_y = np.vstack([x, [[-1.0, -1.0]]]), np.append(y, 1)
    seen = []
    for world, (data, labels) in enumerate(((x, y), (canary_x, canary_y))):
        outputs = []
        for i in range(runs):
            fitted = learner.set_params(noise=Noise.insecure(world).stream(i)).fit(data, labels)
            parts = [np.asarray(fitted.prototypes_).ravel(), [math.log(fitted.n_records_)]]
            if hasattr(fitted, "omega_"):
                parts.append(fitted.omega_.ravel())
            outputs.append(np.concatenate(parts))
        seen.append(np.array(outputs))
    half = runs // 2
    pooled = np.cov(np.vstack([part[:half] - part[:half].mean(axis=0) for part in seen]).T)
    change = seen[1][:half].mean(axis=0) - seen[0][:half].mean(axis=0)
    direction = np.linalg.solve(pooled + 1e-9 * np.trace(pooled) * np.eye(len(pooled)), change)
    scores = [part @ direction for part in seen]

    def bound(without, with_it, alpha):
        most = stats.beta.ppf(1 - alpha / 2, without.sum() + 1, (~without).sum())
        least = stats.beta.ppf(alpha / 2, with_it.sum(), (~with_it).sum() + 1)
        least = 0.0 if math.isnan(least) else least
        return math.log(max(least - DELTA, 1e-12) / most)

    candidates = np.quantile(np.concatenate([s[:half] for s in scores]), np.linspace(0.5, 1, 60))
    best = max(candidates, key=lambda t: bound(scores[0][:half] > t, scores[1][:half] > t, 0.1))
    return bound(scores[0][half:] > best, scores[1][half:] > best, ALPHA)


LEARNERS = {
    "glvq": PrivateGLVQ(1.0, classes=[0, 1], bounds=(-1, 1), radius=1.0, n_steps=4),
    "gmlvq": PrivateGMLVQ(1.0, classes=[0, 1], bounds=(-1, 1), radius=1.0, n_steps=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_an_audit_of_whole_runs_stays_below_the_claim(name):
    assert audit(LEARNERS[name]) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_the_audit_sees_a_run_with_too_little_noise(name, monkeypatch):
    def too_little(*args, **options):
        plan = make_plan(*args, **options)
        return replace(
            plan, start={key: z / 50 for key, z in plan.start.items()}, step=plan.step / 50
        )

    monkeypatch.setattr(training, "make_plan", too_little)
    assert audit(LEARNERS[name], runs=400) > 1.0
