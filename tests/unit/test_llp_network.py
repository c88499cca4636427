"""The network: what travels, what it costs, who votes, and that threads change nothing."""

import json
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import dpcore
from dpcore import Noise
from dpcore.errors import ParameterError, RepeatedReleaseError
from dpcore.learners import LabelProportionNetwork, label_network
from dpcore.learners.label_nodes import fit_node
from dpcore.proportions import LabelCounts
from dpcore.series import Bins, purged_folds

NODES = 4
NEIGHBOURS = [[1, 2], [0, 3], [3, 0], [2, 1]]
BINS = Bins.relative(100.0)


def junctions(n=1500, seed=0, nodes=NODES):
    """Days with two peaks, of one shape and of different noise."""
    random = np.random.default_rng(seed)
    t = np.arange(n) * 2 * np.pi / 96
    day = 45 - 30 * np.cos(t) + 15 * np.sin(2 * t)
    return (day[:, None] + random.normal(0, 6, (n, nodes))).clip(0, 100)


SERIES = junctions()


def network(**options):
    settings = {"n_init": 3, "noise": Noise.insecure(1), **options}
    return LabelProportionNetwork(BINS, **settings)


def test_every_message_is_counted_on_every_link():
    fitted = network(epsilon=0.5).fit(SERIES, NEIGHBOURS)
    links = {(m.sender, m.receiver) for m in fitted.messages_}
    assert links == {(s, r) for r, senders in enumerate(NEIGHBOURS) for s in senders}
    assert fitted.n_bytes_ == sum(len(fitted.tables_[m.sender]) for m in fitted.messages_)
    # All receivers of a node get the same bytes: one draw.
    assert all(m.n_bytes == len(fitted.tables_[m.sender]) for m in fitted.messages_)


def test_one_exchange_costs_epsilon_and_a_second_one_is_refused():
    fitted = network(epsilon=0.5).fit(SERIES, NEIGHBOURS)
    assert fitted.privacy_.epsilon == pytest.approx(0.5, rel=1e-9)
    assert (fitted.privacy_.unit, fitted.privacy_.adjacency) == ("reading", "replace")
    assert any("vehicle" in line for line in fitted.privacy_.not_covered)
    assert any("chosen by looking" in line for line in fitted.privacy_.not_covered)
    assert not fitted.privacy_.private  # insecure noise
    tables = list(fitted.tables_)
    with pytest.raises(RepeatedReleaseError):
        fitted.exchange()
    with pytest.raises(RepeatedReleaseError):
        fitted.fit(SERIES, NEIGHBOURS)
    assert fitted.tables_ == tables
    assert fitted.fit(SERIES[:-64], NEIGHBOURS).tables_ != tables  # other data


def test_pinned_noise_draws_the_same_tables_again():
    fitted = network(noise=Noise.from_key(bytes(32)).stream("again")).fit(SERIES, NEIGHBOURS)
    tables = list(fitted.tables_)
    assert fitted.exchange().tables_ == tables
    wider = network(noise=Noise.from_key(bytes(32)).stream("again"), width=6)
    assert wider.fit(SERIES, NEIGHBOURS).tables_ != tables


def test_secure_noise_is_private_and_fresh():
    one = network(epsilon=0.5, noise=None).fit(SERIES, NEIGHBOURS)
    two = network(epsilon=0.5, noise=None).fit(SERIES, NEIGHBOURS)
    assert one.privacy_.private
    assert one.tables_ != two.tables_


def test_a_ledger_is_charged_once_for_all_nodes(tmp_path):
    with dpcore.Ledger(tmp_path / "net.sqlite", epsilon=0.6) as ledger:
        network(epsilon=0.5, noise=None).build(SERIES, NEIGHBOURS).exchange()
        assert ledger.spent[0] == pytest.approx(0.5, rel=1e-9)
        with pytest.raises(RepeatedReleaseError):
            network(epsilon=0.5, noise=None).build(SERIES, NEIGHBOURS).exchange()


def test_periods_on_one_pinned_stream_share_no_noise():
    source = Noise.from_key(bytes(32)).stream("periods")
    counts = []
    for period in ("a", "b", "a"):
        built = network(epsilon=0.5, noise=source, period=period).build(SERIES, NEIGHBOURS)
        tables = built.exchange().tables_
        counts.append(np.stack([LabelCounts.from_bytes(table).counts for table in tables]))
    # Noise of scale 4 takes the same value twice with a chance of 1 / 16.
    assert (counts[0] != counts[1]).mean() > 0.8
    assert (counts[0] == counts[2]).all()


