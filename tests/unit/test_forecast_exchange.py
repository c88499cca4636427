"""Histograms of buckets: counting, noise, causality, averaging and fallbacks; baselines; data."""

import pickle

import h5py
import numpy as np
import pytest

import dpcore
from dpcore.data import load_sensors, traffic
from dpcore.errors import DataError, ParameterError, RepeatedReleaseError
from dpcore.learners.forecast import (
    ReleasedCounts,
    average_day,
    bucket_counts,
    last_value,
    nearest_window,
    neighbour_histograms,
    release_counts,
)
from dpcore.learners.forecast.exchange import (
    AGED,
    FRESH,
    OWN,
    PARTIAL,
    UNIFORM,
    bucket_index,
    own_histograms,
)
from dpcore.series import Bins

SPEED = Bins.relative(80.0, 10)


def series(n_buckets=20, n_nodes=4, n_channels=1, seed=0):
    return np.random.default_rng(seed).uniform(0, 80, (12 * n_buckets, n_nodes, n_channels))


def neighbours(*lists):
    return [np.array(each, np.int64) for each in lists]


RING = neighbours([1, 3], [0, 2], [1, 3], [0, 2])


# Counts


def test_a_bucket_counts_its_readings_and_a_replaced_one_moves_two_or_none():
    x = series(6)
    counts = bucket_counts(x, [SPEED], 12)
    assert counts.shape == (6, 4, 1, 10)
    assert (counts.sum(axis=3) == 12).all()
    random = np.random.default_rng(1)
    seen = set()
    for _ in range(40):
        other = x.copy()
        t, node = random.integers(72), random.integers(4)
        other[t, node] = random.uniform(-5, 90)
        moved = np.abs(bucket_counts(other, [SPEED], 12) - counts)
        assert moved.sum() == moved[t // 12, node].sum()
        seen.add(int(moved.sum()))
    assert seen == {0, 2}


def test_incomplete_buckets_are_left_out_and_missing_readings_not_counted():
    x = series(3)[:34]
    x[0:12, 0] = np.nan
    x[12, 1] = np.nan
    counts = bucket_counts(x, [SPEED], 12)
    assert counts.sum(axis=3)[:, :, 0].tolist() == [[0, 12, 12, 12], [12, 11, 12, 12]]


def test_counts_equal_those_of_a_plain_loop():
    x = series(3, 2, 2)
    bins = [SPEED, Bins.relative(60.0, 10)]
    counts = bucket_counts(x, bins, 12)
    for m in range(3):
        for node in range(2):
            for f in range(2):
                plain = np.bincount(bins[f].label(x[12 * m : 12 * m + 12, node, f]), minlength=10)
                assert counts[m, node, f].tolist() == plain.tolist()
    with pytest.raises(ParameterError):
        bucket_counts(x, [SPEED], 12)
    with pytest.raises(ParameterError):
        bucket_counts(x, [SPEED, Bins.relative(60.0, 4)], 12)


# Release


def test_hardly_any_noise_gives_exact_proportions():
    counts = bucket_counts(series(), [SPEED], 12)
    sent = release_counts(counts, [SPEED], 12, epsilon=1e9)
    found, sources = neighbour_histograms(sent, RING, counts)
    exact = counts / 12
    np.testing.assert_allclose(found[1:, 0], (exact[:, 1] + exact[:, 3]) / 2, atol=1e-8)
    assert (sources[1:] == FRESH).all()
    own = own_histograms(counts)
    np.testing.assert_allclose(own[1:], exact, atol=1e-12)


@pytest.mark.parametrize("n_channels", [1, 2])
def test_noise_has_the_scale_of_all_channels_and_costs_epsilon_in_all(n_channels):
    x = series(400, 4, n_channels)
    counts = bucket_counts(x, [SPEED] * n_channels, 12)
    sent = release_counts(counts, [SPEED] * n_channels, 12, epsilon=0.5)
    noise = (sent.counts - counts).ravel()
    scale = 2 * n_channels / 0.5
    # Discrete Laplace: standard deviation close to sqrt(2) scale; kurtosis 6.
    expected, n = np.sqrt(2) * scale, noise.size
    assert abs(noise.mean()) < 5 * expected / np.sqrt(n)
    assert abs(noise.var() / expected**2 - 1) < 5 * np.sqrt(5 / n) + 0.02
    assert len(sent.events) == n_channels
    assert 0.5 * (1 - 1e-9) <= sum(event.epsilon for event in sent.events) <= 0.5
    assert {event.adjacency for event in sent.events} == {"replace"}
    assert sent.private


def test_later_buckets_have_noise_of_their_own_and_repeated_ones_the_same_on_a_pinned_stream():
    counts = np.zeros((6, 2, 1, 10), np.int64)
    counts[..., 0] = 12
    source = dpcore.Noise.insecure(3).stream("road")
    whole = release_counts(counts, [SPEED], 12, epsilon=0.5, noise=source)
    early = release_counts(counts[:4], [SPEED], 12, epsilon=0.5, noise=source)
    late = release_counts(counts[4:], [SPEED], 12, epsilon=0.5, noise=source, first=4)
    joined = early.followed_by(late)
    assert np.array_equal(joined.counts, whole.counts)
    assert joined.events == whole.events
    assert not np.array_equal(early.counts[:2], late.counts)
    assert not np.array_equal(whole.counts[:, 0], whole.counts[:, 1])
    assert not whole.private


def test_parts_of_a_series_cost_what_the_dearest_does_in_every_channel():
    bins, counts = [Bins((0, 1, 2))] * 2, np.full((2, 1, 2, 2), 3)
    first, second = counts.copy(), counts.copy()
    first[:, :, 1] = second[:, :, 0] = 0
    cheap = release_counts(first, bins, 12, epsilon=0.2)
    dear = release_counts(second, bins, 12, epsilon=1.0)
    both = release_counts(counts, bins, 12, epsilon=0.6)
    for parts, found in (
        ((cheap, dear), [0.1, 0.5]),
        ((dear, cheap), [0.1, 0.5]),
        ((both, dear), [0.3, 0.5]),
        ((dear, both), [0.3, 0.5]),
    ):
        joined = parts[0].followed_by(parts[1])
        assert [event.epsilon for event in joined.events] == pytest.approx(found)
        assert joined.followed_by(both).counts.shape == (6, 1, 2, 2)
    wrong = ReleasedCounts(both.counts, both.sizes, both.events[:1], True)
    with pytest.raises(ParameterError):
        both.followed_by(wrong)


def test_a_ledger_is_charged_once_and_refuses_a_second_draw(tmp_path):
    counts = bucket_counts(series(3, 3), [SPEED], 12)
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=0.5) as ledger:
        release_counts(counts, [SPEED], 12, epsilon=0.5)
        assert abs(ledger.spent[0] - 0.5) < 1e-9
        with pytest.raises((RepeatedReleaseError, dpcore.BudgetExceededError)):
            release_counts(counts, [SPEED], 12, epsilon=0.5)
        release_counts(counts, [SPEED], 12, epsilon=0.5, first=3)
        release_counts(counts, [SPEED], 12, epsilon=0.5, first=6, period="next day")
        assert abs(ledger.spent[0] - 0.5) < 1e-9


