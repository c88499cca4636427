"""Training under differential privacy: gradients of single windows, noise, ledger, resuming."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats

import dpcore
from dpcore.accounting import PureEvent
from dpcore.data import traffic
from dpcore.errors import (
    BudgetExceededError,
    InsecureNoiseError,
    ParameterError,
    RepeatedReleaseError,
)
from dpcore.learners import PrivateForecaster
from dpcore.learners.forecast import HistogramLSTM, exchange, private_training
from dpcore.learners.forecast.guarantee import group_loss, windows_of_a_reading
from dpcore.learners.forecast.private_training import _draw_lot, clipped_sums, make_budget, noisy
from dpcore.learners.forecast.training import WindowData, node_losses
from dpcore.series import Bins

ALARM = 1e-6
SPEED = Bins.relative(80.0, 10)
PRIVATE = {
    "model": "local", "train": "dp-sgd", "n_epochs": 2, "stride": 3, "validation": 0.2,
    "scale": (50.0, 15.0), "batch_size": 512,
}  # fmt: skip
N_TRAIN = 900


pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def speed():
    return traffic(n_nodes=3, days=4, seed=1, missing=0.01).series[:, :, 0]


def forecaster(**options):
    return PrivateForecaster(SPEED, **{"noise": dpcore.Noise.insecure(4), **PRIVATE, **options})


# Gradients of single windows


@pytest.fixture(scope="module")
def problem():
    """Three nodes, two channels, histograms, clock and gaps; windows listed by node and start."""
    random = np.random.default_rng(0)
    series = torch.from_numpy(random.normal(size=(6, 60)).cumsum(axis=1)).float()
    observed = torch.from_numpy(random.random((6, 60)) < 0.8)
    histograms = [torch.from_numpy(random.dirichlet(np.ones(4), (6, 6))).float()]
    data = WindowData(series, observed, histograms, 12, 24, 12, 6, 3)
    nodes = random.integers(0, 3, 17)
    starts = random.integers(0, 60 - 18, 17)
    return data, nodes, starts


def model_for(data, kernel="auto", input_norm="instance"):
    return HistogramLSTM(
        data.n_nodes, 2, width=12, horizon=6, n_bins=data.n_side, kernel=kernel, random_state=3,
        input_norm=input_norm,
    )  # fmt: skip


def one_by_one(model, data, nodes, starts, clip, loss_space):
    """The slow twin: a backward pass for every window, clipped by hand."""
    total = {key: torch.zeros_like(p, dtype=torch.float64) for key, p in model.named_parameters()}
    norms = []
    for node, start in zip(nodes, starts, strict=True):
        model.zero_grad()
        node_losses(model, data, torch.tensor([start]), loss_space)[node].backward()
        own = {key: p.grad[node].double() for key, p in model.named_parameters()}
        norm = math.sqrt(sum(float(g.square().sum()) for g in own.values()))
        norms.append(norm)
        for key, gradient in own.items():
            total[key][node] += gradient * min(1.0, clip / norm)
    return total, np.array(norms)


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize("loss_space", ["standardised", "instance"])
def test_sums_are_those_of_windows_clipped_one_by_one(problem, kernel, loss_space, monkeypatch):
    data, nodes, starts = problem
    model = model_for(data, kernel)
    _, norms = one_by_one(model, data, nodes, starts, 1.0, loss_space)
    clip = float(np.median(norms))
    expected, _ = one_by_one(model, data, nodes, starts, clip, loss_space)
    # Small parts, so that a step consists of several.
    monkeypatch.setattr(private_training, "_MOST_COPIED", 5 * model.n_parameters // 3)
    sums, losses = clipped_sums(model, data, nodes, starts, clip, loss_space)
    for key, value in expected.items():
        np.testing.assert_allclose(sums[key], value, rtol=2e-3, atol=2e-4 * clip)
    direct = [node_losses(model, data, torch.tensor([s]), loss_space)[n].item()
              for n, s in zip(nodes, starts, strict=True)]  # fmt: skip
    np.testing.assert_allclose(losses, np.bincount(nodes, direct, 3), rtol=1e-4)


@pytest.mark.parametrize("clip", [1e-3, 0.3, 1e3])
def test_no_window_moves_the_sums_by_more_than_the_clip_norm(problem, clip):
    data, nodes, starts = problem
    model = model_for(data)
    _, norms = one_by_one(model, data, nodes, starts, clip, "standardised")
    whole, _ = clipped_sums(model, data, nodes, starts, clip)
    for left in range(len(nodes)):
        rest = np.delete(np.arange(len(nodes)), left)
        without, _ = clipped_sums(model, data, nodes[rest], starts[rest], clip)
        change = {key: whole[key] - without[key] for key in whole}
        length = math.sqrt(sum(float(g.square().sum()) for g in change.values()))
        assert length <= clip
        assert length == pytest.approx(min(clip, norms[left]), rel=2e-3)
        for gradient in change.values():
            others = np.delete(np.arange(3), nodes[left])
            assert float(gradient[others].abs().max()) <= 1e-9 * clip


def test_a_window_that_overflows_adds_nothing(problem):
    data, nodes, starts = problem
    huge = WindowData(
        data.series * 1e30, data.observed, data.histograms, 12, 24, 12, 6, 3
    )  # fmt: skip
    sums, _ = clipped_sums(model_for(data, input_norm="none"), huge, nodes, starts, 1.0)
    for value in sums.values():
        assert torch.isfinite(value).all()


def test_noise_is_gaussian_with_the_stated_deviation():
    sums = {"a": torch.zeros(4, 300, 10, dtype=torch.float64), "b": torch.ones(4, 500).double()}
    drawn = noisy(sums, 0.5, 3.0, dpcore.Noise.insecure(8))
    assert drawn["a"].shape == (4, 300, 10)
    values = np.concatenate([drawn["a"].numpy().ravel(), drawn["b"].numpy().ravel() - 1])
    # At least the multiplier times the clip norm, and at most a thousandth and the grid more.
    for scale in (1.5, 1.5 * 1.002):
        square = np.square(values / scale).sum()
        low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(values))
        assert low < square < high
    assert stats.kstest(values / 1.5015, "norm").pvalue > ALARM
    again = noisy(sums, 0.5, 3.0, dpcore.Noise.insecure(8))
    assert torch.equal(again["a"], drawn["a"])


def test_windows_are_drawn_by_coins_of_their_own_at_every_node():
    everything = make_budget(1.0, 1e-5, n_windows=4000, batch_size=4096, n_epochs=2)
    assert everything.steps == 2
    nodes, windows = _draw_lot(everything, 3, dpcore.Noise.insecure(1))
    assert len(set(zip(nodes, windows, strict=True))) == len(nodes) == 12_000
    budget = dataclasses.replace(everything, sampling_rate=0.1)
    nodes, windows = _draw_lot(budget, 3, dpcore.Noise.insecure(1))
    counts = np.bincount(nodes, minlength=3)
    low, high = stats.binom.ppf([ALARM / 2, 1 - ALARM / 2], 4000, 0.1)
    assert ((low <= counts) & (counts <= high)).all()
    lots = [set(windows[nodes == node].tolist()) for node in range(3)]
    shared = len(lots[0] & lots[1])
    low, high = stats.binom.ppf([ALARM / 2, 1 - ALARM / 2], 4000, 0.01)
    assert low <= shared <= high


# The learner


def test_epsilon_is_the_accountants(speed):
    fitted = forecaster(train_epsilon=1.0, batch_size=64, noise=None).fit(speed, n_train=N_TRAIN)
    privacy, budget = fitted.privacy_, fitted._budget
    assert privacy is fitted.training_privacy_
    assert (privacy.unit, privacy.adjacency, privacy.private) == ("window", "add-remove", True)
    assert 0.99 < privacy.epsilon <= 1.0
    assert privacy.delta == 1e-5
    n_windows = len(range(0, round((N_TRAIN - 23) * 0.8), 3))
    assert budget.n_windows == n_windows
    assert budget.steps == 2 * round(n_windows / 64)
    accountant = PLDAccountant()
    step = PoissonSampledDpEvent(64 / n_windows, GaussianDpEvent(budget.noise_multiplier))
    accountant.compose(step, budget.steps)
    assert privacy.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert not forecaster().fit(speed, n_train=N_TRAIN).privacy_.private
    assert forecaster(train="plain").fit(speed, n_train=N_TRAIN).training_privacy_ is None


def test_what_overlapping_windows_mean_for_a_reading_is_said(speed):
    fitted = forecaster(train_epsilon=0.01).fit(speed, n_train=N_TRAIN)
    text = fitted.privacy_.not_covered[0]
    assert "one reading, which is in up to 8 windows" in text
    loss, chance = group_loss(fitted.privacy_.epsilon, 1e-5, 16)
    assert f"epsilon {loss:.4g} at delta {chance:.2g}" in text
    apart = forecaster(stride=24, validation=0.0).fit(speed, n_train=N_TRAIN)
    assert "in up to 1 windows" in apart.privacy_.not_covered[0]
    both = forecaster(model="exchange").fit(speed, [[1], [2], [0]], n_train=N_TRAIN)
    assert (both.privacy_.unit, both.training_privacy_.unit) == ("reading", "window")
    assert any("training_privacy_" in text for text in both.privacy_.not_covered)
    assert "in up to 12 windows" in both.training_privacy_.not_covered[0]


@pytest.mark.parametrize("bucket", [3, 5, 12])
@pytest.mark.parametrize("stride", [1, 3, 24])
def test_a_reading_is_in_no_more_windows_than_stated(bucket, stride):
    width, horizon, n = 12, 6, 200
    most = {None: 0, bucket: 0}
    for reading in range(60, 72):
        for own in most:
            found = 0
            for start in range(0, n - width - horizon, stride):
                last_bucket = (start + width) // bucket - 1
                inside = start <= reading < start + width + horizon
                counted = own is not None and reading // bucket == last_bucket
                found += inside or counted
            most[own] = max(most[own], found)
    for own, found in most.items():
        stated = windows_of_a_reading(width, horizon, stride, own_bucket=own)
        assert found <= stated <= found + (0 if own is None else -(-bucket // stride) + 1)


def test_much_noise_spoils_and_little_does_not(speed):
    options = {"n_epochs": 12, "stride": 2}
    plain = forecaster(train="plain", **options).fit(speed, n_train=N_TRAIN)
    little = forecaster(train_epsilon=20.0, **options).fit(speed, n_train=N_TRAIN)
    much = forecaster(train_epsilon=0.05, **options).fit(speed, n_train=N_TRAIN)
    assert much._budget.noise_multiplier > 20 * little._budget.noise_multiplier
    assert not np.array_equal(plain.predict([1000]), little.predict([1000]))
    assert plain.score() >= much.score() + 0.05
    assert little.score() >= much.score() + 0.05


def test_a_ledger_is_charged_once_for_each_node_and_refuses_more(tmp_path, speed):
    with dpcore.Ledger(tmp_path / "nodes.sqlite", epsilon=2.0, delta=1e-5) as ledger:
        fitted = forecaster(train_epsilon=1.5, noise=None).fit(speed, n_train=N_TRAIN)
        assert len(ledger.entries) == 3
        assert {entry.event for entry in ledger.entries} == {fitted._budget.event}
        assert len({entry.part for entry in ledger.entries}) == 3
        assert ledger.spent[0] == pytest.approx(fitted.privacy_.epsilon, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            forecaster(train_epsilon=1.5, noise=None).fit(speed, n_train=N_TRAIN)
        with pytest.raises(ParameterError):
            forecaster(model="exchange", noise=None).fit(speed, n_train=N_TRAIN)
        assert len(ledger.entries) == 3


def test_a_training_that_one_node_cannot_pay_is_paid_by_none(tmp_path, speed):
    model = forecaster(train_epsilon=1.5, noise=None)
    with dpcore.Ledger(tmp_path / "nodes.sqlite", epsilon=2.0, delta=1e-5) as ledger:
        with ledger.part("readings", 2, ""):
            ledger.charge(PureEvent(mechanism="test", epsilon=1.0, unit="window"))
        with pytest.raises(BudgetExceededError):
            model.fit(speed, n_train=N_TRAIN)
        assert len(ledger.entries) == 1


def test_a_keyed_training_is_one_release(tmp_path, speed):
    with dpcore.Ledger(tmp_path / "nodes.sqlite", epsilon=9.0, delta=1e-5) as ledger:
        noise = ledger.keyed("training")
        forecaster(train_epsilon=1.5, noise=noise).fit(speed, n_train=N_TRAIN)
        assert [entry.key for entry in ledger.entries] == ['["training"]'] * 3
        with pytest.raises(RepeatedReleaseError):
            ledger.keyed("training")
        with pytest.raises(RepeatedReleaseError):
            forecaster(train_epsilon=1.0, noise=noise).fit(speed, n_train=N_TRAIN)
        assert len(ledger.entries) == 3


def test_the_same_training_on_a_pinned_stream_is_one_release(tmp_path, speed):
    source = dpcore.Noise.from_key(bytes(range(32))).stream("one road")
    with dpcore.Ledger(tmp_path / "nodes.sqlite", epsilon=2.0, delta=1e-5) as ledger:
        found = [forecaster(train_epsilon=1.5, noise=source).fit(speed, n_train=N_TRAIN)
                 for _ in range(2)]  # fmt: skip
        assert len(ledger.entries) == 3
    assert np.array_equal(found[0].predict(), found[1].predict())
    other = np.where(np.isnan(speed), np.nan, speed + 1)
    changed = forecaster(train_epsilon=1.5, noise=source).fit(other, n_train=N_TRAIN)
    assert not np.array_equal(changed.models_["local"].wx.detach(),
                              found[0].models_["local"].wx.detach())  # fmt: skip


def test_a_run_that_goes_on_spends_nothing_again(tmp_path, speed, monkeypatch):
    path = tmp_path / "half.pt"
    source = dpcore.Noise.from_key(bytes(range(32))).stream("one road")
    options = {"train_epsilon": 1.5, "n_epochs": 3}
    straight = forecaster(noise=source, **options).fit(speed, n_train=N_TRAIN)
    finish = private_training.finish_epoch

    def interrupted(model, optimizer, data, validation, state, *rest):
        if len(state["losses"]) == 2:
            raise KeyboardInterrupt
        finish(model, optimizer, data, validation, state, *rest)

    with dpcore.Ledger(tmp_path / "nodes.sqlite", epsilon=1.6, delta=1e-5) as ledger:
        for noise, period in ((source, ""), (None, "another")):
            path.unlink(missing_ok=True)
            chosen = {"checkpoint": path, "noise": noise, "period": period, **options}
            monkeypatch.setattr(private_training, "finish_epoch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                forecaster(**chosen).fit(speed, n_train=N_TRAIN)
            monkeypatch.setattr(private_training, "finish_epoch", finish)
            charged = len(ledger.entries)
            resumed = forecaster(**chosen).fit(speed, n_train=N_TRAIN)
            assert len(ledger.entries) == charged
            assert resumed.privacy_.epsilon == straight.privacy_.epsilon <= 1.5
            assert len(resumed.histories_["local"]) == 3
            if noise is source:
                assert np.array_equal(resumed.predict(), straight.predict())
        assert charged == 6


@pytest.mark.parametrize("options", [
    {"model": "gate"}, {"patience": 2}, {"train": "private"}, {"train_epsilon": 0.0},
    {"train_epsilon": 200.0}, {"train_delta": 0.0}, {"train_delta": 1.0}, {"clip_norm": -1.0},
])  # fmt: skip
def test_what_would_not_be_private_is_refused(speed, options):
    with pytest.raises(ParameterError):
        forecaster(**options).fit(speed, n_train=N_TRAIN)


@pytest.mark.parametrize("options", [{"train_delta": 1.0}, {"train_epsilon": 200.0}])
def test_what_training_cannot_do_is_refused_before_anything_is_sent(speed, options, monkeypatch):
    monkeypatch.setattr(exchange, "release_label_counts", pytest.fail)
    with pytest.raises(ParameterError, match="'train_"):
        forecaster(model="exchange", **options).fit(speed, [[1], [2], [0]], n_train=N_TRAIN)


def test_what_may_be_published_holds_no_readings(speed):
    fitted = forecaster(noise=None).fit(speed, n_train=N_TRAIN)
    content = fitted.published()
    model = fitted.models_["local"]
    assert set(content) == {"models", "mean", "deviation"}
    assert {k: v.shape for k, v in content["models"]["local"].items()} == {
        k: v.shape for k, v in model.state_dict().items()
    }
    assert (float(content["mean"][0]), float(content["deviation"][0])) == (50.0, 15.0)
    # A copy: what happens to the model later does not change it.
    kept = content["models"]["local"]["wx"].clone()
    with torch.no_grad():
        model.wx.add_(1.0)
    assert torch.equal(content["models"]["local"]["wx"], kept)
    model.load_state_dict(content["models"]["local"])
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict([1000]), fitted.predict([1000]))
    said = " ".join(fitted.training_privacy_.not_covered)
    assert "published()" in said
    assert "copied and continued twice" in said


def test_what_is_not_private_is_not_published(speed):
    for options, error in (
        ({}, InsecureNoiseError),
        ({"noise": None, "scale": None}, ParameterError),
        ({"noise": None, "train": "plain"}, ParameterError),
    ):
        fitted = forecaster(**options).fit(speed, n_train=N_TRAIN)
        fitted.set_params(train="dp-sgd", scale=(50.0, 15.0), noise=None)
        with pytest.raises(error):
            fitted.published()