@pytest.mark.parametrize("pinned", [False, True])
def test_a_ledger_is_charged_for_every_period(tmp_path, pinned):
    source = Noise.from_key(bytes(32)).stream("periods") if pinned else None
    first = SERIES[: 45 * 32]
    later = np.vstack([np.full_like(first, np.nan), SERIES])  # on the same time axis
    with dpcore.Ledger(tmp_path / "net.sqlite", epsilon=0.6) as ledger:
        for period, series in (("a", first), ("b", later)):
            built = network(epsilon=0.5, noise=source, period=period).build(series, NEIGHBOURS)
            built.exchange()
            parts = [json.loads(entry.part) for entry in ledger.entries]
            charged = {tuple(part[1:]) for part in parts if part[0] == "readings"}
            assert {node for node, name in charged if name == period} == set(range(NODES))
        assert len(charged) == 2 * NODES
        assert ledger.spent[0] == pytest.approx(0.5, rel=1e-9)  # periods are other readings
        again = network(epsilon=0.5, noise=source, period="c").build(first, NEIGHBOURS)
        with pytest.raises(RepeatedReleaseError):  # batches are counted along one time axis
            again.exchange()


@pytest.mark.parametrize("postprocess", ["none", "clip", "simplex"])
@pytest.mark.parametrize("smoothing", [0, 3])
def test_nodes_label_by_what_they_received_as_they_were_told(postprocess, smoothing, monkeypatch):
    tasks = []

    def recorded(task, cache):
        tasks.append(task)
        return fit_node(task, cache)

    monkeypatch.setattr(label_network, "fit_node", recorded)
    fitted = network(epsilon=0.5, postprocess=postprocess, smoothing=smoothing)
    fitted.fit(SERIES, NEIGHBOURS)
    assert len(tasks) == NODES
    for task in tasks:
        for sender, held in zip(NEIGHBOURS[task.node], task.targets[1:], strict=True):
            sent = LabelCounts.from_bytes(fitted.tables_[sender])
            np.testing.assert_array_equal(held, sent.proportions(postprocess, smoothing=smoothing))


@pytest.mark.parametrize("labeling", ["monotone", "search"])
def test_threads_change_no_bit(labeling):
    found = []
    for n_threads in (1, 2, 5):
        dpcore.set_num_threads(n_threads)
        try:
            noise = Noise.from_key(bytes(32)).stream("threads")
            fitted = network(epsilon=0.2, noise=noise, labeling=labeling).fit(SERIES, NEIGHBOURS)
        finally:
            dpcore.set_num_threads(None)
        models = [(m.cluster_centers_.tobytes(), m.labelings_.tobytes()) for m in fitted.models_]
        found.append((models, fitted.tables_, fitted.predict().tobytes()))
    assert found[0] == found[1] == found[2]


def test_a_node_is_a_function_of_its_data_the_key_and_its_id():
    noise = Noise.from_key(bytes(32)).stream("ids")
    ids = ["a", "b", "c", "d"]
    whole = network(noise=noise).fit(SERIES, NEIGHBOURS, node_ids=ids)
    order = [2, 0, 3, 1]
    place = {node: i for i, node in enumerate(order)}
    lists = [[place[j] for j in NEIGHBOURS[node]] for node in order]
    moved = network(noise=noise).fit(SERIES[:, order], lists, node_ids=[ids[i] for i in order])
    assert [whole.tables_[i] for i in order] == moved.tables_
    for i, node in enumerate(order):
        ours, theirs = whole.models_[node], moved.models_[i]
        assert ours.cluster_centers_.tobytes() == theirs.cluster_centers_.tobytes()
        assert (ours.labelings_ == theirs.labelings_).all()


def test_a_node_fitted_in_another_process_is_the_same(monkeypatch):
    tasks = []

    def recorded(task, cache):
        tasks.append(task)
        return fit_node(task, cache)

    monkeypatch.setattr(label_network, "fit_node", recorded)
    here = {}
    fitted = network().fit(SERIES, NEIGHBOURS)
    for task in tasks:
        model = fitted.models_[task.node]
        here[task.node] = (model.cluster_centers_.tobytes(), model.labelings_.tobytes())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for task, model in zip(tasks, pool.map(fit_node, tasks), strict=True):
            there = (model.cluster_centers_.tobytes(), model.labelings_.tobytes())
            assert there == here[task.node]


def test_a_shared_cache_changes_nothing():
    cache = {}
    plain = network().fit(SERIES, NEIGHBOURS).predict()
    cached = [network(cache=cache).fit(SERIES, NEIGHBOURS).predict() for _ in range(2)]
    assert len(cache) == NODES
    assert all((labels == plain).all() for labels in cached)


def test_a_node_votes_with_its_own_table_and_its_neighbours():
    free = network(epsilon=None).fit(SERIES, NEIGHBOURS)
    assert [m.labelings_.shape[0] for m in free.models_] == [3] * NODES
    assert free.privacy_.epsilon == np.inf
    own = network(epsilon=None, exchange_tables=False).fit(SERIES, NEIGHBOURS)
    assert [m.labelings_.shape[0] for m in own.models_] == [1] * NODES
    assert own.n_bytes_ == 0
    assert own.privacy_.epsilon == 0
    assert own.score().mean() > 0.6


def test_nodes_without_labels_send_nothing_and_rely_on_neighbours():
    labelled = [True, False, True, True]
    fitted = network(epsilon=1.0).fit(SERIES, NEIGHBOURS, labelled=labelled)
    assert fitted.tables_[1] is None
    assert {m.sender for m in fitted.messages_} == {0, 2, 3}
    assert fitted.models_[1].labelings_.shape[0] == 2
    assert fitted.models_[1].own is None
    assert fitted.models_[0].labelings_.shape[0] == 2  # itself and node 2
    assert fitted.score()[1] > 0.5
    alone = network(epsilon=1.0).fit(SERIES, [[], [], [], []], labelled=labelled)
    assert alone.models_[1] is None
    assert (alone.predict()[:, 1] == -1).all()