def test_without_noise_nothing_is_called_private():
    sent = release_counts(bucket_counts(series(), [SPEED], 12), [SPEED], 12, epsilon=None)
    assert not sent.private
    assert sent.events == ()


# Averages


def test_counts_are_averaged_before_they_are_clipped():
    counts = np.array([[[[10, 2]], [[-6, 18]], [[6, 6]]]])
    sent = ReleasedCounts(counts, np.full((1, 3, 1), 12), (), True)
    lists = neighbours([1, 2], [0], [0, 1])
    exact = np.full((1, 3, 1, 2), 6)
    found, _ = neighbour_histograms(sent, lists, exact)
    assert found[1, 0, 0].tolist() == [0, 1]  # -6 + 6 and 18 + 6
    assert np.allclose(found[1, 2, 0], [4 / 24, 20 / 24])
    published, _ = neighbour_histograms(sent, lists, exact, average="proportions")
    assert published[1, 0, 0].tolist() == [0.25, 0.75]  # (0, 1) and (1/2, 1/2)


def test_nothing_left_after_clipping_is_uniform():
    sent = ReleasedCounts(np.full((1, 2, 1, 4), -3), np.full((1, 2, 1), 12), (), True)
    found, _ = neighbour_histograms(sent, neighbours([1], [0]), np.full((1, 2, 1, 4), 3))
    assert (found == 0.25).all()


def test_a_moving_average_lowers_noise_and_follows_the_level():
    exact = np.zeros((3000, 2, 1, 4), np.int64)
    exact[..., 1] = 12
    sent = release_counts(exact, [Bins((0, 1, 2, 3, 4))], 12, epsilon=0.5)
    lists = neighbours([1], [0])
    rough, _ = neighbour_histograms(sent, lists, exact)
    smooth, _ = neighbour_histograms(sent, lists, exact, smoothing=0.1)
    assert smooth[100:, 0, 0, 1].mean() > rough[100:, 0, 0, 1].mean() + 0.1
    assert smooth[100:, 0, 0, 1].std() < rough[100:, 0, 0, 1].std() / 2
    for weight in (0.0, 1.5):
        with pytest.raises(ParameterError):
            neighbour_histograms(sent, lists, exact, smoothing=weight)


