"""What prototype learners take and refuse at the door, and what they say of themselves."""

import datetime
import subprocess
import sys
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pandas
import pytest
from sklearn.base import clone

import dpcore
from dpcore import Noise
from dpcore.errors import DataError, ParameterError
from dpcore.learners import PrivateGLVQ, PrivateGMLVQ
from dpcore.learners.lvq import GLVQ, GMLVQ
from dpcore.noise import NotPrivateArray

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 400)
X = np.clip(RNG.normal(1.5 * Y[:, None] - 0.75, 1, (400, 3)), -4, 4)
NAMES = ["a", "b", "c"]
PUBLIC = {"classes": [0, 1], "bounds": (-4, 4)}
LOWER, UPPER = [-4.0, -5.0, -6.0], [4.0, 7.0, 9.0]


def pinned(name="surface"):
    return Noise.insecure(3).stream(name)


def private(kind=PrivateGLVQ, **options):
    return kind(1.0, **{**PUBLIC, "n_steps": 2, "noise": pinned(), **options})


def unspent(tmp_path, call, message, error=ParameterError):
    """The error of a call that costs nothing."""
    with dpcore.Ledger(tmp_path / "study.sqlite", epsilon=9.0, delta=1e-4) as ledger:
        with pytest.raises(error, match=message) as raised:
            call()
        assert ledger.spent[0] == 0
    return str(raised.value)


# Bounds


@pytest.mark.parametrize(
    "bounds",
    [
        {-4.0: "lower", 4.0: "upper"},
        {"lower": -4, "upper": 4},
        {-4.0, 4.0},
        frozenset({-4.0, 4.0}),
        {-4.0: 0, 4.0: 0}.keys(),
        pandas.DataFrame([LOWER, UPPER], columns=NAMES),
        pandas.DataFrame({-4.0: [1, 2, 3], 4.0: [4, 5, 6]}),
    ],
    ids=lambda b: type(b).__name__,
)
def test_bounds_without_an_order_of_their_own_are_refused(bounds, tmp_path):
    text = unspent(tmp_path, lambda: private(bounds=bounds).fit(X, Y), "'bounds' parameter must be")
    assert "a pair (lower, upper)" in text


def test_bounds_indexed_by_name_are_put_in_the_order_of_the_columns():
    frame = pandas.DataFrame(X, columns=NAMES)
    order = ["c", "a", "b"]
    by_name = tuple(pandas.Series(side, NAMES)[order] for side in (LOWER, UPPER))
    expected = private(bounds=(LOWER, UPPER)).fit(frame, Y).prototypes_
    np.testing.assert_array_equal(private(bounds=by_name).fit(frame, Y).prototypes_, expected)
    plain = (pandas.Series(LOWER), pandas.Series(UPPER))
    np.testing.assert_array_equal(private(bounds=plain).fit(frame, Y).prototypes_, expected)


@pytest.mark.parametrize("index", [["a", "b", "d"], ["a", "b", "b"], ["a", "b"]])
def test_bounds_with_other_names_are_refused(index, tmp_path):
    frame = pandas.DataFrame(X, columns=NAMES)
    side = pandas.Series(LOWER[: len(index)], index)
    learner = private(bounds=(side, 4.0))
    text = unspent(tmp_path, lambda: learner.fit(frame, Y), "'bounds' parameter must be indexed")
    assert "the columns of 'X'" in text


def test_bounds_that_lie_on_their_side_are_recognised():
    with pytest.raises(ParameterError, match=r"of shape \(2, n_features\): transpose it"):
        private(bounds=np.column_stack([LOWER, UPPER])).fit(X, Y)
    with pytest.raises(ParameterError) as raised:
        private(bounds=(LOWER[:2], UPPER[:2])).fit(X, Y)
    assert "transpose" not in str(raised.value)


@pytest.mark.filterwarnings("error")
def test_later_data_of_a_dtype_that_the_bounds_do_not_fit_are_refused(tmp_path):
    learner = private(bounds=(-1e300, 1e300)).fit(X, Y)
    call = partial(learner.partial_fit, X.astype(np.float32), Y)
    unspent(tmp_path, call, "'X' parameter must be of a dtype", DataError)
    assert learner.predict(X.astype(np.float32)).shape == (400,)