def test_noisy_own_tables_are_those_that_were_sent():
    fitted = network(epsilon=0.05, own="noisy").fit(SERIES, NEIGHBOURS)
    exact = network(epsilon=0.05).fit(SERIES, NEIGHBOURS)
    assert fitted.tables_ == exact.tables_
    assert any(
        (a.labelings_[0] != b.labelings_[0]).any()
        for a, b in zip(fitted.models_, exact.models_, strict=True)
    )
    own = network(epsilon=0.05, own="none").fit(SERIES, NEIGHBOURS)
    assert [m.labelings_.shape[0] for m in own.models_] == [2] * NODES


@pytest.mark.parametrize("postprocess", ["none", "clip", "simplex"])
@pytest.mark.parametrize("labeling", ["monotone", "search"])
def test_at_a_huge_epsilon_private_and_noise_free_networks_agree(postprocess, labeling):
    options = {"postprocess": postprocess, "labeling": labeling}
    free = network(epsilon=None, **options).build(SERIES, NEIGHBOURS).exchange()
    private = network(epsilon=1e6, **options).build(SERIES, NEIGHBOURS).exchange()
    for fold in purged_folds(free.batches_, 3, 5):
        plain = free.train(fold.train).score(fold.test)
        assert plain.mean() > 0.4
        assert private.train(fold.train).score(fold.test) == pytest.approx(plain, abs=1e-12)
        knn = network(epsilon=None, model="knn").build(SERIES, NEIGHBOURS).exchange()
        assert knn.train(fold.train).score(fold.test).mean() > 0.6


def test_training_on_some_batches_uses_those_rows_only():
    built = network(epsilon=None, exchange_tables=False).build(SERIES, NEIGHBOURS).exchange()
    chosen = np.zeros(built.batches_.n_batches, bool)
    chosen[::2] = True
    first = [m.cluster_centers_ for m in built.train(chosen).models_]
    changed = SERIES.copy()
    rows = built.batches_.rows[~chosen[built.batches_.batch]]
    inside = [r for r in rows if 5 < r % 32 < 22]  # values that no chosen window touches
    changed[np.array(inside) + 4] += 500
    again = network(epsilon=None, exchange_tables=False).build(changed, NEIGHBOURS).exchange()
    second = [m.cluster_centers_ for m in again.train(chosen).models_]
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_the_published_order_is_there_to_be_reproduced():
    fitted = network(epsilon=0.1, reproduce="paper", own="noisy").fit(SERIES, NEIGHBOURS)
    assert not fitted.privacy_.private
    assert fitted.privacy_.epsilon == np.inf
    with pytest.raises(RepeatedReleaseError):
        fitted.exchange()


def test_missing_values_are_left_out_everywhere():
    series = SERIES.copy()
    series[300:310, 2] = np.nan
    fitted = network(epsilon=None).fit(series, NEIGHBOURS)
    assert len(fitted.labels_) == 1495 - 15
    assert (fitted.labels_ >= 0).all()
    assert fitted.predict().shape == fitted.labels_.shape


def test_sizes_by_rule():
    fitted = network(epsilon=0.5, batch_size=None, n_clusters=None).build(SERIES, NEIGHBOURS)
    assert (fitted.batch_size_, fitted.n_clusters_) == (8, 16)


def test_a_fitted_network_can_be_pickled():
    noise = Noise.from_key(bytes(32)).stream("pickle")
    fitted = network(noise=noise).fit(SERIES, NEIGHBOURS)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict() == fitted.predict()).all()


@pytest.mark.parametrize("model", ["majority", "persistence", "centroid", "supervised", "knn"])
def test_baselines_run_in_the_network(model):
    fitted = network(model=model).fit(SERIES, NEIGHBOURS)
    assert fitted.n_bytes_ == 0
    assert fitted.privacy_.epsilon == 0
    assert fitted.score().mean() > (0.2 if model == "majority" else 0.5)


@pytest.mark.parametrize(
    ("options", "build"),
    [
        ({"own": "all"}, {}),
        ({"model": "oracle"}, {}),
        ({"adjacency": "swap"}, {}),
        ({"epsilon": 0.0}, {}),
        ({"postprocess": "round"}, {}),
        ({"reproduce": "thesis"}, {}),
        ({}, {"neighbours": [[0], [0], [0], [0]]}),
        ({}, {"neighbours": [[1, 1], [0], [0], [0]]}),
        ({}, {"neighbours": [[7], [0], [0], [0]]}),
        ({}, {"neighbours": [[1]]}),
        ({}, {"node_ids": ["a", "a", "b", "c"]}),
        ({}, {"labelled": [True]}),
    ],
)
def test_bad_arguments_are_refused(options, build):
    with pytest.raises(ParameterError):
        network(**options).fit(SERIES, **{"neighbours": NEIGHBOURS, **build})
