"""The prototype learners: scikit-learn's checks, training, and what they say."""

import math
import pickle
import warnings

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import dpcore
from dpcore import Noise
from dpcore.errors import (
    BudgetExceededError,
    DataError,
    ParameterError,
    RepeatedReleaseError,
)
from dpcore.learners import InferredPublicWarning, PrivateGLVQ, PrivateGMLVQ
from dpcore.learners.lvq import GLVQ, GMLVQ
from dpcore.learners.lvq.descent import Schedule, scaled_omega, stochastic_descent
from dpcore.learners.lvq.kernel import Model, Transfer, gradient_sums
from dpcore.noise import NotPrivateArray

PRIVATE = (PrivateGLVQ, PrivateGMLVQ)


def blobs(n=3000, d=5, k=3, seed=0, dtype=np.float64):
    """Gaussian clouds at corners of a cube within (-4, 4)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    centres = np.random.default_rng(7).choice([-1.5, 1.5], (k, d))
    return np.clip(rng.normal(centres[y], 0.8), -4, 4).astype(dtype), y


X, Y = blobs()
PUBLIC = {"classes": [0, 1, 2], "bounds": (-4, 4)}


def pinned(name="checks"):
    return Noise.insecure(3).stream(name)


@pytest.mark.filterwarnings("ignore::dpcore.learners.lvq.public.InferredPublicWarning")
@parametrize_with_checks(
    [
        PrivateGLVQ(epsilon=20.0, noise=pinned()),
        PrivateGMLVQ(epsilon=20.0, noise=pinned()),
        PrivateGMLVQ(epsilon=20.0, relevance="diagonal", noise=pinned()),
        GLVQ(),
        GMLVQ(),
        GMLVQ(solver="lbfgs", relevance="diagonal"),
    ]
)
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "learner",
    [
        PrivateGLVQ(2.0, **PUBLIC),
        PrivateGLVQ(2.0, **PUBLIC, prototypes_per_class=2),
        PrivateGLVQ(2.0, **PUBLIC, start="laplace"),
        PrivateGLVQ(2.0, **PUBLIC, start="independent", n_records=3000),
        PrivateGLVQ(2.0, **PUBLIC, sampling_rate=0.2),
        PrivateGMLVQ(2.0, **PUBLIC),
        PrivateGMLVQ(2.0, **PUBLIC, rank=2),
        PrivateGMLVQ(2.0, **PUBLIC, relevance="diagonal"),
        PrivateGMLVQ(2.0, **PUBLIC, transfer="identity"),
    ],
    ids=lambda e: repr(e).split("classes")[0] + repr(e)[-40:],
)
def test_every_way_of_training_learns(learner, dtype):
    x, y = X.astype(dtype), Y
    fitted = clone(learner).set_params(noise=pinned("learns"), random_state=1).fit(x, y)
    test_x, test_y = blobs(1000, seed=9, dtype=dtype)
    assert fitted.score(test_x, test_y) > 0.9
    assert fitted.privacy_.epsilon <= 2.0
    assert fitted.privacy_.adjacency == "add-remove"
    assert not fitted.privacy_.private


@pytest.mark.parametrize(
    ("learner", "clip", "rate", "omega_rate", "beta"),
    [(PrivateGLVQ, 0.9, 1.0, 0.0, 20.0), (PrivateGMLVQ, 2.0, 0.3, 0.25, 10.0)],
)
def test_defaults_follow_one_formula_of_the_radius(learner, clip, rate, omega_rate, beta):
    """With so much budget that no step is shortened."""
    fitted = learner(20.0, **PUBLIC, noise=pinned()).fit(X, Y)
    used, radius, d = fitted.schedule_, fitted.radius_, X.shape[1]
    assert used.clip == fitted.clip_ == clip / radius
    assert used.rate == pytest.approx(rate * radius**2)
    assert used.omega_rate == pytest.approx(omega_rate * math.sqrt(d) / fitted.clip_)
    assert used.omega_norm == math.sqrt(d)
    assert used.transfer == Transfer("logistic", beta)
    assert (used.steps, used.sampling_rate) == (60, 1.0)
    public = learner(20.0, **PUBLIC, radius=1.5, noise=pinned()).fit(X, Y)
    assert (public.radius_, public.clip_) == (1.5, clip / 1.5)


def test_the_rank_is_sixty_or_all_features():
    wide = np.random.default_rng(0).uniform(-4, 4, (50, 70))
    learner = PrivateGMLVQ(**PUBLIC, n_steps=1, noise=pinned())
    assert learner.fit(wide, Y[:50]).omega_.shape == (60, 70)
    assert learner.fit(wide[:, :7], Y[:50]).omega_.shape == (7, 7)


def test_secure_noise_by_default():
    fitted = PrivateGLVQ(**PUBLIC).fit(X, Y)
    assert fitted.privacy_.private
    assert not isinstance(fitted.prototypes_, NotPrivateArray)
    again = PrivateGLVQ(**PUBLIC).fit(X, Y)
    assert (fitted.prototypes_ != again.prototypes_).any()


def test_insecure_noise_is_visible():
    fitted = PrivateGLVQ(**PUBLIC, noise=Noise.insecure(1)).fit(X, Y)
    assert not fitted.privacy_.private
    assert isinstance(fitted.prototypes_, NotPrivateArray)


# What is public


@pytest.mark.parametrize("learner", PRIVATE)
def test_given_classes_and_bounds_are_covered(learner):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = learner(**PUBLIC).fit(X, Y)
    assert not [text for text in fitted.privacy_.not_covered if "missing" in text]


@pytest.mark.parametrize(("name", "text"), [("classes", "which classes"), ("bounds", "largest")])
def test_missing_public_parameters_are_said_aloud(name, text):
    given = {key: value for key, value in PUBLIC.items() if key != name}
    with pytest.warns(InferredPublicWarning, match=f"'{name}' parameter is missing"):
        fitted = PrivateGLVQ(**given).fit(X, Y)
    assert [entry for entry in fitted.privacy_.not_covered if text in entry]


@pytest.mark.parametrize(
    "fit",
    [
        PrivateGLVQ(n_steps=2).fit,
        PrivateGLVQ(n_steps=2).partial_fit,
        PrivateGMLVQ(n_steps=2, rank=2).fit_transform,
        make_pipeline(StandardScaler(), PrivateGLVQ(n_steps=2)).fit,
    ],
)
def test_the_warning_names_the_line_of_the_user(fit):
    with pytest.warns(InferredPublicWarning) as caught:
        fit(X, Y)
    assert len(caught) == 2
    assert {each.filename for each in caught} == {__file__}


def test_a_class_without_records_gets_a_prototype():
    fitted = PrivateGLVQ(classes=[0, 1, 2, 5], bounds=(-4, 4), noise=pinned()).fit(X, Y)
    assert fitted.prototype_labels_.tolist() == [0, 1, 2, 5]
    assert np.isfinite(fitted.prototypes_).all()


def test_values_beyond_the_bounds_count_as_the_bound():
    far = X.copy()
    far[0] = 1e6
    near = X.copy()
    near[0] = 4
    one, other = (
        PrivateGLVQ(**PUBLIC, noise=pinned()).fit(data, Y).prototypes_ for data in (far, near)
    )
    np.testing.assert_array_equal(one, other)


def test_labels_outside_the_classes_are_refused_without_naming_them():
    with pytest.raises(DataError, match="labels of the 'classes'") as raised:
        PrivateGLVQ(classes=[0, 1], bounds=(-4, 4)).fit(X, Y)
    assert "2" not in str(raised.value)


def test_a_constant_feature_maps_to_zero():
    x = np.column_stack([X, np.full(len(X), 9.0)])
    bounds = (np.array([-4.0] * 5 + [9.0]), np.array([4.0] * 5 + [9.0]))
    fitted = PrivateGLVQ(classes=[0, 1, 2], bounds=bounds, epsilon=5).fit(x, Y)
    assert fitted.score(x, Y) > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("narrow", [1e-50, 5e-324, 1e-45])
@pytest.mark.filterwarnings("error")
def test_a_range_too_narrow_to_be_halved_counts_as_constant(dtype, narrow):
    x = np.column_stack([X, np.zeros(len(X))]).astype(dtype)
    bounds = ([-4] * 5 + [0], [4] * 5 + [narrow])
    fitted = PrivateGMLVQ(5.0, classes=[0, 1, 2], bounds=bounds).fit(x, Y)
    assert fitted.score(x, Y) > 0.9


@pytest.mark.parametrize(
    ("dtype", "far"), [(np.float32, 1e300), (np.float32, 2e38), (np.float64, 1e308)]
)
@pytest.mark.filterwarnings("error")
def test_bounds_beyond_the_dtype_are_refused_before_anything_is_spent(dtype, far, tmp_path):
    with dpcore.Ledger(tmp_path / "study.sqlite", epsilon=2.0, delta=1e-5) as ledger:
        with pytest.raises(ParameterError, match="'bounds' parameter must be within reach"):
            PrivateGLVQ(classes=[0, 1, 2], bounds=(-far, far)).fit(X.astype(dtype), Y)
        assert ledger.spent[0] == 0


@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 3e38), (np.float64, 1e308)])
@pytest.mark.filterwarnings("ignore:.* in reduce:RuntimeWarning")  # of scikit-learn's checks
def test_ranges_of_the_data_beyond_the_dtype_are_refused(dtype, far):
    x = X.astype(dtype)
    x[:2] = [[-far], [far]]
    with pytest.raises(DataError, match="differences are finite"):
        GLVQ().fit(x, Y)


# Surface


def test_prediction_surface():
    fitted = PrivateGMLVQ(5.0, **PUBLIC, noise=pinned()).fit(X, Y)
    decision = fitted.decision_function(X)
    assert decision.shape == (len(X), 3)
    np.testing.assert_array_equal(fitted.classes_[decision.argmax(axis=1)], fitted.predict(X))
    two = PrivateGLVQ(classes=[0, 1], bounds=(-4, 4), noise=pinned()).fit(X[Y < 2], Y[Y < 2])
    margin = two.decision_function(X)
    np.testing.assert_array_equal((margin > 0).astype(int), two.predict(X))


def test_transform_is_the_projection_whose_distances_decide():
    fitted = PrivateGMLVQ(5.0, **PUBLIC, rank=2, noise=pinned(), random_state=0).fit(X, Y)
    z = fitted.transform(X)
    assert z.shape == (len(X), 2)
    assert fitted.get_feature_names_out().tolist() == ["privategmlvq0", "privategmlvq1"]
    frame = clone(fitted).set_output(transform="pandas").fit_transform(X, Y)
    assert list(frame.columns) == ["privategmlvq0", "privategmlvq1"]
    prototypes = fitted.transform(np.asarray(fitted.prototypes_))
    d = ((z[:, None] - prototypes) ** 2).sum(axis=2)
    np.testing.assert_array_equal(fitted.classes_[d.argmin(axis=1)], fitted.predict(X))


def test_relevance_finds_the_features_that_matter_and_plots():
    import matplotlib

    matplotlib.use("Agg")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 5000)
    x = rng.normal(0, 1, (5000, 4))
    x[:, 2] += 3 * y
    frame = pandas.DataFrame(np.clip(x, -4, 7), columns=["a", "b", "c", "d"])
    for relevance in ("matrix", "diagonal"):
        fitted = PrivateGMLVQ(
            2.0, classes=[0, 1], bounds=(-4, 7), relevance=relevance, noise=pinned()
        ).fit(frame, y)
        assert fitted.relevance_.argmax() == 2
        assert fitted.relevance_.sum() == pytest.approx(1)
        assert np.trace(fitted.lambda_) == pytest.approx(1)
        axes = fitted.plot_relevance(n_features=3)
        assert axes.get_yticklabels()[0].get_text() == "c"
        matplotlib.pyplot.close("all")


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_relevance_at_a_low_rank_is_learned_and_not_that_of_the_random_start(rank):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 5000)
    x = rng.normal(0, 1, (5000, 10))
    x[:, 0] += 3 * y
    for seed in range(4):
        learner = PrivateGMLVQ(2.0, classes=[0, 1], bounds=(-4, 7), rank=rank, random_state=seed)
        assert learner.set_params(noise=pinned()).fit(x, y).relevance_.argmax() == 0


def test_clone_and_pickle():
    fitted = PrivateGMLVQ(**PUBLIC).fit(X, Y)
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.predict(X), fitted.predict(X))
    assert restored.privacy_ == fitted.privacy_
    assert clone(fitted).get_params() == fitted.get_params()


def test_partial_fit_costs_each_batch_the_budget_once():
    learner = PrivateGLVQ(1.0, **PUBLIC, noise=Noise.insecure(5))
    learner.partial_fit(X[:1500], Y[:1500])
    first = learner.prototypes_
    learner.partial_fit(X[1500:], Y[1500:])
    assert (learner.prototypes_ != first).any()
    assert learner.privacy_.epsilon <= 1.0
    assert [text for text in learner.privacy_.not_covered if "more than once" in text]
    assert learner.score(X, Y) > 0.9
    assert abs(learner.n_records_ - 1500) < 300


@pytest.mark.parametrize("learner", PRIVATE)
def test_a_small_batch_does_not_undo_what_was_learned(learner):
    """Its noise is as large as ever, so its steps are as much shorter as it is smaller."""
    fitted = learner(1.0, **PUBLIC, noise=Noise.insecure(8)).fit(X, Y)
    before = fitted.score(X, Y)
    for begin in range(0, 500, 50):
        fitted.partial_fit(X[begin : begin + 50], Y[begin : begin + 50])
    assert fitted.score(X, Y) > before - 0.03


@pytest.mark.parametrize("learner", PRIVATE)
def test_steps_are_shorter_where_noise_would_undo_the_start(learner):
    """Few records and many features: the walk of the noise, not the data, sets the length."""
    few = learner(1.0, **PUBLIC, noise=Noise.insecure(9)).fit(X[:200], Y[:200])
    many = learner(20.0, **PUBLIC, noise=Noise.insecure(9)).fit(X, Y)
    usual = few._rate_factor * few.radius_**2
    walk = few.noise_multiplier_ * math.sqrt(few.schedule_.steps * 5) / few.schedule_.lot
    assert few.schedule_.rate == pytest.approx(usual * 0.55 / walk)
    assert few.schedule_.rate < 0.8 * usual
    assert many.schedule_.rate == many._rate_factor * many.radius_**2
    given = learner(1.0, **PUBLIC, learning_rate=0.7).fit(X[:200], Y[:200])
    assert given.schedule_.rate == 0.7


def test_privacy_after_further_records_is_that_of_the_costliest_call():
    learner = PrivateGLVQ(2.0, 1e-6, **PUBLIC, n_steps=2, noise=Noise.insecure(0))
    first = learner.fit(X[:1500], Y[:1500]).privacy_
    learner.set_params(epsilon=0.1, delta=1e-5, noise=None)
    said = learner.partial_fit(X[1500:].astype(np.float32), Y[1500:]).privacy_
    assert said.epsilon == first.epsilon
    assert said.delta == 1e-5
    assert said.events == first.events
    assert not said.private
    assert isinstance(learner.prototypes_, NotPrivateArray)
    learner.set_params(epsilon=3.0)
    later = learner.partial_fit(X[1500:], Y[1500:]).privacy_
    assert later.epsilon > 2.5
    assert not later.private
    assert len(set(later.not_covered)) == len(later.not_covered)
    assert learner.fit(X, Y).privacy_.private
    assert not isinstance(learner.prototypes_, NotPrivateArray)


def test_pinned_runs_share_noise_only_if_nothing_differs():
    """Two runs on one stream with equal noise and unequal sums would give away the difference."""
    noise = Noise.from_key(bytes(32)).stream("pinned")
    options = {**PUBLIC, "noise": noise, "random_state": 0}
    first = PrivateGLVQ(1.0, **options).fit(X, Y).n_records_
    assert PrivateGLVQ(1.0, **options).fit(X, Y).n_records_ == first
    assert PrivateGLVQ(1.0, **options, learning_rate=0.5).fit(X, Y).n_records_ != first
    assert PrivateGMLVQ(1.0, **options).fit(X, Y).n_records_ != first
    same = {**options, "bounds": (-4, [4, 4, 4, 4, 4])}
    assert PrivateGLVQ(1.0, **same).fit(X, Y).n_records_ == first
    other = {**options, "bounds": (-4, [4, 4, 4, 4, 4.5])}
    assert PrivateGLVQ(1.0, **other).fit(X, Y).n_records_ != first
    learner = PrivateGLVQ(1.0, **options).partial_fit(X, Y)
    counts = {learner.partial_fit(X, Y).n_records_ for _ in range(3)}
    assert len(counts) == 3
    # Step lengths follow how many records there were before.
    twins = [PrivateGLVQ(1.0, **options).partial_fit(X, Y) for _ in range(3)]
    twins[2]._n_seen += 1
    one, same, other = (twin.partial_fit(X[:500], Y[:500]).n_records_ for twin in twins)
    assert one == same != other


@pytest.mark.parametrize(
    "learner", [PrivateGLVQ(**PUBLIC), PrivateGMLVQ(**PUBLIC, n_steps=9), GLVQ(), GMLVQ(n_steps=9)]
)
def test_a_bar_is_shown_where_asked_and_changes_nothing(learner, capsys):
    if isinstance(learner, PRIVATE):
        learner = clone(learner).set_params(noise=pinned("bar"))
    learner.set_params(random_state=0)
    quiet = clone(learner).fit(X, Y)
    assert capsys.readouterr().err == ""
    shown = clone(learner).set_params(progress=True).fit(X, Y)
    steps = 9 if learner.n_steps == 9 else 60
    assert f"{steps}/{steps} steps" in capsys.readouterr().err
    np.testing.assert_array_equal(shown.prototypes_, quiet.prototypes_)


@pytest.mark.parametrize("learner", [PrivateGLVQ(**PUBLIC), PrivateGMLVQ(**PUBLIC, rank=3)])
def test_a_pinned_run_is_the_same_with_any_number_of_threads(learner):
    x, y = blobs(9000)
    found = []
    for n in (1, 3):
        dpcore.set_num_threads(n)
        with threadpool_limits(n):
            fitted = clone(learner).set_params(noise=pinned("threads"), random_state=0).fit(x, y)
        found.append([np.asarray(fitted.prototypes_), fitted.decision_function(X)])
    dpcore.set_num_threads(None)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def charged(path, learner, runs):
    """How often a ledger pays for the steps of runs on one pinned stream."""
    noise = Noise.from_key(bytes(32)).stream("pinned")
    with dpcore.Ledger(path / "study.sqlite", epsilon=9.0, delta=1e-4) as ledger:
        for run in runs:
            run(clone(learner).set_params(noise=noise))
        return sum(entry.event.mechanism == "lvq step" for entry in ledger.entries)


def test_a_pinned_run_is_one_release_as_long_as_it_is_the_same_function(tmp_path):
    """Whatever the random state is, if nothing is drawn from it."""
    runs = [lambda learner: learner.fit(X, Y)] * 2
    assert charged(tmp_path, PrivateGMLVQ(1.0, **PUBLIC), runs) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 2},
        {"prototypes_per_class": 2},
        {"start": "independent", "n_records": 3000},
        {"rank": 2, "random_state": np.random.RandomState(0)},
    ],
)
def test_pinned_runs_with_other_random_draws_are_other_releases(options, tmp_path):
    learner = PrivateGMLVQ(1.0, **PUBLIC, n_steps=2, **options)
    shared = options.get("random_state")  # clones would each have a copy
    runs = [lambda learner: learner.set_params(random_state=shared).fit(X, Y)] * 2
    assert charged(tmp_path, learner, runs) == 2


def test_pinned_runs_on_other_data_are_other_releases(tmp_path):
    learner = PrivateGLVQ(1.0, bounds=(-4, 4), n_steps=2)
    y = np.where(Y == 2, 1, Y)
    other = y.copy()
    other[0] = 1 - other[0]
    runs = [
        lambda learner: learner.partial_fit(X, y, classes=[0, 1]),
        lambda learner: learner.partial_fit(X, y, classes=[0, 1, 2]),
        lambda learner: learner.partial_fit(X[1:], y[1:], classes=[0, 1]),
        lambda learner: learner.partial_fit(X, other, classes=[0, 1]),
        lambda learner: learner.partial_fit(X, y, classes=[0, 1]),
    ]
    assert charged(tmp_path, learner, runs) == 4


def test_a_ledger_is_charged_before_anything_is_drawn(tmp_path):
    with dpcore.Ledger(tmp_path / "study.sqlite", epsilon=1.2, delta=1e-5) as ledger:
        PrivateGLVQ(1.0, **PUBLIC).fit(X, Y)
        assert 0.99 < ledger.spent[0] <= 1.0
        assert [entry.event.mechanism for entry in ledger.entries] == [
            "lvq step",
            "lvq sums",
            "lvq radius",
            "lvq centre",
        ]
        with pytest.raises(BudgetExceededError):
            PrivateGLVQ(1.0, **PUBLIC).fit(X, Y)


@pytest.mark.parametrize("start", ["gaussian", "laplace"])
def test_a_keyed_run_is_one_release_with_all_its_events(start, tmp_path):
    source = Noise.from_key(bytes(32))
    learner = PrivateGLVQ(1.0, **PUBLIC, n_steps=2, start=start)
    with dpcore.Ledger(tmp_path / "study.sqlite", epsilon=3.0, delta=1e-5) as ledger:
        first = clone(learner).set_params(noise=ledger.keyed("run", noise=source)).fit(X, Y)
        paid = [(entry.event, entry.key) for entry in ledger.entries]
        assert paid == [(event, '["run"]') for event in reversed(first.privacy_.events)]
        with pytest.raises(RepeatedReleaseError):
            ledger.keyed("run", noise=source)
        again = ledger.keyed("run", noise=source, repeat="same")
        same = clone(learner).set_params(noise=again).fit(X, Y)
        np.testing.assert_array_equal(first.prototypes_, same.prototypes_)
        with pytest.raises(RepeatedReleaseError):
            clone(learner).set_params(noise=again).fit(X[1:], Y[1:])
        assert len(ledger.entries) == len(paid)


def test_a_run_whose_last_event_does_not_fit_is_not_charged(tmp_path):
    """The steps alone would fit the budget of the ledger, but steps and start do not."""
    learner = PrivateGLVQ(1.0, **PUBLIC, start_share=0.5)
    with dpcore.Ledger(tmp_path / "study.sqlite", epsilon=0.9, delta=1e-5) as ledger:
        with pytest.raises(BudgetExceededError):
            learner.fit(X, Y)
        assert ledger.entries == []
        assert ledger.spent == (0.0, 0.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0}, "'epsilon'"),
        ({"epsilon": 100}, "'epsilon' parameter must be smaller"),
        ({"delta": 1.0}, "'delta'"),
        ({"classes": [1]}, "'classes' parameter must name at least two"),
        ({"bounds": (1, 0)}, "'bounds'"),
        ({"bounds": 3}, "'bounds'"),
        ({"start": "zero"}, "'start'"),
        ({"start": "independent"}, "'n_records' parameter must be given"),
        ({"start_share": 1.0}, "'start_share'"),
        ({"start_share": 1e-12}, "'start_share' parameter must be at least 1e-4"),
        ({"start_share": 1e-12, "start": "laplace"}, "'start_share' parameter must be at least"),
        ({"sampling_rate": 1e-320}, "'sampling_rate' parameter must be at least 3e-5"),
        ({"sampling_rate": 1e-300}, "'sampling_rate' parameter must be at least 3e-5"),
        (
            {"sampling_rate": 1e-320, "n_steps": 5},
            "'sampling_rate' parameter must be at least 1e-9",
        ),
        ({"sampling_rate": 0.5, "n_steps": 10**7}, "'n_steps' parameter must be at most 10\\*\\*6"),
        ({"transfer": "tanh"}, "'transfer'"),
        ({"sampling_rate": 1.5}, "'sampling_rate'"),
        ({"n_steps": 0}, "'n_steps'"),
        ({"n_steps": 2.5}, "'n_steps'"),
        ({"omega_learning_rate": -1}, "'omega_learning_rate'"),
        ({"clip": math.inf}, "'clip'"),
        ({"radius": -1}, "'radius'"),
        ({"sigma_rule": "paper"}, "'sigma_rule'"),
        ({"noise": 7}, "'noise'"),
        ({"rank": 6}, "'rank'"),
        ({"relevance": "none"}, "'relevance'"),
        ({"omega_norm": 0}, "'omega_norm'"),
        ({"prototypes_per_class": 0}, "'prototypes_per_class'"),
        ({"progress": "yes"}, "'progress'"),
        ({"beta": 1e300}, "'beta' parameter must lie between"),
    ],
)
def test_bad_parameters_are_named_and_nothing_is_spent(parameters, message, tmp_path):
    with dpcore.Ledger(tmp_path / "study.sqlite", epsilon=2.0, delta=1e-5) as ledger:
        with pytest.raises(ParameterError, match=message):
            PrivateGMLVQ(**{**PUBLIC, **parameters}).fit(X, Y)
        assert ledger.spent[0] == 0


# Twins without privacy


def test_full_batch_without_noise_is_gradient_descent():
    """sigma = 0, C = inf, q = 1: the loop equals explicit gradient descent, step by step."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (50, 4)), rng.integers(0, 2, 50)
    model = Model(rng.uniform(-1, 1, (2, 4)), np.array([0, 1]), np.eye(4))
    schedule = Schedule(7, 1.0, 50.0, math.inf, 0.4, 0.3, 2.0, Transfer())
    ours = stochastic_descent(x, y, model, schedule, np.random.RandomState(0))
    w, omega = model.prototypes, model.omega
    for _ in range(7):
        sums = gradient_sums(x, y, Model(w, model.codes, omega))
        w = np.clip(w - 0.4 / 50 * sums.prototypes, -2, 2)
        omega = omega - 0.3 / 50 * sums.omega
        omega = omega * (2.0 / np.sqrt(np.square(omega).sum()))
    np.testing.assert_array_equal(ours.prototypes, w)
    np.testing.assert_array_equal(ours.omega, omega)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3,)])
