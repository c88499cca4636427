"""Windows, bins, batches, folds and neighbours."""

import numpy as np
import pytest

from dpcore.errors import DataError, ParameterError
from dpcore.series import (
    Bins,
    align,
    nearest_neighbours,
    neighbours_from_adjacency,
    purged_folds,
    windows,
)

PUBLISHED = Bins((0, 5, 30, 60, 150, 260))


def test_a_january_of_quarter_hours_gives_2971_rows():
    features, following = windows(np.arange(2976.0), 5, 1)
    assert features.shape == (2971, 5)
    assert following.shape == (2971,)
    assert features[0].tolist() == [0, 1, 2, 3, 4]
    assert following[0] == 5
    assert features[-1].tolist() == [2970, 2971, 2972, 2973, 2974]
    assert following[-1] == 2975


@pytest.mark.parametrize(("horizon", "width"), [(1, 1), (3, 5), (7, 2)])
def test_rows_end_a_horizon_before_what_follows(horizon, width):
    features, following = windows(np.arange(50.0), width, horizon)
    assert len(features) == 50 - width + 1 - horizon
    assert (following - features[:, -1] == horizon).all()
    assert (np.diff(features, axis=1) == 1).all() if width > 1 else True


@pytest.mark.parametrize(
    ("batch_size", "n_batches", "last"),
    [(32, 93, 27), (8, 372, 3), (16, 186, 11), (50, 60, 21), (64, 47, 27), (128, 24, 27)],
)
def test_batches_of_a_january(batch_size, n_batches, last):
    batches = align(np.zeros((2976, 2)), 5, 1, batch_size)
    assert batches.n_batches == n_batches
    assert batches.sizes[-1] == last
    assert (batches.sizes[:-1] == batch_size).all()


def test_a_missing_slot_leaves_every_node_at_the_same_rows_and_times():
    series = np.random.default_rng(0).normal(size=(400, 3))
    series[100, 1] = np.nan
    series[200:240, 2] = np.nan
    batches = align(series, 5, 1, 32)
    lost = {row for t in (100, *range(200, 240)) for row in (*range(t - 4, t + 1), t - 5)}
    assert set(range(395)) - set(batches.rows.tolist()) == lost
    assert (batches.slots[batches.batch] == batches.rows // 32).all()
    assert (np.bincount(batches.batch) == batches.sizes).all()
    for node in range(3):
        features, following = windows(series[:, node], 5, 1)
        assert np.isfinite(features[batches.rows]).all()
        assert np.isfinite(following[batches.rows]).all()


def test_a_batch_without_rows_is_left_out_and_the_others_keep_their_time():
    series = np.zeros((200, 1))
    series[30:110] = np.nan
    assert align(series, 5, 1, 32).slots.tolist() == [0, 3, 4, 5, 6]


def test_bins_are_half_open_clamp_and_close_the_last():
    values = [-3, 0, 4.999, 5, 29, 30, 59.9, 60, 150, 259, 260, 261]
    assert PUBLISHED.label(values).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 4, 4]
    assert PUBLISHED.label([np.nan]).tolist() == [-1]
    assert PUBLISHED.n_labels == 5


def test_relative_bins_are_parts_of_a_capacity_or_of_a_history():
    assert Bins.relative(100.0, 4).edges == (0, 25, 50, 75, 100)
    history = np.random.default_rng(1).gamma(2, 30, 5000)
    shares = np.bincount(Bins.from_history(history).label(history)) / 5000
    np.testing.assert_allclose(shares, 0.2, atol=0.001)
    constant = Bins.from_history([7.0, 7.0, np.nan])
    assert constant.label([6.0, 7.0, 8.0]).tolist()[0] == 0


@pytest.mark.parametrize("edges", [(0, 1), (0, 0, 1), (0, 2, 1), (0, 1, np.inf)])
def test_bad_edges_are_refused(edges):
    with pytest.raises(ParameterError):
        Bins(edges)


def test_folds_purge_the_test_side_of_borders_only():
    batches = align(np.zeros((2976, 1)), 5, 1, 32)
    folds = list(purged_folds(batches, 10, 5))
    assert len(folds) == 10
    tested = np.sum([fold.test for fold in folds], axis=0)
    assert tested.max() == 1
    assert (tested == 0).sum() == 9 * 2 * 5
    for fold in folds:
        test_rows = batches.rows[fold.test]
        train_rows = batches.rows[fold.train[batches.batch]]
        nearest = np.abs(test_rows[:, None] - train_rows[None]).min()
        assert nearest > 5  # windows of 5 and what they predict have no time in common
        held_out = batches.rows[~fold.train[batches.batch]]
        assert set(test_rows) <= set(held_out)
        assert len(held_out) - len(test_rows) in (5, 10)


def test_folds_need_as_many_batches():
    with pytest.raises(ParameterError):
        next(purged_folds(align(np.zeros((40, 1)), 5, 1, 32), 3, 5))


def test_great_circle_neighbours_are_not_those_of_raw_degrees():
    # At 60 degrees north a degree of longitude is half as long as one of latitude.
    positions = [(60.0, 10.0), (60.0, 10.15), (60.1, 10.0)]
    assert nearest_neighbours(positions, 1)[0].tolist() == [1]
    assert nearest_neighbours(positions, 1, metric="euclidean")[0].tolist() == [2]
    across = nearest_neighbours([(0.0, 179.9), (0.0, -179.9), (0.0, 170.0)], 1)
    assert across[0].tolist() == [1]


def test_equal_distances_go_to_the_lowest_number():
    found = nearest_neighbours([[0, 0], [1, 0], [0, 1], [-1, 0]], 2, metric="euclidean")
    assert found[0].tolist() == [1, 2]


def test_adjacency_gives_the_heaviest_first_and_never_the_node_itself():
    weights = [[1.0, 0.2, 0.9, 0.0], [0.2, 1.0, 0.2, 0.2], [0] * 4, [0, 0, 1, 5]]
    found = neighbours_from_adjacency(weights, 2)
    assert [nodes.tolist() for nodes in found] == [[2, 1], [0, 2], [], [2]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: windows([1.0, 2.0], 5, 1), ParameterError),
        (lambda: windows(np.zeros((4, 2)), 1, 1), ParameterError),
        (lambda: align(np.full((50, 1), np.nan), 5, 1, 8), DataError),
        (lambda: align(np.zeros(50), 5, 1, 8), ParameterError),
        (lambda: nearest_neighbours([(0, 0), (1, 1)], 2), ParameterError),
        (lambda: nearest_neighbours([(0, np.nan), (1, 1)], 1), DataError),
        (lambda: neighbours_from_adjacency([[1, 2]]), ParameterError),
        (lambda: Bins.relative(0.0), ParameterError),
        (lambda: Bins.from_history([np.nan]), ParameterError),
    ],
)
def test_bad_arguments_are_refused(call, error):
    with pytest.raises(error):
        call()
