"""Sensors of a road network: labels from noisy proportions, forecasts from noisy histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcore.data import traffic
from dpcore.demo.plots import BLUE, GREY, ORANGE, drawing
from dpcore.demo.section import Context, Quality, Section
from dpcore.noise import Noise
from dpcore.series import Bins, neighbours_from_adjacency

__all__ = ["run_forecasts", "run_labels"]

_EPSILON = 0.5
_SWEEP = (0.05, 0.1, 0.2, 0.5, 1.0)
_LEVELS = Bins((0, 20, 35, 50, 70, 110))
_LEVEL_NAMES = ("free", "light", "dense", "heavy", "jam")
_LABEL_CODE = """\
network = LabelProportionNetwork(Bins((0, 20, 35, 50, 70, 110)), epsilon=0.5)
network.fit(density, neighbours)     # every sensor sends one noisy table
network.predict()"""
_FORECAST_CODE = """\
forecaster = PrivateForecaster(Bins.relative(80.0, 10), epsilon=0.5)
forecaster.fit(speed, neighbours, n_train=3000)
forecaster.predict()                 # the next hour at every sensor"""


def run_labels(context: Context) -> Section:
    """Traffic levels at sensors without labels of their own."""
    from dpcore.learners import LabelProportionNetwork

    n_nodes, days = (12, 7) if context.quick else (30, 14)
    road = traffic(n_nodes=n_nodes, days=days, seed=1)
    density = road.series[:, :, 1]
    neighbours = neighbours_from_adjacency(road.adjacency)
    labelled = np.arange(n_nodes) % 3 != 1
    section = Section(
        "labels",
        "Private label proportions on a road network",
        f"{n_nodes} sensors on a made-up ring road count vehicles for {days} days. A third of them "
        "never learned what is light and what is heavy traffic: they group their own readings and "
        "name the groups by the noisy tables that their neighbours send, one table each.",
        _LABEL_CODE,
    )
    cache: dict[str, Any] = {}

    def network(epsilon: float | None, **options: Any) -> tuple[Any, float]:
        made = LabelProportionNetwork(_LEVELS, epsilon=epsilon, cache=cache, **options)
        made.build(density, neighbours, labelled=labelled).exchange()
        early = np.arange(made.batches_.n_batches) < 0.75 * made.batches_.n_batches
        late = ~early[made.batches_.batch]
        return made, float(made.train(early).score(late)[~labelled].mean())

    context.step(1, 4, "without noise")
    _, plain = network(None)
    _, naive = network(None, model="majority")
    context.step(2, 4, "with noise")
    with context.ledger("labels", _EPSILON) as ledger:
        private, accuracy = network(_EPSILON)
    section.charge(ledger, private.privacy_)
    section.quality.append(
        Quality("accuracy at sensors without labels", plain, accuracy, naive, "commonest level")
    )
    section.facts += [
        f"{len(private.messages_)} messages of {private.n_bytes_ // len(private.messages_)} bytes "
        "on average are all that the sensors exchange.",
        "The baseline is told the commonest level of each sensor, which these sensors cannot know.",
    ]
    if context.plots:
        context.step(3, 4, "other epsilons")
        sweep, draws = (_SWEEP[::2], 1) if context.quick else (_SWEEP, 3)
        scores = {
            epsilon: [network(epsilon, noise=Noise.insecure(draw))[1] for draw in range(draws)]
            for epsilon in sweep
        }
        _plot_labels(section, private, scores, plain, naive)
    return section


def _plot_labels(
    section: Section, network: Any, found: dict[float, list[float]], plain: float, naive: float
) -> None:
    from dpcore.proportions import LabelCounts

    sweep, scores = list(found), np.array(list(found.values()))

    with drawing(
        section.figures,
        "Accuracy against epsilon",
        "Accuracy at sensors without labels, by the epsilon of the tables they receive (simulated, "
        "the range of all draws shaded): the distance to the grey line is the price of privacy.",
    ) as axis:
        axis.semilogx(sweep, scores.mean(axis=1), "o-", color=BLUE, label="private")
        axis.fill_between(sweep, scores.min(1), scores.max(1), color=BLUE, alpha=0.2, lw=0)
        axis.axhline(plain, color=GREY, label="without noise")
        axis.axhline(naive, color=ORANGE, ls="--", label="commonest level")
        axis.set_xticks(sweep, [f"{epsilon:g}" for epsilon in sweep])
        axis.minorticks_off()
        axis.set_ylim(0, 1)
        axis.set_xlabel("epsilon of one reading")
        axis.set_ylabel("accuracy")
        axis.legend(frameon=False, loc="lower right")
    sender, level, n_batches = 0, 0, 27  # three days
    sent = LabelCounts.from_bytes(network.tables_[sender]).proportions("none")[:n_batches]
    true = (network._counts[sender] / network.batches_.sizes[:, None])[:n_batches]
    with drawing(
        section.figures,
        "What a neighbour sees",
        f"The share of “{_LEVEL_NAMES[level]}” readings in batches of 32 at one sensor over three "
        f"days, and the noisy share that it sends at epsilon {_EPSILON:g}: single values say "
        "little, but many batches together tell which level is common when.",
    ) as axis:
        hours = np.arange(n_batches) * 32 * 5 / 60
        axis.plot(hours, true[:, level], color=GREY, label="true")
        axis.plot(hours, sent[:, level], "o", ms=4, color=BLUE, label="sent")
        axis.set_xlabel("hours")
        axis.set_ylabel("share of readings")
        axis.set_ylim(-1.0, 2.5)
        axis.legend(frameon=False, ncols=2)


