"""The learner: forecasts, causality through neighbours, gate, checkpoints after a kill, privacy."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import dpcore
from dpcore.data import traffic
from dpcore.errors import DataError, ParameterError, RepeatedReleaseError
from dpcore.learners import PrivateForecaster
from dpcore.learners.forecast import bucket_counts, last_value
from dpcore.learners.forecast.exchange import OWN, UNIFORM
from dpcore.series import Bins, neighbours_from_adjacency

SPEED = Bins.relative(80.0, 10)
QUICK = {"n_epochs": 1, "stride": 6, "validation": 0.2, "learning_rate": 0.01}


pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def road():
    return traffic(n_nodes=5, days=6, seed=1, missing=0.01)


@pytest.fixture(scope="module")
def speed(road):
    return road.series[:, :, 0]


@pytest.fixture(scope="module")
def lists(road):
    return neighbours_from_adjacency(road.adjacency, 2)


N_TRAIN = 1300


def forecaster(**options):
    return PrivateForecaster(SPEED, **{"noise": dpcore.Noise.insecure(4), **QUICK, **options})


def test_forecasts_beat_the_last_value_and_are_in_raw_units(lists):
    speed, n_train = traffic(n_nodes=5, days=12, seed=1, missing=0.01).series[:, :, 0], 2592
    options = {"n_epochs": 5, "stride": 2, "inputs": ("neighbours", "clock")}
    fitted = forecaster(**options).fit(speed, lists, n_train=n_train)
    times = np.arange(n_train + 11, len(speed) - 12)
    predicted = fitted.predict()
    assert predicted.shape == (len(times), 5, 12)
    view = np.lib.stride_tricks.sliding_window_view(speed, 12, axis=0)
    truth = view[times + 1]
    ours = np.nanmean(np.square(predicted - truth))
    simple = np.nanmean(np.square(last_value(speed, times) - truth))
    assert ours < 0.9 * simple
    deviation = np.nanstd(speed[:n_train])
    known = ~np.isnan(truth)
    by_step = np.nansum(np.square(predicted - truth), axis=0) / known.sum(axis=0) / deviation**2
    np.testing.assert_allclose(fitted.errors()[:, 0], by_step, rtol=1e-3)
    assert fitted.score() == pytest.approx(-by_step.mean(), rel=1e-3)


@pytest.mark.parametrize("inputs", [("neighbours",), ("neighbours", "own", "clock")])
def test_the_future_does_not_change_a_forecast(speed, lists, inputs):
    t = 1407  # in the middle of a bucket
    fitted = forecaster(model="exchange", inputs=inputs, scale=(50.0, 15.0))
    before = fitted.fit(speed, lists, n_train=N_TRAIN).predict([t])
    changed = speed.copy()
    changed[t + 1 :] = 80 - np.nan_to_num(changed[t + 1 :])
    other = forecaster(model="exchange", inputs=inputs, scale=(50.0, 15.0))
    after = other.fit(changed, lists, n_train=N_TRAIN).predict([t])
    assert np.array_equal(before, after)
    # A mutant that the test must see: a neighbour's reading in a bucket that is complete by t.
    changed = speed.copy()
    changed[1392:1404, lists[0]] = 2.0
    other = forecaster(model="exchange", inputs=inputs, scale=(50.0, 15.0))
    after = other.fit(changed, lists, n_train=N_TRAIN).predict([t])
    assert not np.array_equal(before[:, 0], after[:, 0])


def test_steps_to_train_on_may_be_anywhere(speed):
    first = forecaster(model="local").fit(speed, n_train=N_TRAIN)
    same = forecaster(model="local").fit(speed, train_steps=np.arange(len(speed)) < N_TRAIN)
    assert np.array_equal(first.predict([1400]), same.predict([1400]))
    inside = np.ones(len(speed), bool)
    inside[600:700] = False
    fold = forecaster(model="local", scale=(50.0, 15.0))
    before = fold.fit(speed, train_steps=inside).predict([650])
    starts = np.concatenate([fold._train_starts, fold._held_out])
    for start in starts:
        assert inside[start : start + 24].all()
    assert starts.min() == 0
    assert starts.max() > 700
    # What lies in the fold does not enter, but for the window that is asked for.
    changed = speed.copy()
    changed[600:630] = changed[660:700] = 10.0
    after = forecaster(model="local", scale=(50.0, 15.0)).fit(changed, train_steps=inside)
    assert np.array_equal(before, after.predict([650]))
    for wrong in (inside[:-1], inside.astype(int), np.zeros_like(inside)):
        with pytest.raises(ParameterError):
            forecaster(model="local").fit(speed, train_steps=wrong)
    with pytest.raises(ParameterError):
        forecaster(model="local").fit(speed, train_steps=inside, n_train=N_TRAIN)


def test_nodes_choose_for_themselves_and_errors_follow_the_choice(speed, lists):
    fitted = forecaster(model="gate").fit(speed, lists, n_train=N_TRAIN)
    local, other = (fitted.errors(model=name) for name in ("local", "exchange"))
    expected = fitted.validation_errors_["exchange"] < fitted.validation_errors_["local"]
    assert np.array_equal(fitted.gate_, expected)
    chosen = fitted.errors()
    for node, exchange in enumerate(fitted.gate_):
        assert np.array_equal(chosen[node], (other if exchange else local)[node])
    fitted.gate_ = np.array([True, False, True, False, True])
    mixed = fitted.predict([1400])
    fitted.gate_ = np.ones(5, bool)
    exchange = fitted.predict([1400])
    fitted.gate_ = np.zeros(5, bool)
    local = fitted.predict([1400])
    assert np.array_equal(mixed[:, ::2], exchange[:, ::2])
    assert np.array_equal(mixed[:, 1::2], local[:, 1::2])
    assert not np.array_equal(exchange, local)


def test_privacy_states_what_is_sent(speed, lists):
    fitted = forecaster(epsilon=0.5, noise=None).fit(speed, lists, n_train=N_TRAIN)
    assert 0.499 < fitted.privacy_.epsilon <= 0.5
    assert fitted.privacy_.delta == 0
    assert (fitted.privacy_.unit, fitted.privacy_.adjacency) == ("reading", "replace")
    assert fitted.privacy_.private
    assert any("own readings" in text for text in fitted.privacy_.not_covered)
    assert not forecaster(epsilon=0.5).fit(speed, lists, n_train=N_TRAIN).privacy_.private
    free = forecaster(epsilon=None).fit(speed, lists, n_train=N_TRAIN).privacy_
    assert free.epsilon == np.inf
    assert not free.private
    local = forecaster(model="local").fit(speed, lists, n_train=N_TRAIN)
    assert local.privacy_.epsilon == 0
    assert local.sent_ is None


def test_two_channels_share_epsilon(road, lists):
    bins = [SPEED, Bins.relative(150.0, 10)]
    fitted = PrivateForecaster(bins, model="exchange", **QUICK)
    fitted.fit(road.series, lists, n_train=N_TRAIN)
    assert fitted.predict([1400]).shape == (1, 5, 2, 12)
    assert len(fitted.privacy_.events) == 2
    assert fitted.privacy_.epsilon == pytest.approx(0.5)
    assert fitted.privacy_.epsilon <= 0.5


def test_a_second_fit_sends_what_was_drawn_and_new_data_is_drawn_anew(speed, lists):
    fitted = forecaster(noise=None).fit(speed, lists, n_train=N_TRAIN)
    counts = fitted.sent_.counts
    assert np.array_equal(fitted.fit(speed, lists, n_train=N_TRAIN).sent_.counts, counts)
    fitted.set_params(model="exchange", stride=12)
    assert np.array_equal(fitted.fit(speed, lists, n_train=1200).sent_.counts, counts)
    other = np.where(np.isnan(speed), np.nan, 40.0)
    assert not np.array_equal(fitted.fit(other, lists, n_train=N_TRAIN).sent_.counts, counts)


def test_later_readings_are_released_bucket_by_bucket(speed, lists):
    source = dpcore.Noise.insecure(9).stream("one road")
    whole = forecaster(noise=source, scale=(50.0, 15.0)).fit(speed, lists, n_train=N_TRAIN)
    grown = forecaster(noise=source, scale=(50.0, 15.0)).fit(speed[:1500], lists, n_train=N_TRAIN)
    assert len(grown.sent_.counts) == 125
    for begin in range(1500, len(speed), 7):
        grown.extend(speed[begin : begin + 7])
    assert np.array_equal(grown.sent_.counts, whole.sent_.counts)
    times = [1400, 1600, len(speed) - 1]
    np.testing.assert_array_equal(grown.predict(times), whole.predict(times))
    assert grown.privacy_.epsilon <= 0.5
    fresh = forecaster(noise=None).fit(speed[:1500], lists, n_train=N_TRAIN).extend(speed[1500:])
    counts = fresh.sent_.counts
    assert np.array_equal(fresh.fit(speed, lists, n_train=N_TRAIN).sent_.counts, counts)


def test_what_was_set_since_does_not_change_later_releases(speed, lists):
    options = {"noise": None, "model": "exchange", "scale": (50.0, 15.0)}
    fitted = forecaster(epsilon=0.1, **options).fit(speed[:1500], lists, n_train=N_TRAIN)
    fitted.set_params(epsilon=10.0, bins=Bins((0, 1, 2)), bucket=5, period="other", train="dp-sgd")
    fitted.extend(speed[1500:])
    assert fitted.sent_.counts.shape == (len(speed) // 12, 5, 1, 10)
    assert len(fitted.privacy_.events) == 1
    assert 0.099 < fitted.privacy_.epsilon <= 0.1
    assert fitted.training_privacy_ is None
    # The scale is 20: noise of epsilon 10 would be within 5 throughout.
    late = (fitted.sent_.counts - fitted._exact)[125:]
    assert np.abs(late).max() > 20
    with pytest.raises(ParameterError):
        fitted.extend(speed[:, :2])
    assert len(fitted._raw) == len(speed)


def test_a_channel_that_comes_later_is_paid_for(road, lists):
    late = road.series.copy()
    late[:1500, :, 1] = np.nan
    options = {"model": "exchange", "scale": (50.0, 15.0), "epsilon": 1.0, **QUICK}
    fitted = PrivateForecaster([SPEED, SPEED], **options).fit(late[:1500], lists, n_train=N_TRAIN)
    assert 0.49 < fitted.privacy_.epsilon <= 0.5
    fitted.extend(late[1500:])
    assert len(fitted.privacy_.events) == 2
    assert 0.99 < fitted.privacy_.epsilon <= 1.0


def test_a_grown_series_is_not_drawn_again(speed, lists):
    fitted = forecaster(noise=None, model="exchange").fit(speed[:1500], lists, n_train=N_TRAIN)
    first = fitted.sent_.counts
    grown = fitted.fit(speed[:1600], lists, n_train=N_TRAIN).sent_.counts
    assert np.array_equal(grown[:125], first)
    assert fitted.privacy_.epsilon <= 0.5
    # Nodes are known by name, wherever they stand, and only what differs is drawn.
    changed = speed[:1600, ::-1].copy()
    changed[:12, 0] = 3.0
    named = {"n_train": N_TRAIN, "node_ids": [4, 3, 2, 1, 0]}
    other = fitted.fit(changed, lists, **named).sent_.counts[:, ::-1]
    assert np.array_equal(other[1:], grown[1:])
    assert np.array_equal(other[0, :-1], grown[0, :-1])
    assert not np.array_equal(other[0, -1], grown[0, -1])
    # What was drawn before is still known.
    assert np.array_equal(fitted.fit(speed[:1500], lists, n_train=N_TRAIN).sent_.counts, first)
    assert any("clones" in text for text in fitted.privacy_.not_covered)


def test_a_ledger_is_charged_once_however_a_series_grows(speed, lists, tmp_path):
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=0.5) as ledger:
        fitted = forecaster(noise=None).fit(speed[:1500], lists, n_train=N_TRAIN)
        fitted.extend(speed[1500:1600]).fit(speed, lists, n_train=N_TRAIN)
        assert ledger.spent[0] == pytest.approx(0.5)
        with pytest.raises(RepeatedReleaseError):
            forecaster(noise=None).fit(speed, lists, n_train=N_TRAIN)


def test_noise_that_was_insecure_is_not_made_secure_by_more(speed, lists):
    fitted = forecaster(model="exchange").fit(speed[:1500], lists, n_train=N_TRAIN)
    fitted.set_params(noise=None).fit(speed[:1600], lists, n_train=N_TRAIN)
    assert not fitted.privacy_.private
    changed = np.where(np.isnan(speed), np.nan, 40.0)
    changed[:, 0] = 20.0
    assert fitted.fit(changed, lists, n_train=N_TRAIN).privacy_.private


def test_a_node_without_neighbours_uses_its_own_histogram_and_says_so(speed):
    fitted = forecaster(model="exchange").fit(speed, [[1], [0], [], [], []], n_train=N_TRAIN)
    known = bucket_counts(speed[:, 2:, None], [SPEED], 12).sum(axis=3)[:, :, 0] > 0
    assert known.mean() > 0.9
    assert np.array_equal(fitted.sources_[1:, 2:, 0], np.where(known, OWN, UNIFORM))
    assert not (fitted.sources_[1:, :2, 0] == OWN).any()


def test_options_reach_the_training(speed, lists):
    plain = forecaster(model="local").fit(speed, n_train=N_TRAIN)
    for options in (
        {"clip_norm": 0.01},
        {"loss_space": "instance"},
        {"input_norm": "none"},
        {"output_norm": "none"},
        {"random_state": 1},
        {"inputs": ("own",)},
        {"hidden": 32},
    ):
        other = forecaster(model="local", **options).fit(speed, n_train=N_TRAIN)
        assert not np.array_equal(plain.predict([1400]), other.predict([1400])), options
    same = forecaster(model="local", kernel="torch").fit(speed, n_train=N_TRAIN)
    np.testing.assert_allclose(plain.predict([1400]), same.predict([1400]), atol=0.05)


def test_gaps_are_bridged_and_not_scored(speed):
    gappy = speed.copy()
    gappy[1340:1420, 0] = np.nan
    fitted = forecaster(model="local").fit(gappy, n_train=N_TRAIN)
    assert np.isfinite(fitted.predict()).all()
    assert np.isnan(fitted.errors([1370])[0]).all()
    assert np.isfinite(fitted.errors([1370])[1]).all()


def test_progress_is_printed_only_where_asked(speed, capsys):
    forecaster(model="local", n_epochs=2).fit(speed, n_train=N_TRAIN)
    assert capsys.readouterr().err == ""
    forecaster(model="local", n_epochs=2, progress=True).fit(speed, n_train=N_TRAIN)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("local [#.] loss ")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "best"},
        {"inputs": ("moon",)},
        {"validation": 0.0},
        {"validation": 1.0},
        {"bucket": 0},
        {"loss_space": "raw"},
        {"epsilon": -1.0},
        {"bins": [SPEED, SPEED]},
    ],
)
def test_wrong_options_are_refused(speed, options):
    with pytest.raises(ParameterError):
        PrivateForecaster(**{"bins": SPEED, **QUICK, **options}).fit(speed, n_train=N_TRAIN)


def test_wrong_data_are_refused_without_their_values(speed):
    for series, error in (
        (speed[:, 0], ParameterError),
        (np.full_like(speed, np.inf), DataError),
        (np.full_like(speed, np.nan), DataError),
    ):
        with pytest.raises(error) as caught:
            forecaster().fit(series, n_train=N_TRAIN)
        assert "inf" not in str(caught.value)
    fitted = forecaster(model="local").fit(speed, n_train=N_TRAIN)
    for times in ([], [3], [len(speed)]):
        with pytest.raises(ParameterError):
            fitted.predict(times)
    with pytest.raises(ParameterError):
        forecaster().fit(speed, n_train=20)
    with pytest.raises(ParameterError):
        forecaster().fit(speed, node_ids=["a"] * 5)


# Checkpoints

KILLED = {"n_epochs": 4, "stride": 2, "patience": 3}
PROGRAM = """
import os, signal, sys
import torch
from dpcore.data import traffic
from dpcore.learners import PrivateForecaster
from dpcore.series import Bins
torch.set_num_threads(1)
class Killing:
    def write(self, text):
        sys.__stderr__.write(text)
        if text.startswith("exchange [##"):  # the second epoch
            os.kill(os.getpid(), signal.SIGKILL)
    def flush(self):
        sys.__stderr__.flush()
