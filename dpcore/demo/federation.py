"""Hospitals that learn together: consensus ADMM under secure aggregation, one of them leaving."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcore.demo.plots import BLUE, GREY, ORANGE, drawing
from dpcore.demo.section import Context, Quality, Section

__all__ = ["run"]

_EPSILON, _DELTA = 2.0, 1e-6
_USERS, _FEATURES, _SEEN = 20, 20, 5
_CODE = """\
model = ConsensusADMMClassifier(
    epsilon=2.0, delta=1e-6, rho=100, secure=True, classes=[0, 1], barrier=17
)
model.fit(X, y, users=hospital)      # the server sees masked sums only"""


def run(context: Context) -> Section:
    from dpcore.federated import Delays
    from dpcore.learners import CentralClassifier, ConsensusADMMClassifier, LocalOnlyClassifier

    each = 500 if context.quick else 2000
    X, y, users, held_out = _patients(each)
    section = Section(
        "federation",
        "Federated ADMM under secure aggregation, with a user dropping out",
        f"{_USERS} made-up hospitals with {each:,} patients each measure {_SEEN} of {_FEATURES} "
        "things, and want one model of all of them. In every round each sends one noisy, masked "
        "vector; the server can open the sum, and nothing else. Slow hospitals miss rounds, and "
        "one leaves for good.",
        _CODE,
    )
    context.step(1, 4, "in one place, and alone")
    central = CentralClassifier(beta=1.0).fit(X, y).score(*held_out)
    alone = LocalOnlyClassifier(beta=1.0).fit(X, y, users=users).score(*held_out)
    context.step(2, 4, "together")
    with context.ledger("federation", _EPSILON, _DELTA) as ledger:
        # The schedule of this random_state loses one user for good, in the ninth round.
        model = ConsensusADMMClassifier(
            epsilon=_EPSILON, delta=_DELTA, rho=100, relaxation=1.5, n_rounds=12, tail=3,
            barrier=17, max_delay=3, delays=Delays(spread=0.3, leave=0.006), honest=0.9,
            secure=True, classes=[0, 1], random_state=4,
        )  # fmt: skip
        model.fit(X, y, users=users, validation=held_out)
    section.charge(ledger, model.privacy_)
    section.quality.append(
        Quality(
            "accuracy on new patients",
            float(central),
            float(model.score(*held_out)),
            float(alone),
            "hospitals alone",
        )
    )
    left = int(model.schedule_.n_left[-1])
    section.facts.append(
        f"{model.n_rounds_} rounds of {min(map(len, model.schedule_.participants))} to "
        f"{max(map(len, model.schedule_.participants))} hospitals; {left} left for good, and what "
        "it had contributed stays in the model."
    )
    context.step(3, 4, "a user who falls silent in the middle of a round")
    section.facts.append(_silent_user())
    if context.plots:
        _plot(section, model, float(central), float(alone))
    return section


def _patients(each: int) -> tuple[Any, Any, Any, tuple[Any, Any]]:
    """Records, labels, who holds them, and held-out records with everything measured."""
    generator = np.random.default_rng(0)
    n, n_test = _USERS * each, 4000
    w = generator.normal(size=_FEATURES)
    X = generator.normal(size=(n + n_test, _FEATURES))
    users = np.arange(n) // each
    for user in range(_USERS):
        measured = (user + np.arange(_SEEN) * (_FEATURES // _SEEN)) % _FEATURES
        hidden = np.setdiff1d(np.arange(_FEATURES), measured)
        X[np.ix_(np.flatnonzero(users == user), hidden)] = 0.0
    scores = X @ w / np.linalg.norm(w) + 0.2 * generator.normal(size=n + n_test)
    y = (scores > 0).astype(int)
    X /= 6
    return X[:n], y[:n], users, (X[n:], y[n:])


def _silent_user() -> str:
    """One secure sum where a user vanishes after the others have masked for it."""
    from dpcore.secure import Cohort, Parameters

    parameters = Parameters(b"demo", dimension=5, bound=8.0, max_clients=20, min_clients=12)
    vectors = np.arange(100.0).reshape(20, 5) % 8
    result = Cohort(parameters, 20).round(vectors, dropouts={"mask": [3]})
    right = np.array_equal(result.total, np.delete(vectors, 3, axis=0).sum(axis=0))
    return (
        "In a further sum user 3 falls silent when the others have already masked their vectors "
        f"against it; {len(result.survivors)} survivors repair the sum, which is "
        f"{'exactly' if right else 'NOT'} that of their vectors."
    )


def _plot(section: Section, model: Any, central: float, alone: float) -> None:
    rounds = np.arange(1, model.n_rounds_ + 1)
    left = int(np.argmax(model.schedule_.n_left > 0)) + 1
    with drawing(
        section.figures,
        "Accuracy by round",
        f"Accuracy of the common model after every round, at epsilon {_EPSILON:g} for all rounds "
        f"together; the dotted line marks round {left}, in which one hospital was given up.",
    ) as axis:
        axis.plot(rounds, model.history_["accuracy"], "o-", color=BLUE, label="together, private")
        axis.axhline(central, color=GREY, label="all data in one place")
        axis.axhline(alone, color=ORANGE, ls="--", label="each alone")
        axis.axvline(left, color=GREY, ls=":")
        axis.set_xlabel("round")
        axis.set_ylabel("accuracy")
        axis.set_ylim(0.5, 1)
        axis.legend(frameon=False, loc="lower right")
    with drawing(
        section.figures,
        "Who took part",
        "Hospitals (rows) whose message entered each round (columns): late ones are waited for "
        "twice at most, and the one that left stays white.",
    ) as axis:
        grid = np.zeros((model.n_users_, model.n_rounds_))
        for number, present in enumerate(model.schedule_.participants):
            grid[present, number] = 1
        axis.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
        axis.set_xticks(rounds[1::2] - 1, rounds[1::2])
        axis.set_yticks([])
        axis.set_xlabel("round")
        axis.set_ylabel("hospital")