# Data


@pytest.mark.parametrize("kind", [PrivateGLVQ, PrivateGMLVQ])
def test_rows_may_lie_in_memory_in_any_order(kind):
    learner = private(kind, noise=Noise.from_key(bytes(32)).stream("order"))
    found = [
        clone(learner).fit(data, Y).prototypes_
        for data in (X, np.asfortranarray(X), pandas.DataFrame(X), np.repeat(X, 2, axis=1)[:, ::2])
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_checked_data_are_contiguous():
    learner = private()
    x, _ = learner._check_input(np.asfortranarray(X), Y, [0, 1], reset=True)
    assert x.flags.c_contiguous


@pytest.mark.filterwarnings("error")
def test_given_classes_are_all_that_labels_are_compared_with():
    private(classes=range(30)).fit(X[:24], np.arange(24))
    with pytest.raises(DataError, match="labels of the 'classes'"):
        private().fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("classes", "labels"), [([0, 1], ["a", "b"]), (["0", "1"], [0, 1]), (["0", "1"], [0.0, 1.0])]
)
def test_labels_of_another_kind_than_the_classes_are_refused(classes, labels):
    learner = private(classes=classes)
    for dtype in (None, object):
        with pytest.raises(DataError, match="'y' parameter must hold"):
            learner.fit(X, np.array(labels, dtype)[Y])


# Further records


@pytest.mark.parametrize(
    "classes", [[0, 2], [0, 1, 2], ["0", "1"], [1]], ids=lambda classes: str(classes)
)
def test_later_calls_refuse_other_classes(classes, tmp_path):
    learner = private().partial_fit(X, Y, classes=[0, 1])
    call = partial(learner.partial_fit, X, Y, classes=classes)
    said = unspent(tmp_path, call, "'classes' parameter must be what it was")
    assert said.endswith("call fit for a new model.")
    learner.partial_fit(X, Y, classes=[1, 0])


@pytest.mark.parametrize(
    "changed",
    [
        {"classes": [0, 1, 2]},
        {"classes": None},
        {"bounds": (-4, 5)},
        {"bounds": None},
        {"bounds": "none"},
        {"rank": 2},
        {"rank": 0},
        {"relevance": "diagonal"},
        {"relevance": "none"},
        {"prototypes_per_class": 2},
        {"prototypes_per_class": 0},
        {"radius": -1},
    ],
    ids=str,
)
def test_later_calls_refuse_other_parameters_of_the_model(changed, tmp_path):
    learner = private(PrivateGMLVQ).fit(X, Y)
    before = learner.prototypes_
    learner.set_params(**changed)
    unspent(tmp_path, partial(learner.partial_fit, X, Y), f"'{next(iter(changed))}' parameter")
    assert learner.prototypes_ is before


def test_later_calls_take_parameters_that_mean_the_same():
    learner = private(PrivateGMLVQ).fit(X, Y)
    learner.set_params(classes=(1, 0), bounds=([-4.0] * 3, np.full(3, 4)), rank=3)
    learner.partial_fit(X, Y)
    first = private(bounds=None, classes=None)
    with pytest.warns(dpcore.learners.InferredPublicWarning):
        first.partial_fit(X, Y)
    first.partial_fit(X[:9] / 2, Y[:9])


# Twins


@pytest.mark.parametrize("kind", [GLVQ, GMLVQ])
def test_twins_take_the_number_of_steps_of_the_private_learners(kind):
    assert kind().fit(X, Y).n_iter_ == 60
    assert kind(sampling_rate=0.5, n_steps=None).fit(X, Y).n_iter_ == 60
    assert kind(sampling_rate=0.1).fit(X, Y).n_iter_ == 300
    assert kind(sampling_rate=0.1, n_steps=7).fit(X, Y).n_iter_ == 7
    with pytest.raises(ParameterError, match="'sampling_rate' parameter must be at least"):
        kind(sampling_rate=1e-320).fit(X, Y)


@pytest.mark.parametrize("kind", [GLVQ, GMLVQ])
def test_twins_share_the_classes_of_the_private_learners(kind):
    np.testing.assert_array_equal(kind(**PUBLIC).fit(X, Y).classes_, [0, 1])
    with pytest.raises(DataError, match="'y' parameter must hold every class of the 'classes'"):
        kind(classes=[0, 1, 2]).fit(X, Y)
    with pytest.raises(DataError, match="labels of the 'classes'"):
        kind(classes=[0, 2]).fit(X, Y)


