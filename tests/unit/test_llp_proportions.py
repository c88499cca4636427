"""Noisy label counts: the law, the order of clipping, the message, and the refused second draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcore
from dpcore import Noise
from dpcore.errors import (
    BudgetExceededError,
    DataError,
    ParameterError,
    RepeatedReleaseError,
    WireFormatError,
)
from dpcore.proportions import (
    LabelCounts,
    ReleaseRegister,
    label_counts,
    paper_proportions,
    release_label_counts,
)

ROW = (20, 6, 4, 2, 0)
often = settings(derandomize=True, max_examples=100, deadline=None)


def without_noise(counts):
    table = np.asarray(counts)
    return LabelCounts(table, table.sum(axis=1), 0.0, "replace", private=False)


def released(counts, epsilon, seed=0, **options):
    options.setdefault("sizes", np.asarray(counts).sum(axis=1))
    return release_label_counts(counts, epsilon=epsilon, noise=Noise.insecure(seed), **options)[0]


def test_counts_are_those_of_the_batches():
    counts = label_counts([0, 2, 2, 1], [0, 0, 1, 1], 3, 3)
    assert counts.tolist() == [[1, 0, 1], [0, 1, 1], [0, 0, 0]]


def test_the_noise_is_the_two_sided_geometric_of_rate_half_epsilon():
    """r = e^-0.05 = 0.951229424500714, variance 2r / (1 - r)^2 = 799.83."""
    n = 400_000
    message = released(np.full((n, 2), 1000), 0.1)
    noise = np.asarray(message.counts) - 1000
    assert message.scale == pytest.approx(20)
    r = np.exp(-1 / float(message.scale))
    assert r == pytest.approx(0.951229424500714, abs=1e-15)
    variance = 2 * r / (1 - r) ** 2
    assert variance == pytest.approx(799.83, abs=0.01)
    # The fourth moment is 6 times the squared variance: the sample variance has a standard error of
    # variance * sqrt(5 / (2 n)); 5 of them are exceeded with probability 6e-7.
    assert abs(noise.var() - variance) < 5 * variance * np.sqrt(5 / (2 * n))
    assert abs(noise.mean()) < 5 * np.sqrt(variance / (2 * n))
    zeros = (noise == 0).mean()
    chance = (1 - r) / (1 + r)
    assert abs(zeros - chance) < 5 * np.sqrt(chance / (2 * n))


def test_add_remove_has_half_the_scale():
    message, event = release_label_counts([[3, 4]], epsilon=0.1, adjacency="add-remove", sizes=[7])
    assert message.scale == pytest.approx(10)
    assert event.adjacency == "add-remove"


def test_the_event_costs_epsilon_once_for_all_batches_and_names_its_unit():
    _, event = release_label_counts(np.tile(ROW, (93, 1)), epsilon=0.1)
    assert event.epsilon <= 0.1 + 1e-15
    assert event.epsilon == pytest.approx(0.1, rel=1e-9)
    assert (event.unit, event.adjacency, event.count) == ("reading", "replace", 1)


def test_the_right_order_keeps_the_first_label_first():
    """Counts (20, 6, 4, 2, 0), epsilon 0.1, scale 1 / epsilon: the mean is 0.449 +- 0.01."""
    message = released(np.tile(ROW, (100_000, 1)), 0.1, adjacency="add-remove")
    mean = message.proportions("clip").mean(axis=0)
    np.testing.assert_allclose(mean, [0.449, 0.181, 0.150, 0.123, 0.097], atol=0.01)
    assert mean.argmax() == 0


def test_the_published_loop_lets_the_last_label_win():
    """The mean is (0.105, 0.096, 0.146, 0.249, 0.404) +- 0.01."""
    rows = paper_proportions(np.tile(ROW, (100_000, 1)), epsilon=0.1, noise=Noise.insecure(1))
    mean = np.asarray(rows).mean(axis=0)
    np.testing.assert_allclose(mean, [0.105, 0.096, 0.146, 0.249, 0.404], atol=0.01)
    assert mean.argmax() == 4
    assert not rows.private


def test_clipped_rows_sum_to_one_and_have_no_empty_cell():
    message = released(np.tile(ROW, (5000, 1)), 0.1)
    clipped = np.clip(np.asarray(message.counts), 0.001, 32)
    rows = message.proportions("clip")
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-12)
    assert (rows >= 0.001 / clipped.sum(axis=1, keepdims=True) - 1e-15).all()


def test_without_noise_proportions_are_the_true_ones():
    epsilon = 1e9
    counts = np.array([ROW, (8, 8, 8, 4, 4)])
    truth = counts / 32
    message = released(counts, epsilon)
    np.testing.assert_allclose(message.proportions("clip"), truth, atol=2e-4)
    np.testing.assert_allclose(message.proportions("clip")[1], truth[1], atol=1e-9)
    np.testing.assert_allclose(message.proportions(), truth, atol=1e-9)
    np.testing.assert_allclose(message.proportions("simplex"), truth, atol=1e-9)


def test_unclipped_proportions_are_unbiased():
    n = 100_000
    rows = released(np.tile(ROW, (n, 1)), 0.1).proportions()
    error = rows.mean(axis=0) - np.array(ROW) / 32
    assert (np.abs(error) < 5.4 * np.sqrt(800 / n) / 32).all()  # five cells at 7e-8 each


@often
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_the_simplex_projection_is_the_nearest_point(values):
    row = np.array(values)
    scaled = np.round(row * 1000).astype(np.int64)[np.newaxis]
    message = LabelCounts(scaled, np.array([1000]), 1e6, "replace", private=True)
    found = message.proportions("simplex")[0]
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    # Optimality: moving towards any corner does not come nearer.
    gradient = found - scaled[0] / 1000
    assert (gradient - gradient @ found >= -1e-9).all()


def test_smoothing_is_the_mean_over_neighbouring_batches():
    counts = np.array([[3, 1], [0, 4], [4, 0], [2, 2]])
    rows = without_noise(counts).proportions(smoothing=1)
    expected = [[3 / 8, 5 / 8], [7 / 12, 5 / 12], [6 / 12, 6 / 12], [6 / 8, 2 / 8]]
    np.testing.assert_allclose(rows, expected)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 10.0])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_a_message_comes_back_as_it_was(epsilon, adjacency):
    message = released(np.tile(ROW, (93, 1)), epsilon, adjacency=adjacency)
    back = LabelCounts.from_bytes(message.to_bytes())
    assert (np.asarray(back.counts) == np.asarray(message.counts)).all()
    assert (back.sizes == message.sizes).all()
    assert (back.scale, back.adjacency, back.private) == (message.scale, adjacency, False)


def test_a_message_is_a_few_bits_per_number():
    message = released(np.tile(ROW, (93, 1)), 0.1)
    assert len(message.to_bytes()) < 93 * 5 * 10 / 8 + 93 + 200


def test_what_no_sender_writes_is_refused():
    message = released(np.tile(ROW, (5, 1)), 0.1)
    data = bytearray(message.to_bytes())
    data[40] ^= 1
    with pytest.raises(WireFormatError):
        LabelCounts.from_bytes(bytes(data))
    with pytest.raises(WireFormatError):
        LabelCounts.from_bytes(dpcore.wire.pack([1, 2], kind=3, n_bits=4))
    with pytest.raises(WireFormatError):
        LabelCounts.from_bytes(dpcore.wire.pack([1, 2], kind=80, n_bits=4))


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [([[10_000, 0]], [32]), ([[0, -10_000]], [32]), ([[3, 4]], [0]), ([[3, 4]], [7, 7])],
)
def test_counts_that_no_noise_explains_are_refused(counts, sizes):
    with pytest.raises(DataError):
        LabelCounts(np.array(counts), np.array(sizes), 20.0, "replace", private=True)


def test_a_second_draw_of_a_batch_is_refused_and_new_batches_are_not():
    register = ReleaseRegister()
    counts = np.tile(ROW, (3, 1))
    release_label_counts(counts, epsilon=0.1, slots=[0, 1, 2], node="a", register=register)
    with pytest.raises(RepeatedReleaseError):
        release_label_counts(counts, epsilon=0.1, slots=[2, 3, 4], node="a", register=register)
    release_label_counts(counts, epsilon=0.1, slots=[3, 4, 5], node="a", register=register)
    release_label_counts(counts, epsilon=0.1, slots=[0, 1, 2], node="b", register=register)


def test_a_ledger_charges_disjoint_batches_and_nodes_once_and_refuses_a_second_draw(tmp_path):
    ledger = dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=0.15)
    counts = np.tile(ROW, (3, 1))
    with ledger:
        release_label_counts(counts, epsilon=0.1, node="a")
        release_label_counts(counts, epsilon=0.1, node="b")
        november = {"node": "a", "slots": [3, 4, 5], "period": "november"}
        release_label_counts(counts, epsilon=0.1, **november)
        assert ledger.spent[0] == pytest.approx(0.1, rel=1e-9)
        with pytest.raises(RepeatedReleaseError):
            release_label_counts(counts, epsilon=0.1, node="a", slots=[5, 6, 7], period="late")
        with pytest.raises(BudgetExceededError):  # another scheme on the same readings adds up
            release_label_counts(counts, epsilon=0.1, node="a", scheme="other")
    with dpcore.Ledger(tmp_path / "ledger.sqlite"), pytest.raises(RepeatedReleaseError):
        release_label_counts(counts, epsilon=0.1, node="a")


def test_batches_of_another_cut_of_time_are_not_taken_for_other_data(tmp_path):
    """Numbers of batches differ between cuts of the same time: they cannot tell data apart."""
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=0.15) as ledger:
        counts = np.tile(ROW, (2, 1))
        release_label_counts(counts, epsilon=0.1, slots=[50, 51], scheme="half an hour")
        with pytest.raises(BudgetExceededError):
            release_label_counts(counts, epsilon=0.1, slots=[25, 26], scheme="an hour")
        assert ledger.spent[0] == pytest.approx(0.1, rel=1e-9)
        # What was refused was not drawn, and may still be drawn in another period.
        release_label_counts(
            counts, epsilon=0.1, slots=[25, 26], scheme="an hour", period="december"
        )


@pytest.mark.parametrize("pinned", [False, True])
def test_later_batches_of_a_period_cost_nothing_more(tmp_path, pinned):
    """They hold other readings; what was drawn, another scheme and more epsilon still count."""
    noise = Noise.from_key(bytes(32)).stream("retry") if pinned else None
    options = {"epsilon": 0.1, "noise": noise}
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=0.25) as ledger:
        for slots in ([0, 1], [2, 3], [7, 5]):
            release_label_counts([ROW, ROW], slots=slots, **options)
        assert ledger.spent[0] == pytest.approx(0.1, rel=1e-9)
        with pytest.raises(RepeatedReleaseError):
            release_label_counts([ROW, ROW], epsilon=0.1, slots=[3, 4])
        release_label_counts([ROW], slots=[8], epsilon=0.05, noise=noise)
        assert ledger.spent[0] == pytest.approx(0.15, rel=1e-9)
        release_label_counts([ROW], slots=[9], scheme="other", **options)
        assert ledger.spent[0] == pytest.approx(0.25, rel=1e-9)
        with pytest.raises(BudgetExceededError):
            release_label_counts([ROW], slots=[9], epsilon=0.01, noise=noise)


def test_a_retried_job_on_a_pinned_stream_is_charged_once(tmp_path):
    noise = Noise.from_key(bytes(32)).stream("retry")
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=0.1001) as ledger:
        first, second = (
            release_label_counts([ROW], epsilon=0.1, noise=noise)[0].counts for _ in range(2)
        )
        assert (first == second).all()
        assert ledger.spent[0] == pytest.approx(0.1, rel=1e-9)


def test_sizes_are_never_taken_from_records_that_may_exist_or_not():
    with pytest.raises(ParameterError, match="'sizes'"):
        release_label_counts([ROW], epsilon=0.1, adjacency="add-remove")


def test_pinned_noise_hangs_on_node_scheme_and_time_alone():
    noise = Noise.from_key(bytes(32)).stream("traffic", 2026)

    def draw(slots, **options):
        counts = np.zeros((len(slots), 5), np.int64) + 3
        return np.asarray(
            release_label_counts(counts, epsilon=0.1, noise=noise, slots=slots, **options)[0].counts
        )

    whole = draw(range(10), node="a")
    assert (draw([7, 3], node="a") == whole[[7, 3]]).all()
    assert (draw(range(10, 20), node="a") != whole).any()
    assert (draw(range(10), node="b") != whole).any()
    assert (draw(range(10), node="a", scheme="other") != whole).any()
    assert (draw(range(10), node="a", period="december") != whole).any()


def test_fresh_noise_differs_between_calls():
    counts = np.tile(ROW, (50, 1))
    one = release_label_counts(counts, epsilon=0.1)[0].counts
    assert (one != release_label_counts(counts, epsilon=0.1)[0].counts).any()