def run_forecasts(context: Context) -> Section:
    """The speed of the next hour at every sensor."""
    import torch

    from dpcore.learners import PrivateForecaster
    from dpcore.learners.forecast import last_value

    n_nodes, days, epochs = (6, 6, 2) if context.quick else (16, 14, 6)
    road = traffic(n_nodes=n_nodes, days=days, seed=2, missing=0.0)
    speed = road.series[:, :, 0]
    neighbours = neighbours_from_adjacency(road.adjacency)
    n_train = int(0.75 * len(speed))
    section = Section(
        "forecasts",
        "Forecasts that listen to noisy neighbours",
        f"{n_nodes} sensors forecast their own speed for the next hour, each with an LSTM of its "
        "own. Neighbours send private histograms of the last hour, and each sensor decides on "
        "readings of its own whether to listen to them.",
        _FORECAST_CODE,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are small: more threads wait for each other
    options: dict[str, Any] = {"n_epochs": epochs, "inputs": ("neighbours", "clock"), "stride": 2}
    bins = Bins.relative(80.0, 10)
    try:
        context.step(1, 3, "without noise")
        plain = PrivateForecaster(bins, epsilon=None, **options)
        plain.fit(speed, neighbours, n_train=n_train)
        context.step(2, 3, "with noise")
        with context.ledger("forecasts", _EPSILON) as ledger:
            private = PrivateForecaster(bins, epsilon=_EPSILON, **options)
            private.fit(speed, neighbours, n_train=n_train)
        section.charge(ledger, private.privacy_)
        times = np.arange(n_train + 11, len(speed) - 12)
        truth = np.stack([speed[times + k] for k in range(1, 13)], axis=2)
        errors = {
            "last value": last_value(speed, times) - truth,
            "alone": _alone(private, times) - truth,
            "without noise": plain.predict(times) - truth,
            "private": private.predict(times) - truth,
        }
    finally:
        torch.set_num_threads(threads)
    by_step = {name: np.abs(error).mean(axis=(0, 1)) for name, error in errors.items()}
    mean = {name: float(values.mean()) for name, values in by_step.items()}
    section.quality.append(
        Quality(
            "mean error of the speed (mph)",
            mean["without noise"],
            mean["private"],
            mean["last value"],
            "last value",
            higher_is_better=False,
            form="{:.2f}",
        )
    )
    section.facts += [
        f"Sensors that learn alone, and send nothing, have a mean error of {mean['alone']:.2f} "
        "mph: what is gained over that is what the neighbours are worth on this road.",
        f"{int(private.gate_.sum())} of {n_nodes} sensors decided to listen to their neighbours.",
    ]
    if context.plots:
        with drawing(
            section.figures,
            "Error by horizon",
            "Mean error of the forecast speed by how far it looks ahead: where blue lies on grey, "
            "privacy costs nothing, and the distance to the dashed line is what was learned.",
        ) as axis:
            minutes = 5 * np.arange(1, 13)
            axis.plot(minutes, by_step["last value"], "--", color=ORANGE, label="last value")
            axis.plot(minutes, by_step["without noise"], color=GREY, lw=4, label="without noise")
            axis.plot(minutes, by_step["private"], color=BLUE, label="private")
            axis.set_xlabel("minutes ahead")
            axis.set_ylabel("mean error (mph)")
            axis.set_ylim(0)
            axis.legend(frameon=False)
        _plot_day(section, private, speed, len(speed) - 300)
    return section


def _alone(forecaster: Any, times: np.ndarray) -> np.ndarray:
    """What the same sensors forecast where none of them listens."""
    chosen = forecaster.gate_
    forecaster.gate_ = np.zeros_like(chosen)
    try:
        return np.asarray(forecaster.predict(times))
    finally:
        forecaster.gate_ = chosen


def _plot_day(section: Section, forecaster: Any, speed: np.ndarray, begin: int) -> None:
    times = np.arange(begin, begin + 276)
    half_hour = forecaster.predict(times)[:, :, 5]
    busiest = int(np.argmin(speed[times].min(axis=0)))
    with drawing(
        section.figures,
        "A day at one sensor",
        "Speed at the sensor with the worst jam of the last day, and what was forecast half an "
        "hour before: a jam that no rush hour announces is noticed only while it builds up.",
    ) as axis:
        hours = (times + 6) % 288 / 12
        order = np.argsort(hours)
        axis.plot(hours[order], speed[times + 6, busiest][order], color=GREY, label="measured")
        axis.plot(hours[order], half_hour[:, busiest][order], color=BLUE, label="forecast")
        axis.set_xlabel("hour of the day")
        axis.set_xticks(range(0, 25, 4))
        axis.set_ylabel("speed (mph)")
        axis.set_ylim(0)
        axis.legend(frameon=False)
