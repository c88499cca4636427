"""A fit that raises leaves a learner as it was, and remembers what it drew."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import dpcore
from dpcore import learners
from dpcore.data import load_sensors
from dpcore.errors import (
    BudgetExceededError,
    DataError,
    ParameterError,
    RepeatedReleaseError,
)
from dpcore.series import Bins

RANDOM = np.random.default_rng(0)
Y = np.repeat([0, 1], 20)
X = np.column_stack([Y - 0.5, RANDOM.uniform(-1, 1, 40)]) / 2
SERIES = RANDOM.uniform(0, 80, (200, 2))
BINS = Bins((0.0, 20.0, 40.0, 80.0))
MODELS = {
    "admm": learners.ConsensusADMMClassifier(classes=[0, 1], n_users=4, n_rounds=2),
    "central": learners.CentralClassifier(classes=[0, 1]),
    "fedsgd": learners.LDPFedSGDClassifier(classes=[0, 1]),
    "local": learners.LocalOnlyClassifier(classes=[0, 1], n_users=2),
    "lvq": learners.PrivateGMLVQ(classes=[0, 1], bounds=(-1, 1)),
    "proportions": learners.LabelProportionClassifier(2, classes=[0, 1]),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_was_never_fitted_stays_so(name):
    model = MODELS[name].__class__(**MODELS[name].get_params())
    with pytest.raises(ValueError, match="classes"):
        model.set_params(classes=[0]).fit(X, Y)
    assert not [attribute for attribute in vars(model) if attribute.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("name", MODELS)
def test_a_refused_fit_keeps_the_model_before(name):
    model = MODELS[name].__class__(**MODELS[name].get_params()).fit(X, Y)
    before, promise = model.predict(X), model.privacy_
    with pytest.raises(ValueError, match="classes"):
        model.set_params(classes=[0]).fit(X[:, :1], Y)
    assert np.array_equal(model.predict(X), before)
    assert model.privacy_ is promise
    assert model.n_features_in_ == 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "data",
    [np.full(3, 7391.48265), np.full((3, 2), 7391.48265j), [["7391.48265", "x"]], 7391.48265],
    ids=["one dimension", "complex", "text", "scalar"],
)
def test_no_message_shows_the_data(name, data):
    model = MODELS[name].__class__(**MODELS[name].get_params())
    for call in (lambda: model.fit(data, Y[:3]), lambda: model.fit(X, Y).predict(data)):
        with pytest.raises(DataError) as refusal:
            call()
        assert "7391" not in str(refusal.value)
        assert refusal.value.__suppress_context__


class FullCache(dict):
    """Takes nothing, as a disk that is full."""

    def __setitem__(self, key, value):
        raise OSError("no space left")


def test_tables_that_were_drawn_are_not_forgotten_when_training_fails():
    network = learners.LabelProportionNetwork(BINS, n_clusters=4, n_init=1, cache=FullCache())
    with pytest.raises(OSError, match="no space"):
        network.fit(SERIES, [[1], [0]])
    assert not hasattr(network, "privacy_")
    with pytest.raises(RepeatedReleaseError):
        network.set_params(cache=None).fit(SERIES, [[1], [0]])


def test_labelings_that_are_too_many_are_refused_before_anything_is_drawn():
    network = learners.LabelProportionNetwork(BINS, n_clusters=40, labeling="exact")
    with pytest.raises(ParameterError, match="labelings"):
        network.fit(SERIES, [[1], [0]])
    network.set_params(n_clusters=4, n_init=1).fit(SERIES, [[1], [0]])


def test_a_later_call_that_is_not_paid_for_changes_nothing_but_its_number(tmp_path):
    noise = dpcore.Noise.from_key(bytes(32)).stream("records of 2026")
    model = learners.PrivateGLVQ(classes=[0, 1], bounds=(-1, 1), noise=noise).fit(X, Y)
    before = np.asarray(model.prototypes_).copy()
    with dpcore.Ledger(tmp_path / "ledger", epsilon=0.1), pytest.raises(BudgetExceededError):
        model.partial_fit(X, Y)
    assert np.array_equal(model.prototypes_, before)
    # The address of a call is never used again, whatever became of it.
    assert model._n_calls == 2
    assert model.partial_fit(X, Y)._n_calls == 3


def test_devices_are_not_paid_for_where_a_round_cannot_be_measured(tmp_path):
    model = learners.LDPFedSGDClassifier(classes=[0, 1])
    with dpcore.Ledger(tmp_path / "ledger", epsilon=5.0) as ledger:
        with pytest.raises(ParameterError, match="validation"):
            model.partial_fit(X, Y, validation=(X, Y, Y))
        with pytest.raises(ParameterError, match="users"):
            model.partial_fit(X, Y, users=[1, 2])
        assert ledger.entries == []
        model.partial_fit(X, Y, users=np.arange(40))
        charged = len(ledger.entries)
        with pytest.raises(ParameterError, match="before"):
            model.partial_fit(X, Y, users=np.arange(40))
        assert len(ledger.entries) == charged


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04garbage", bytes(1000)])
def test_a_file_that_is_no_checkpoint_is_refused_before_anything_is_drawn(content, tmp_path):
    (tmp_path / "model").write_bytes(content)
    path = tmp_path / "model"
    forecaster = learners.PrivateForecaster(BINS, width=4, horizon=2, checkpoint=path)
    with dpcore.Ledger(tmp_path / "ledger", epsilon=5.0) as ledger:
        with pytest.raises(DataError, match="checkpoint"):
            forecaster.fit(SERIES, [[1], [0]])
        with pytest.raises(ParameterError, match="folder"):
            forecaster.set_params(checkpoint=tmp_path / "missing" / "model").fit(SERIES)
        assert ledger.entries == []


def test_a_missing_file_is_for_the_operating_system_to_report(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_sensors(tmp_path / "missing.npz")
