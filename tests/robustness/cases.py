"""A valid small call of every public callable, under the name that `surface` gives it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from surface import Case, charged, fitting, function, ledger, settings, using

import dpcore
from dpcore import (
    accounting,
    audit,
    cluster,
    data,
    federated,
    labeling,
    learners,
    local,
    proportions,
    random,
    secure,
    series,
    wire,
)
from dpcore.learners import forecast, lvq
from dpcore.series import Bins

RANDOM = np.random.default_rng(0)
Y = np.repeat([0, 1], 20)
X = np.column_stack([Y - 0.5, RANDOM.uniform(-1, 1, 40)]) / 2
POINTS = np.linspace(-1, 1, 5)
SERIES = RANDOM.uniform(0, 80, (400, 3))
BINS = Bins((0.0, 20.0, 40.0, 60.0, 80.0))
RING = [np.array([1]), np.array([2]), np.array([0])]
BOUNDS = (-1.0, 1.0)
PURE = accounting.PureEvent(mechanism="test", epsilon=0.5)
SCHEMA = [local.Numeric("a", 0, 1), local.Categorical("b", ["x", "y"])]
RECORDS = {"a": np.array([0.5, 0.25]), "b": np.array(["x", "y"])}
IDENTITY = secure.Identity()
DIRECTORY = {number: IDENTITY.public for number in range(5)}
PARAMETERS = secure.Parameters(
    session=bytes(16), dimension=3, bound=1, max_clients=5, min_clients=4, degree=None
)
BEGIN = secure.Server(PARAMETERS, DIRECTORY, 1).begin()
COUNTS = RANDOM.integers(0, 12, (33, 3, 1, 4))
SENT = forecast.release_counts(COUNTS, [BINS], 12, epsilon=1.0)
FOLDER = tempfile.TemporaryDirectory()
SENSORS = Path(FOLDER.name, "sensors.npz")
np.savez(SENSORS, data=SERIES[:50, :, None])
RELEASED = proportions.release_label_counts([[3, 5], [4, 4]], epsilon=1.0)[0]
MESSAGE = wire.pack(np.array([1, 2, 3], np.uint8), kind=1, n_bits=2)
SHARES = labeling.cluster_shares([0, 1, 1, 0], [0, 0, 1, 1], 2, 2)
TARGETS = np.array([[[0.5, 0.5], [0.25, 0.75]]])
BATCHES = series.align(SERIES, 5, 1, 32)
LVQ = {"classes": [0, 1], "bounds": BOUNDS}
ADMM = {"classes": [0, 1], "n_users": 4, "n_rounds": 2}
NETWORK = {"bins": BINS, "n_init": 1, "n_clusters": 4, "n_starts": 2}
FORECASTER = {
    "bins": BINS,
    "n_epochs": 1,
    "stride": 12,
    "hidden": 2,
    "width": 4,
    "horizon": 2,
    "bucket": 6,
    "validation": 0.2,
    "steps_per_day": 12,
}


def linear(z: float) -> tuple[float, float, float]:
    return -z, -1.0, 0.0


def fit_and_score(X: np.ndarray, y: np.ndarray, canary_X: np.ndarray, canary_y: np.ndarray):
    return np.zeros(len(canary_X))


def _mechanism(kind: type) -> Case:
    return function(kind, epsilon=1.0)


def _loss_terms(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return z * z, 2 * z, np.full_like(z, 2.0)


EVENTS = {"mechanism": "test", "noise_multiplier": 2.0}

CASES: dict[str, Case] = {
    "dpcore.Ledger": Case(
        ledger,
        {
            "path": "ledger",
            "epsilon": 1.0,
            "delta": 1e-6,
            "durability": "process",
            "allow_insecure": False,
        },
    ),
    "dpcore.bounded_mean": function(dpcore.bounded_mean, x=POINTS, lower=-1, upper=1, epsilon=1.0),
    "dpcore.bounded_sum": function(dpcore.bounded_sum, x=POINTS, lower=-1, upper=1, epsilon=1.0),
    "dpcore.gaussian": function(
        dpcore.gaussian, x=POINTS, sensitivity=1.0, epsilon=1.0, delta=1e-6
    ),
    "dpcore.gaussian_delta": function(dpcore.gaussian_delta, sigma=2.0, epsilon=1.0),
    "dpcore.gaussian_epsilon": function(dpcore.gaussian_epsilon, sigma=2.0, delta=1e-6),
    "dpcore.gaussian_sigma": function(dpcore.gaussian_sigma, epsilon=1.0, delta=1e-6),
    "dpcore.histogram": function(dpcore.histogram, labels=[0, 1, 1], n_bins=2, epsilon=1.0),
    "dpcore.laplace": function(dpcore.laplace, x=POINTS, epsilon=1.0, sensitivity=1.0),
    "dpcore.set_num_threads": function(dpcore.set_num_threads, n=2),
    # Accounting and audit
    "dpcore.accounting.Event": function(accounting.Event, mechanism="test"),
    "dpcore.accounting.GaussianEvent": function(accounting.GaussianEvent, **EVENTS),
    "dpcore.accounting.PureEvent": function(accounting.PureEvent, mechanism="test", epsilon=1.0),
    "dpcore.accounting.SampledGaussianEvent": function(
        accounting.SampledGaussianEvent, **EVENTS, sampling_rate=0.1, adjacency="add-remove"
    ),
    "dpcore.accounting.ZCDPEvent": function(accounting.ZCDPEvent, mechanism="test", rho=0.5),
    "dpcore.accounting.calibrate_noise": function(
        accounting.calibrate_noise, epsilon=1.0, delta=1e-6
    ),
    "dpcore.accounting.compose": function(accounting.compose, events=[PURE]),
    "dpcore.accounting.verify": function(accounting.verify, events=[PURE], epsilon=1.0),
    "dpcore.accounting.zcdp_epsilon": function(accounting.zcdp_epsilon, rho=0.5, delta=1e-6),
    "dpcore.audit.from_estimator": function(audit.from_estimator, make=lvq.GLVQ),
    "dpcore.audit.learner": function(
        audit.learner,
        fit_predict=fit_and_score,
        X=X,
        y=Y,
        canaries=(X[:1], Y[:1]),
        epsilon=1.0,
        trials=100,
    ),
    "dpcore.audit.mechanism": function(
        audit.mechanism, m=local.Duchi(1.0), epsilon=1.0, trials=1000
    ),
    # Clusters, labels, series
    "dpcore.cluster.kmeans": function(cluster.kmeans, X=X, n_clusters=2),
    "dpcore.cluster.nearest_center": function(cluster.nearest_center, X=X, centers=X[:2]),
    "dpcore.labeling.cluster_shares": function(
        labeling.cluster_shares,
        clusters=[0, 1, 1, 0],
        batches=[0, 0, 1, 1],
        n_clusters=2,
        n_batches=2,
    ),
    "dpcore.labeling.label_clusters": function(
        labeling.label_clusters, shares=SHARES, targets=TARGETS
    ),
    "dpcore.proportions.label_counts": function(
        proportions.label_counts, labels=[0, 1, 1], batches=[0, 0, 1], n_batches=2, n_labels=2
    ),
    "dpcore.proportions.label_counts_event": function(proportions.label_counts_event, epsilon=1.0),
    "dpcore.proportions.paper_proportions": function(
        proportions.paper_proportions, counts=[[3, 5], [4, 4]], epsilon=1.0
    ),
    "dpcore.proportions.release_label_counts": function(
        proportions.release_label_counts, counts=[[3, 5], [4, 4]], epsilon=1.0
    ),
    "dpcore.series.Bins": function(series.Bins, edges=(1.0, 2.0, 3.0)),
    "dpcore.series.align": function(series.align, series=SERIES, width=5, horizon=1, batch_size=32),
    "dpcore.series.nearest_neighbours": function(
        series.nearest_neighbours, positions=[[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], n_neighbours=1
    ),
    "dpcore.series.neighbours_from_adjacency": function(
        series.neighbours_from_adjacency, adjacency=np.ones((3, 3))
    ),
    "dpcore.series.purged_folds": Case(
        lambda **given: list(series.purged_folds(**given)),
        {"batches": BATCHES, "n_folds": 3, "gap": 6},
    ),
    "dpcore.series.windows": function(series.windows, series=SERIES[:, 0], width=5, horizon=1),
    # Data
    "dpcore.data.load_sensors": function(data.load_sensors, path=SENSORS),
    "dpcore.data.save_sensors": function(
        data.save_sensors, path=SENSORS.with_name("saved.npz"), data=data.traffic(3, 1)
    ),
    "dpcore.data.traffic": function(data.traffic, n_nodes=3, days=1),
    # Federated learning
    "dpcore.federated.Delays": function(federated.Delays),
    "dpcore.federated.Loss": function(
        federated.Loss,
        name="square",
        kind="residual",
        derivative_bound=2.0,
        curvature_bound=2.0,
        terms=_loss_terms,
    ),
    "dpcore.federated.custom_loss": function(
        federated.custom_loss, function=linear, derivative_bound=2.0, curvature_bound=2.0
    ),
    "dpcore.federated.make_loss": function(federated.make_loss, loss="logistic"),
    "dpcore.federated.simulate": function(
        federated.simulate, n=4, n_rounds=3, barrier=2, max_delay=2
    ),
    # Learners: their parameters, and what they are fitted to
    "dpcore.learners.CentralClassifier": settings(learners.CentralClassifier, X, Y),
    "dpcore.learners.CentralRegressor": settings(learners.CentralRegressor, X, Y / 2),
    "dpcore.learners.ConsensusADMMClassifier": settings(
        learners.ConsensusADMMClassifier, X, Y, **ADMM
    ),
    "dpcore.learners.ConsensusADMMRegressor": settings(
        learners.ConsensusADMMRegressor, X, Y / 2, n_users=4, n_rounds=2
    ),
    "dpcore.learners.LDPFedSGDClassifier": settings(
        learners.LDPFedSGDClassifier, X, Y, classes=[0, 1]
    ),
    "dpcore.learners.LDPFedSGDRegressor": settings(learners.LDPFedSGDRegressor, X, Y / 2),
    "dpcore.learners.LabelProportionClassifier": settings(
        learners.LabelProportionClassifier,
        X,
        [[0.5, 0.5]] * 4,
        np.arange(40) // 10,
        n_clusters=2,
        n_starts=2,
    ),
    "dpcore.learners.LabelProportionNetwork": settings(
        learners.LabelProportionNetwork, SERIES, RING, **NETWORK
    ),
    "dpcore.learners.LocalOnlyClassifier": settings(
        learners.LocalOnlyClassifier, X, Y, n_users=2, random_state=0
    ),
    "dpcore.learners.LocalOnlyRegressor": settings(
        learners.LocalOnlyRegressor, X, Y / 2, n_users=2
    ),
    "dpcore.learners.LocalPrivatizer": settings(learners.LocalPrivatizer, X),
    "dpcore.learners.PrivateForecaster": settings(
        learners.PrivateForecaster, SERIES[:90], RING, options={"n_train": 80}, **FORECASTER
    ),
    "dpcore.learners.PrivateGLVQ": settings(learners.PrivateGLVQ, X, Y, **LVQ),
    "dpcore.learners.PrivateGMLVQ": settings(learners.PrivateGMLVQ, X, Y, **LVQ),
    "dpcore.learners.GLVQ": settings(lvq.GLVQ, X, Y),
    "dpcore.learners.GMLVQ": settings(lvq.GMLVQ, X, Y),
    "dpcore.learners.make_baseline": function(learners.make_baseline, name="knn", bins=BINS),
    "dpcore.learners.suggest_parameters": function(
        learners.suggest_parameters, n_rows=1000, n_labels=4, epsilon=0.5
    ),
    "dpcore.learners.forecast.HistogramLSTM": function(forecast.HistogramLSTM, n_nodes=2),
    "dpcore.learners.forecast.average_day": function(
        forecast.average_day, series=SERIES, n_train=300, times=[320], steps_per_day=96
    ),
    "dpcore.learners.forecast.bucket_counts": function(
        forecast.bucket_counts, series=SERIES[:, :, None], bins=[BINS], length=12
    ),
    "dpcore.learners.forecast.last_value": function(
        forecast.last_value, series=SERIES, times=[320]
    ),
    "dpcore.learners.forecast.nearest_window": function(
        forecast.nearest_window, series=SERIES, n_train=300, times=[320]
    ),
    "dpcore.learners.forecast.neighbour_histograms": function(
        forecast.neighbour_histograms, sent=SENT, neighbours=RING, exact=COUNTS
    ),
    "dpcore.learners.forecast.release_counts": function(
        forecast.release_counts, counts=COUNTS, bins=[BINS], length=12, epsilon=1.0
    ),
    # Local mechanisms
    "dpcore.local.Categorical": function(local.Categorical, name="a", categories=["x", "y"]),
    "dpcore.local.Duchi": _mechanism(local.Duchi),
    "dpcore.local.DuchiMulti": function(local.DuchiMulti, epsilon=1.0, d=3),
    "dpcore.local.GRR": function(local.GRR, epsilon=1.0, n_categories=3),
    "dpcore.local.Hybrid": _mechanism(local.Hybrid),
    "dpcore.local.HybridJoint": _mechanism(local.HybridJoint),
    "dpcore.local.HybridTP": _mechanism(local.HybridTP),
    "dpcore.local.Laplace": _mechanism(local.Laplace),
    "dpcore.local.Numeric": function(local.Numeric, name="a", lower=0.0, upper=1.0),
    "dpcore.local.OUE": function(local.OUE, epsilon=1.0, n_categories=3),
    "dpcore.local.OptimalOutputs": _mechanism(local.OptimalOutputs),
    "dpcore.local.Piecewise": _mechanism(local.Piecewise),
    "dpcore.local.PiecewiseOpt": _mechanism(local.PiecewiseOpt),
    "dpcore.local.PiecewiseSub": _mechanism(local.PiecewiseSub),
    "dpcore.local.SplitBudget": function(local.SplitBudget, schema=SCHEMA, epsilon=1.0),
    "dpcore.local.ThreeOutputs": _mechanism(local.ThreeOutputs),
    "dpcore.local.Tuple": function(local.Tuple, schema=SCHEMA, epsilon=1.0),
    "dpcore.local.Vector": function(local.Vector, d=3, epsilon=1.0),
    "dpcore.local.best": function(local.best, epsilon=1.0),
    "dpcore.local.best_categorical": function(local.best_categorical, epsilon=1.0, n_categories=3),
    "dpcore.local.make": function(local.make, name="pm", epsilon=1.0),
    # Randomness
    "dpcore.random.ChaCha20": Case(random.ChaCha20, {"key": bytes(32), "nonce": 0}),
    "dpcore.random.bernoulli": function(random.bernoulli, p=0.5),
    "dpcore.random.discrete_gaussian": function(random.discrete_gaussian, sigma=2.0),
    "dpcore.random.discrete_laplace": function(random.discrete_laplace, scale=2.0),
    "dpcore.random.geometric": function(random.geometric, scale=2.0),
    "dpcore.random.integers": function(random.integers, low=0, high=5),
    "dpcore.random.rounded_gaussian": function(random.rounded_gaussian, sigma=2.0),
    # Secure aggregation
    "dpcore.secure.Client": function(
        secure.Client, number=0, identity=IDENTITY, directory=DIRECTORY, parameters=PARAMETERS
    ),
    "dpcore.secure.Cohort": function(secure.Cohort, parameters=PARAMETERS, n_clients=5),
    "dpcore.secure.DistributedGaussian": function(
        secure.DistributedGaussian, share_sigma=20, honest=3, sensitivity=10, dimension=2
    ),
    "dpcore.secure.FixedPoint": function(secure.FixedPoint, bound=1.0),
    "dpcore.secure.Identity": function(secure.Identity),
    "dpcore.secure.Parameters": function(
        secure.Parameters, session=bytes(16), dimension=3, bound=1.0
    ),
    "dpcore.secure.Server": function(
        secure.Server, parameters=PARAMETERS, directory=DIRECTORY, number=1
    ),
    "dpcore.secure.always_connected": function(
        secure.always_connected, graph=np.array([[1, 2], [0, 2], [0, 1]]), least_honest=2
    ),
    "dpcore.secure.choose_degree": function(secure.choose_degree, n=100),
    "dpcore.secure.distributed_gaussian": function(
        secure.distributed_gaussian,
        fixed_point=secure.FixedPoint(1.0),
        dimension=3,
        sensitivity=1.0,
        min_survivors=5,
        honest_fraction=0.8,
        epsilon=1.0,
        delta=1e-6,
    ),
    "dpcore.secure.honest_survivors": function(
        secure.honest_survivors, min_survivors=5, honest_fraction=0.8
    ),
    "dpcore.secure.security": function(secure.security, n=100, degree=20),
    "dpcore.secure.share_sigma": function(secure.share_sigma, sigma=20.0, honest=4),
    # Wire
    "dpcore.wire.n_bits_for": function(wire.n_bits_for, n_outputs=5),
    "dpcore.wire.pack": function(wire.pack, codes=[1, 2], kind=1, n_bits=2),
    "dpcore.wire.unpack": function(wire.unpack, data=MESSAGE),
}

# What is called on objects: data that come from people, and bytes that come from anywhere.
MECHANISM = local.PiecewiseSub(1.0)
COLLECTOR = local.Tuple(SCHEMA, 4.0)
METHODS: dict[str, Case] = {
    "Mechanism.encode": function(MECHANISM.encode, x=POINTS),
    "Mechanism.privatize": function(MECHANISM.privatize, x=POINTS),
    "Mechanism.decode": function(MECHANISM.decode, codes=[0, 1]),
    "Mechanism.estimate": function(MECHANISM.estimate, codes=[0, 1]),
    "Mechanism.pack": function(MECHANISM.pack, codes=[0, 1]),
    "Mechanism.unpack": function(MECHANISM.unpack, message=MECHANISM.pack([0, 1])),
    "Mechanism.pmf": function(MECHANISM.pmf, x=POINTS),
    "Mechanism.variance": function(MECHANISM.variance, x=POINTS),
    "Tuple.encode": function(COLLECTOR.encode, columns=RECORDS),
    "Tuple.estimate": function(COLLECTOR.estimate, reports=COLLECTOR.encode(RECORDS)),
    "GRR.encode": function(local.GRR(1.0, 3).encode, values=[0, 1]),
    "OUE.encode": function(local.OUE(1.0, 3).encode, values=[0, 1]),
    "DuchiMulti.encode": function(local.DuchiMulti(1.0, 2).encode, x=X),
    "Noise.from_key": Case(dpcore.Noise.from_key, {"key": bytes(32)}),
    "Noise.insecure": Case(dpcore.Noise.insecure, {"seed": 1}),
    "Noise.stream": Case(lambda ids: dpcore.Noise().stream(ids), {"ids": 1}),
    "Ledger.charge": Case(charged, {"event": PURE}),
    "Composition.epsilon": Case(
        lambda delta: accounting.compose([PURE]).epsilon(delta), {"delta": 0.0}
    ),
    "FixedPoint.encode": Case(lambda x: secure.FixedPoint(1.0).encode(x), {"x": POINTS}),
    "LocalPrivatizer.transform": using(learners.LocalPrivatizer().fit(X), "transform", X=X),
    "CentralClassifier.predict": using(learners.CentralClassifier().fit(X, Y), "predict", X=X),
    "LocalOnlyRegressor.predict": using(learners.LocalOnlyRegressor().fit(X, Y), "predict", X=X),
    "ConsensusADMMClassifier.predict": using(
        learners.ConsensusADMMClassifier(**ADMM).fit(X, Y), "predict", X=X
    ),
    "LDPFedSGDRegressor.predict": using(learners.LDPFedSGDRegressor().fit(X, Y), "predict", X=X),
    "PrivateGMLVQ.transform": using(learners.PrivateGMLVQ(**LVQ).fit(X, Y), "transform", X=X),
    "LabelProportionClassifier.predict": using(
        learners.LabelProportionClassifier(2).fit(X, Y), "predict", X=X
    ),
    "PrivateForecaster.predict": using(
        learners.PrivateForecaster(**FORECASTER).fit(SERIES, RING), "predict", times=[390]
    ),
    "LabelProportionNetwork.predict": using(
        learners.LabelProportionNetwork(**NETWORK).fit(SERIES, RING), "predict", rows=None
    ),
    "Bins.label": function(BINS.label, values=POINTS),
    "Bins.relative": function(Bins.relative, capacity=10.0),
    "Bins.from_history": function(Bins.from_history, history=POINTS),
    "Event.from_json": function(accounting.Event.from_json, text=PURE.to_json()),
    "LabelCounts.from_bytes": function(
        proportions.LabelCounts.from_bytes, data=RELEASED.to_bytes()
    ),
    "LabelCounts.proportions": function(RELEASED.proportions),
    "Reports.from_bytes": function(
        local.Reports.from_bytes, data=COLLECTOR.encode(RECORDS).to_bytes(), collector=COLLECTOR
    ),
    "Estimate.interval": function(MECHANISM.estimate([0, 1]).interval),
    "Cohort.round": Case(
        lambda **given: secure.Cohort(PARAMETERS, 5).round(**given),
        {"vectors": np.ones((5, 3)), "dropouts": None},
    ),
    "Parameters.from_bytes": function(secure.Parameters.from_bytes, data=PARAMETERS.to_bytes()),
    "Server.accept": Case(
        lambda **given: secure.Server(PARAMETERS, DIRECTORY, 1).accept(**given),
        {
            "sender": 0,
            "data": secure.Client(0, IDENTITY, DIRECTORY, PARAMETERS).advertise(BEGIN),
        },
    ),
    "Client.advertise": Case(
        lambda message: secure.Client(0, IDENTITY, DIRECTORY, PARAMETERS).advertise(message),
        {"message": BEGIN},
    ),
    "CentralClassifier.fit": fitting(learners.CentralClassifier, {}, X=X, y=Y),
    "ConsensusADMMClassifier.fit": fitting(learners.ConsensusADMMClassifier, ADMM, X=X, y=Y),
    "LDPFedSGDClassifier.fit": fitting(learners.LDPFedSGDClassifier, {"classes": [0, 1]}, X=X, y=Y),
    "LabelProportionNetwork.fit": fitting(
        learners.LabelProportionNetwork, NETWORK, series=SERIES, neighbours=RING
    ),
    "LabelProportionClassifier.fit": fitting(
        learners.LabelProportionClassifier,
        {"n_clusters": 2},
        X=X,
        proportions=[[0.5, 0.5]] * 4,
        batches=np.arange(40) // 10,
    ),
    "PrivateForecaster.fit": fitting(
        learners.PrivateForecaster, FORECASTER, series=SERIES[:90], neighbours=RING, n_train=80
    ),
    "PrivateGLVQ.fit": fitting(learners.PrivateGLVQ, LVQ, X=X, y=Y),
    "PrivateGMLVQ.fit": fitting(learners.PrivateGMLVQ, LVQ, X=X, y=Y),
}