# Limits


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"radius": 1e-7}, r"'radius' parameter must lie between 1e-6 and 2 sqrt\(n_features\)"),
        ({"radius": 3.5}, r"'radius' parameter must lie between 1e-6 and 2 sqrt\(n_features\)"),
        ({"n_records": 0.5}, "'n_records' parameter must lie between 1 and 1e15"),
        ({"n_records": 2e15}, "'n_records' parameter must lie between 1 and 1e15"),
        ({"n_records": 0}, "'n_records'"),
        ({"relevance": "diagonal", "rank": 2}, "'rank' parameter must be None where 'relevance'"),
        ({"sampling_rate": 1e-320, "n_steps": None}, "'sampling_rate'"),
    ],
)
def test_limits_hold_before_anything_is_spent(parameters, message, tmp_path):
    learner = private(PrivateGMLVQ, noise=None, **parameters)
    assert next(iter(parameters)) in unspent(tmp_path, partial(learner.fit, X, Y), message)


def test_twins_know_the_same_limits():
    for radius in (1e-7, 3.5):
        with pytest.raises(ParameterError, match="'radius' parameter must lie between"):
            GLVQ(radius=radius).fit(X, Y)
    with pytest.raises(ParameterError, match="'rank' parameter must be None"):
        GMLVQ(relevance="diagonal", rank=1).fit(X, Y)


# The model


def test_all_features_begin_with_the_same_relevance():
    omega = PrivateGMLVQ(rank=2)._first_omega(7, np.random.RandomState(0))
    np.testing.assert_allclose(np.linalg.norm(omega, axis=0), 1)


@pytest.mark.parametrize("relevance", ["matrix", "diagonal"])
def test_everything_learned_with_insecure_noise_is_marked(relevance):
    learner = private(PrivateGMLVQ, relevance=relevance).fit(X, Y)
    for name in ("prototypes_", "omega_", "lambda_", "relevance_", "centre_"):
        assert isinstance(getattr(learner, name), NotPrivateArray), name
    assert not isinstance(learner._model.omega, NotPrivateArray)
    learner.set_params(noise=None).fit(X, Y)
    for name in ("prototypes_", "omega_", "lambda_", "relevance_", "centre_"):
        assert type(getattr(learner, name)) is np.ndarray, name
    assert type(GMLVQ().fit(X, Y).omega_) is np.ndarray


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"relevance": "diagonal"}], ids=str)
@pytest.mark.parametrize("kind", [partial(private, PrivateGMLVQ), GMLVQ])
def test_the_map_can_be_applied_by_hand(kind, options):
    bounds = ([-1, -2, -3], [1, 4, 3])
    model = kind(bounds=bounds, **options).fit(X, Y)
    middle, half = model.scale_
    by_hand = (np.clip((X - middle) / half, -1, 1) - model.centre_) @ model.omega_.T
    np.testing.assert_allclose(model.transform(X), np.asarray(by_hand), rtol=1e-10, atol=1e-12)


# What is wrong with data


DAY = datetime.date(2020, 5, 17)
TEXTS = np.array(["left", "right"], object)[Y]


def spoiled(values, value):
    objects = np.asarray(values).astype(object)
    objects.flat[3] = value
    return objects


@pytest.mark.parametrize("kind", [private, GLVQ])
@pytest.mark.parametrize(
    "labels",
    [
        spoiled(TEXTS, None),
        spoiled(TEXTS, 7),
        spoiled(TEXTS, DAY),
        spoiled(Y, "right"),
        spoiled(Y, {"right": 1}),
        pandas.Series(TEXTS, dtype="string").where(Y > 0),
        np.array(["2020-05-17", "2020-05-18"], "datetime64[D]")[Y],
        np.array([b"left", b"right"])[Y],
        np.column_stack([Y, Y]),
        [[0], [1, 2]] * 200,
    ],
)
def test_labels_that_are_none_are_refused_without_showing_them(kind, labels, tmp_path):
    for classes in (None, ["left", "right"]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpcore.learners.InferredPublicWarning)
            learner = kind(classes=classes)
            said = unspent(tmp_path, partial(learner.fit, X, labels), "'y' parameter", DataError)
        assert not [shown for shown in ("left", "right", "2020", "17") if shown in said]