# Fallbacks


def test_fallbacks_come_in_their_order_and_are_flagged():
    x = series(8, 4)
    x[24:36, 1] = np.nan  # bucket 2 of node 1
    x[:, 3] = np.nan  # node 3 never
    x[:12, 2] = np.nan
    counts = bucket_counts(x, [SPEED], 12)
    sent = release_counts(counts, [SPEED], 12, epsilon=1e9)
    lists = neighbours([1, 3], [0], [3], [3, 1][:0])
    found, sources = neighbour_histograms(sent, lists, counts, max_age=24)
    assert sources[0, :, 0].tolist() == [UNIFORM] * 4
    assert sources[1:, 0, 0].tolist() == [PARTIAL] * 8  # node 3 is left out
    np.testing.assert_allclose(found[3, 0, 0], counts[1, 1, 0] / 12, atol=1e-8)  # aged by one
    assert sources[1:, 1, 0].tolist() == [FRESH] * 8
    assert sources[1:, 2, 0].tolist() == [UNIFORM] + [OWN] * 7  # no neighbour is left
    np.testing.assert_allclose(found[2:, 2, 0], counts[1:, 2, 0] / 12)
    assert (sources[1:, 3, 0] == UNIFORM).all()
    assert (found[:, 3] == 0.1).all()


def test_old_buckets_are_used_up_to_an_age():
    x = series(10, 2)
    x[24:] = np.where(np.arange(2) == 1, np.nan, x[24:, :, 0])[..., None]  # node 1 ends
    counts = bucket_counts(x, [SPEED], 12)
    sent = release_counts(counts, [SPEED], 12, epsilon=None)
    found, sources = neighbour_histograms(sent, neighbours([1], [0]), counts, max_age=3)
    assert sources[1:, 0, 0].tolist() == [FRESH] * 2 + [AGED] * 3 + [OWN] * 5
    for m in (2, 3, 4):
        np.testing.assert_allclose(found[m + 1, 0, 0], counts[1, 1, 0] / 12)


def test_the_bucket_of_a_time_has_ended_by_then():
    times = np.arange(100)
    last = bucket_index(times, 12)
    assert ((last + 1) * 12 - 1 <= times).all()
    assert ((last + 2) * 12 - 1 > times).all()


# Baselines


def test_the_nearest_window_of_a_periodic_series_is_exact():
    day = np.random.default_rng(0).normal(size=(288, 3))
    x = np.tile(day, (4, 1))
    times = np.arange(600, 1100)
    found = nearest_window(x, 600, times, block=128)
    ahead = np.lib.stride_tricks.sliding_window_view(x, 12, axis=0)[times + 1]
    assert np.square(found - ahead).mean() == 0
    assert np.square(average_day(x, 576, times) - ahead).mean() < 1e-24


def test_the_nearest_window_is_the_one_of_a_plain_search():
    x = np.random.default_rng(1).normal(size=(300, 2))
    times = np.arange(250, 280)
    found = nearest_window(x, 200, times, width=4, horizon=3, block=32)
    for row, t in zip(found, times, strict=True):
        window = x[t - 3 : t + 1]
        distances = [np.square(x[s : s + 4] - window).sum() for s in range(200 - 4 - 3 + 1)]
        s = int(np.argmin(distances))
        assert np.array_equal(row, x[s + 4 : s + 7].T)
    # From the steps on both sides of a fold, none of whose windows may be found.
    steps = np.ones(300, bool)
    steps[100:200] = False
    times = np.arange(110, 190)
    found = nearest_window(x, steps, times, width=4, horizon=3, block=32)
    known = [s for s in range(300 - 6) if steps[s : s + 7].all()]
    for row, t in zip(found, times, strict=True):
        distances = [np.square(x[s : s + 4] - x[t - 3 : t + 1]).sum() for s in known]
        s = known[int(np.argmin(distances))]
        assert np.array_equal(row, x[s + 4 : s + 7].T)


def test_last_value_and_average_day_by_hand():
    x = np.array([[1.0], [5.0], [3.0], [np.nan], [9.0], [9.0]])
    assert last_value(x, [2], horizon=2).tolist() == [[[3, 3]]]
    assert average_day(x, 4, [4], horizon=2, steps_per_day=2).tolist() == [[[5, 2]]]


@pytest.mark.parametrize(
    "change", [{"n_train": 5}, {"n_train": 999}, {"times": [3]}, {"times": [300]}, {"times": []}]
)
def test_windows_that_do_not_exist_are_refused(change):
    options = {"n_train": 200, "times": [250], **change}
    with pytest.raises(ParameterError):
        nearest_window(np.zeros((300, 2)), **options)
    with pytest.raises(DataError):
        nearest_window(np.full((300, 2), np.nan), 200, [250])