sys.stderr = Killing()
speed = traffic(n_nodes=5, days=6, seed=1, missing=0.01).series[:, :, 0]
fitted = PrivateForecaster(
    Bins.relative(80.0, 10), checkpoint=sys.argv[1], progress=True, **KILLED
).fit(speed, [[1], [2], [3], [4], [0]], n_train=1300)
"""


def test_a_killed_fit_goes_on_as_if_it_had_not_stopped(tmp_path, speed, capsys):
    path = tmp_path / "killed.pt"
    program = PROGRAM.replace("**KILLED", f"**{KILLED}")
    done = subprocess.run(
        [sys.executable, "-c", program, path], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = torch.load(path, weights_only=True)
    # The same release without the training: what an undisturbed run would have come to.
    torch.save({**left, "models": {}}, tmp_path / "straight.pt")
    found, printed = [], []
    for name in ("killed.pt", "straight.pt"):
        fitted = PrivateForecaster(SPEED, checkpoint=tmp_path / name, progress=True, **KILLED)
        fitted.fit(speed, [[1], [2], [3], [4], [0]], n_train=N_TRAIN)
        found.append(fitted)
        printed.append(capsys.readouterr().err.count("loss"))
    resumed, straight = found
    assert 0 < printed[0] < printed[1]
    assert np.array_equal(resumed.predict(), straight.predict())
    assert np.array_equal(resumed.gate_, straight.gate_)
    assert np.array_equal(resumed.sent_.counts, left["sent"]["counts"].numpy())
    assert 0.499 < resumed.privacy_.epsilon <= 0.5
    assert resumed.privacy_.private


def test_a_checkpoint_of_other_data_is_refused_and_a_file_is_replaced_as_a_whole(
    tmp_path, speed, lists
):
    path = tmp_path / "road.pt"
    forecaster(checkpoint=path).fit(speed, lists, n_train=N_TRAIN)
    assert [each.name for each in tmp_path.iterdir()] == ["road.pt"]
    with pytest.raises(DataError):
        forecaster(checkpoint=path).fit(speed + 1, lists, n_train=N_TRAIN)
    with pytest.raises(DataError):
        forecaster(checkpoint=path, hidden=32).fit(speed, lists, n_train=N_TRAIN)
    again = forecaster(checkpoint=path).fit(speed, lists, n_train=N_TRAIN)
    assert again.histories_["local"].shape == (1, 5)
