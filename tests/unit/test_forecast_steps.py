"""What training does step by step: the noise that was charged, the lots, the order, the windows."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

import dpcore
from dpcore.accounting import SampledGaussianEvent
from dpcore.data import traffic
from dpcore.errors import ParameterError
from dpcore.learners import PrivateForecaster
from dpcore.learners.forecast import HistogramLSTM, private_training, training
from dpcore.learners.forecast.options import choose_steps
from dpcore.learners.forecast.training import Options, WindowData, train
from dpcore.series import Bins

ALARM = 1e-6


pytestmark = pytest.mark.usefixtures("one_torch_thread")


# Private training


class Recorded:
    """A private fit under a ledger, and everything that its steps handed on."""

    def __init__(self, monkeypatch, folder, **options):
        self.clips, self.lots, self.noise, self.sent, self.gradients = [], [], [], [], []
        recorded, sums, noisy = self, private_training.clipped_sums, private_training.noisy

        def clipped_sums(model, data, nodes, starts, clip, loss_space):
            recorded.clips.append(clip)
            recorded.lots.append(set(zip(nodes.tolist(), starts.tolist(), strict=True)))
            return sums(model, data, nodes, starts, clip, loss_space)

        def add_noise(exact, clip, multiplier, source):
            recorded.clips.append(clip)
            sent = noisy(exact, clip, multiplier, source)
            recorded.sent.append(sent)
            difference = [(sent[key] - exact[key]).numpy().ravel() for key in exact]
            recorded.noise.append(np.concatenate(difference))
            return sent

        class Adam(torch.optim.Adam):
            def step(self, *arguments):
                parameters = self.param_groups[0]["params"]
                recorded.gradients.append([each.grad.clone() for each in parameters])
                return super().step(*arguments)

        monkeypatch.setattr(private_training, "clipped_sums", clipped_sums)
        monkeypatch.setattr(private_training, "noisy", add_noise)
        monkeypatch.setattr(torch.optim, "Adam", Adam)
        series = traffic(n_nodes=2, days=4, seed=1).series[:, :, 0]
        source = dpcore.Noise.from_key(bytes(range(32))).stream("steps")
        with dpcore.Ledger(folder / "steps.sqlite", epsilon=9.0, delta=1e-5) as ledger:
            self.fitted = PrivateForecaster(
                Bins.relative(80.0, 10), model="local", train="dp-sgd", n_epochs=3, stride=3,
                validation=0.2, scale=(50.0, 15.0), noise=source, **options,
            ).fit(series, n_train=900)  # fmt: skip
            (self.event,) = {entry.event for entry in ledger.entries}


@pytest.fixture(scope="module", params=[0.5, 2.0], ids="clip {}".format)
def recorded(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("steps")
        return Recorded(patch, folder, clip_norm=request.param, batch_size=60)


def test_steps_clip_and_add_noise_as_charged(recorded):
    event, clip = recorded.event, recorded.fitted.clip_norm
    assert isinstance(event, SampledGaussianEvent)
    assert event.count == len(recorded.noise) == len(recorded.gradients) > 5
    assert set(recorded.clips) == {clip}
    deviation = event.noise_multiplier * clip
    for noise in recorded.noise:
        low, high = stats.chi2.ppf([ALARM / 40, 1 - ALARM / 40], noise.size)
        # At least what was charged, and at most a thousandth and the grid more.
        assert low < np.square(noise / deviation).sum()
        assert np.square(noise / (1.002 * deviation)).sum() < high


def test_steps_have_noise_and_lots_of_their_own(recorded):
    for one, other in itertools.combinations(recorded.noise, 2):
        correlation = (one * other).mean() / (one.std() * other.std())
        pairs = math.comb(len(recorded.noise), 2)
        assert abs(correlation) < stats.norm.ppf(1 - ALARM / 2 / pairs) / math.sqrt(one.size)
    rate, n_windows = recorded.event.sampling_rate, recorded.fitted._budget.n_windows
    low, high = stats.binom.ppf([ALARM / 2, 1 - ALARM / 2], 2 * n_windows, rate**2)
    for one, other in itertools.pairwise(recorded.lots):
        assert low <= len(one & other) <= high


def test_gradients_are_sums_over_the_public_size_of_a_lot(recorded):
    lot = recorded.event.sampling_rate * recorded.fitted._budget.n_windows
    assert lot == pytest.approx(60)
    assert len({len(each) for each in recorded.lots}) > 1
    for gradients, sent in zip(recorded.gradients, recorded.sent, strict=True):
        for gradient, values in zip(gradients, sent.values(), strict=True):
            np.testing.assert_allclose(gradient, values / lot, rtol=1e-6, atol=1e-12)


# Windows and order


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("stride", [1, 3])
def test_no_step_is_both_trained_on_and_validated_on(stride, gap):
    learner = SimpleNamespace(width=12, horizon=6, stride=stride, validation=0.25)
    inside = np.ones(400, bool)
    inside[390:] = False
    if gap:
        inside[100:130] = False
    steps = choose_steps(learner, 400, None, inside)
    reach = np.arange(18)
    trained = set((steps.starts[:, None] + reach).ravel().tolist())
    validated = set((steps.held_out[:, None] + reach).ravel().tolist())
    assert not trained & validated
    assert inside[sorted(trained | validated)].all()
    # No more is left out than the windows that share steps with both.
    assert min(validated) - max(trained) <= stride
    usable = 390 - 17 - (30 + 17 if gap else 0)
    assert len(steps.starts) == math.ceil(round(usable * 0.75) / stride)
    assert len(steps.held_out) == math.ceil((usable - round(usable * 0.75) - 17) / stride)


def test_a_validation_part_that_shares_steps_only_is_refused():
    learner = SimpleNamespace(width=12, horizon=6, stride=1, validation=0.1)
    with pytest.raises(ParameterError, match="'validation'"):
        choose_steps(learner, 100, 60, None)


def test_every_epoch_has_every_window_once_in_an_order_of_its_own(monkeypatch):
    series = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 120))).float()
    data = WindowData(series, None, [], 12, 0, 12, 6, 1)
    starts, batches = np.arange(0, 100, 2), []
    losses = training.node_losses

    def recorded(model, data, batch, loss_space):
        batches.append(batch.numpy().copy())
        return losses(model, data, batch, loss_space)

    monkeypatch.setattr(training, "node_losses", recorded)
    orders = []
    for random_state in (0, 0, 1):
        batches.clear()
        options = Options(3, 20, 0.01, "standardised", None, None, random_state, False)
        model = HistogramLSTM(1, 1, width=12, horizon=6, n_bins=0, random_state=3)
        train(model, data, starts, np.array([], np.int64), options)
        assert [len(each) for each in batches] == [20, 20, 10] * 3
        orders.append(np.concatenate(batches).reshape(3, -1))
    for order in orders:
        np.testing.assert_array_equal(np.sort(order, axis=1), [starts] * 3)
        for one, other in itertools.combinations([starts, *order], 2):
            assert (one != other).sum() > 25
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any(axis=1).all()