def test_an_omega_that_noise_left_empty_begins_anew(shape):
    omega = scaled_omega(np.zeros(shape), 2.0)
    size = omega.sum() if omega.ndim == 1 else np.square(omega).sum()
    assert size == pytest.approx(4.0)


@pytest.mark.parametrize("transfer", ["identity", "logistic"])
@pytest.mark.parametrize("learner", [GLVQ, GMLVQ])
def test_lbfgs_reaches_a_cost_no_higher_than_descent(learner, transfer):
    descent = learner(bounds=(-4, 4), transfer=transfer).fit(X, Y)
    quasi_newton = learner(bounds=(-4, 4), transfer=transfer, solver="lbfgs").fit(X, Y)
    assert quasi_newton.cost_ <= descent.cost_
    assert quasi_newton.score(X, Y) > 0.9
    assert descent.privacy_.epsilon == math.inf
    assert not descent.privacy_.private


def test_much_budget_agrees_with_the_twin():
    private = PrivateGLVQ(20.0, **PUBLIC, noise=pinned(), clip=1.5).fit(X, Y)
    twin = GLVQ(bounds=(-4, 4), radius=private.radius_).fit(X, Y)
    np.testing.assert_allclose(np.asarray(private.prototypes_), twin.prototypes_, atol=0.25)