@pytest.mark.parametrize("kind", [private, GLVQ])
@pytest.mark.parametrize(
    "x",
    [
        spoiled(X, {"secret": 17}),
        spoiled(X, DAY),
        spoiled(X, 17 + 1j),
        spoiled(X, [17]),
        spoiled(X, pandas.NA),
        spoiled(X, "secret"),
        pandas.DataFrame(X).assign(day=pandas.Timestamp("2017-01-17")),
        pandas.DataFrame({"day": pandas.Series([DAY] * 400, dtype="datetime64[ns]")}),
        np.full((400, 3), "2017-01-17", "datetime64[D]"),
    ],
)
def test_values_that_are_no_numbers_are_refused_without_showing_them(kind, x, tmp_path):
    said = unspent(tmp_path, partial(kind().fit, x, Y), "'X'", DataError)
    assert not [shown for shown in ("17", "secret") if shown in said]


@pytest.mark.parametrize("labels", [Y, Y > 0, Y + 0.0], ids=["integers", "booleans", "floats"])
def test_objects_that_are_numbers_are_labels(labels):
    fitted = private(classes=[0, 1]).fit(X, labels.astype(object))
    assert set(fitted.predict(X)) <= {0, 1}
    assert GLVQ().fit(X, labels.astype(object)).classes_.dtype == labels.dtype


# The plot


@pytest.fixture
def axes():
    import matplotlib

    matplotlib.use("Agg")
    yield lambda model, **options: model.plot_relevance(**options)
    matplotlib.pyplot.close("all")


def labels_of(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_many_bars_have_room_for_their_names(axes):
    x = RNG.normal(size=(200, 40))
    frame = pandas.DataFrame(x, columns=[f"a rather long name of column {i}" for i in range(40)])
    model = GMLVQ(n_steps=2).fit(frame, Y[:200])
    ax = axes(model, n_features=None)
    assert len(labels_of(ax)) == 40
    ax.figure.canvas.draw()
    boxes = sorted((t.get_window_extent() for t in ax.get_yticklabels()), key=lambda b: b.y0)
    assert all(low.y1 <= high.y0 + 0.5 for low, high in pairwise(boxes))
    assert min(box.x0 for box in boxes) >= 0
    assert axes(model).figure is not ax.figure


def test_a_plot_takes_names_axes_and_options(axes):
    from matplotlib.figure import Figure

    model = GMLVQ(relevance="diagonal").fit(X, Y)
    given = Figure().subplots()
    ax = axes(model, ax=given, n_features=2, feature_names=["u", "u", "w"], color="red")
    assert ax is given
    assert len(ax.patches) == 2
    assert ax.patches[0].get_facecolor()[:3] == (1, 0, 0)
    assert set(labels_of(ax)) <= {"u", "w"}
    assert ax.lines[0].get_xdata()[0] == pytest.approx(1 / 3)
    assert ax.get_legend().get_texts()[0].get_text() == "1 / n_features"
    assert set(labels_of(axes(model))) == {"x0", "x1", "x2"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"feature_names": ["a"]}, "feature_names"),
        ({"feature_names": "abc"}, "feature_names"),
        ({"n_features": 0}, "n_features"),
    ],
)
def test_a_plot_refuses_what_it_cannot_show(axes, options, name):
    with pytest.raises(ParameterError, match=f"'{name}'"):
        axes(GMLVQ(n_steps=2).fit(X, Y), **options)


# Surface


def test_twins_are_exported_with_the_other_learners():
    assert dpcore.learners.GLVQ is GLVQ
    assert dpcore.learners.GMLVQ is GMLVQ


def test_a_notebook_shows_learners_without_warnings():
    """In a process of its own: pytest forgets the filters of packages."""
    program = (
        "from dpcore.learners import GLVQ, LDPFedSGDClassifier, PrivateGMLVQ\n"
        "for learner in (GLVQ(), LDPFedSGDClassifier(), PrivateGMLVQ()):\n"
        "    assert type(learner).__name__ in learner._repr_html_()\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