# Data


def test_made_up_traffic_has_rush_hours_neighbours_that_agree_and_gaps():
    road = traffic(n_nodes=12, days=14, seed=2, missing=0.05)
    assert road.series.shape == (14 * 288, 12, 2)
    speed, density = road.series[..., 0], road.series[..., 1]
    hours = np.arange(len(speed)) % 288 // 12
    by_hour = [np.nanmean(speed[hours == h]) for h in range(24)]
    assert min(by_hour[8], by_hour[17]) < by_hour[3] - 3
    assert np.nanmean(density[hours == 8]) > np.nanmean(density[hours == 3])
    assert 0.02 < np.isnan(speed).mean() < 0.1
    assert np.array_equal(np.isnan(speed), np.isnan(density))
    again = traffic(n_nodes=12, days=14, seed=2, missing=0.05)
    assert np.array_equal(again.series, road.series, equal_nan=True)
    assert not np.array_equal(traffic(12, 14, 3).series, road.series, equal_nan=True)
    assert np.array_equal(road.adjacency, road.adjacency.T)
    assert not road.adjacency.diagonal().any()
    left = np.nan_to_num(speed - np.nanmean(speed, axis=0))
    day = left.reshape(14, 288, 12)
    rest = (day - day.mean(axis=0)).reshape(-1, 12)
    correlation = np.corrcoef(rest.T)
    near = np.mean([correlation[i, (i + 1) % 12] for i in range(12)])
    far = np.mean([correlation[i, (i + 6) % 12] for i in range(12)])
    assert near > far + 0.05


SPEEDS = np.array([[61.5, 0.0, 59.0], [60.0, 62.5, 0.0]])
GRAPH = np.array([[1, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 1]])


def write_series(folder, kind):
    path = folder / f"speeds.{kind}"
    if kind == "npz":
        np.savez(path, speed_x10=(SPEEDS * 10).astype(np.int16), adj=GRAPH)
    elif kind == "npy":
        np.save(path, SPEEDS)
    elif kind == "csv":
        rows = [f"2012-03-01 00:0{5 * i}," + ",".join(map(str, r)) for i, r in enumerate(SPEEDS)]
        path.write_text("\n".join([",a,b,c", *rows]) + "\n")
    else:
        with h5py.File(path, "w") as file:
            file["df/axis0"] = [1, 2, 3]
            file["df/block0_values"] = SPEEDS
    return path


def write_graph(folder, kind):
    path = folder / f"adjacency.{kind}"
    if kind == "npz":
        np.savez(path, adj_mx=GRAPH)
    elif kind == "npy":
        np.save(path, GRAPH)
    elif kind == "csv":
        np.savetxt(path, GRAPH, delimiter=",")
    else:
        path.write_bytes(pickle.dumps([["a", "b", "c"], {"a": 0}, GRAPH], protocol=2))
    return path


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "h5"])
@pytest.mark.parametrize("graph", ["npz", "npy", "csv", "pkl"])
def test_the_usual_files_are_read(tmp_path, kind, graph):
    path = write_series(tmp_path, kind)
    data = load_sensors(path, write_graph(tmp_path, graph))
    expected = np.where(SPEEDS == 0, np.nan, SPEEDS)
    np.testing.assert_allclose(data.series[:, :, 0], expected)
    np.testing.assert_allclose(data.adjacency, GRAPH)
    raw = load_sensors(path, zero_is_missing=False)
    np.testing.assert_allclose(raw.series[:, :, 0], SPEEDS)
    assert raw.adjacency.any() == (kind == "npz")


def test_a_csv_without_times_is_read_whole(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("a,b\n61.5,60\n0,59\n")
    assert load_sensors(path).series[:, :, 0].tolist()[0] == [61.5, 60]


class Evil:
    def __reduce__(self):
        return (print, ("a pickle ran code",))


def test_files_that_could_run_code_or_do_not_fit_are_refused(tmp_path, capsys):
    series_path = write_series(tmp_path, "npy")
    evil = tmp_path / "evil.pkl"
    evil.write_bytes(pickle.dumps([Evil(), GRAPH]))
    with pytest.raises(DataError):
        load_sensors(series_path, evil)
    assert capsys.readouterr().out == ""
    np.save(tmp_path / "small.npy", GRAPH[:2, :2])
    with pytest.raises(DataError):
        load_sensors(series_path, tmp_path / "small.npy")
    np.savez(tmp_path / "other.npz", something=SPEEDS)
    with pytest.raises(DataError):
        load_sensors(tmp_path / "other.npz")
    with pytest.raises(ParameterError):
        load_sensors(tmp_path / "speeds.txt")
