"""A million devices send a few bits each, and a server gets a mean and a histogram."""

from __future__ import annotations

import numpy as np

from dpcore import local
from dpcore.accounting import Privacy
from dpcore.demo.plots import BLUE, GREY, ORANGE, drawing
from dpcore.demo.section import Context, Quality, Section
from dpcore.noise import Noise

__all__ = ["run"]

_EPSILON = 1.0
_VERSIONS = 12
_SWEEP = (0.25, 0.5, 1.0, 2.0, 4.0)
_CODE = """\
mechanism = local.make("optimal", 1.0, lower=0, upper=150, n_outputs=16)
message = mechanism.pack(mechanism.encode(speeds))   # on the devices
estimate = mechanism.estimate(message)               # on the server"""


def run(context: Context) -> Section:
    n = 100_000 if context.quick else 1_000_000
    section = Section(
        "local",
        "Local collection from a million devices"
        if n == 10**6
        else f"Local collection from {n:,} devices",
        f"{n:,} devices each hold a speed between 0 and 150 km/h and the version of a program. "
        "Each randomises both by itself and sends a few bits; nobody has to be trusted.",
        _CODE,
    )
    generator = np.random.default_rng(3)
    speeds = generator.normal(70, 20, n).clip(0, 150)
    shares = np.sort(generator.dirichlet(np.ones(_VERSIONS)))[::-1]
    versions = generator.choice(_VERSIONS, n, p=shares)
    best = local.make("optimal", _EPSILON, 0, 150, n_outputs=16)
    oracle = local.best_categorical(_EPSILON, _VERSIONS)
    with context.ledger("local", 2 * _EPSILON) as ledger:
        context.step(1, 4, "speeds")
        message = best.pack(best.encode(speeds))
        estimate = best.estimate(message)
        context.step(2, 4, "versions")
        found = oracle.estimate(oracle.encode(versions))
    section.charge(
        ledger,
        Privacy.of(
            [best.event, oracle.event],
            not_covered=(
                "that a device took part, and when",
                "later reports of the same device: losses add up",
                "the address that a report came from: dpcore makes reports, it does not carry them",
            ),
        ),
    )
    low, high = estimate.interval(0.95)
    guess = 75.0
    section.quality.append(
        Quality(
            "error of the mean speed (km/h)",
            0.0,
            abs(estimate.mean - speeds.mean()),
            abs(guess - speeds.mean()),
            "middle of the range",
            higher_is_better=False,
            form="{:.3f}",
        )
    )
    true = np.bincount(versions, minlength=_VERSIONS) / n
    wrong = float(np.abs(np.asarray(found.frequencies) - true).max())
    section.facts += [
        f"True mean {speeds.mean():.3f}, estimated {estimate.mean:.3f}, "
        f"95 % between {low:.3f} and {high:.3f}.",
        f"A report of a speed takes {best.n_bits} bits, all of them {len(message):,} bytes.",
        f"The largest error of a version's share is {100 * wrong:.2f} points.",
    ]
    if context.plots:
        context.step(3, 4, "other mechanisms")
        _plot_mechanisms(section, speeds[:: max(1, n // 200_000)])
        with drawing(
            section.figures,
            "Versions in use",
            f"Shares of {_VERSIONS} versions, true and as estimated from randomised reports at "
            f"epsilon {_EPSILON:g}: single devices are hidden, the crowd is not.",
        ) as axis:
            where = np.arange(_VERSIONS)
            axis.bar(where - 0.2, 100 * true, 0.4, color=GREY, label="true")
            axis.bar(where + 0.2, 100 * found.frequencies, 0.4, color=BLUE, label="estimated")
            axis.set_xlabel("version")
            axis.set_ylabel("share of devices (%)")
            axis.legend(frameon=False)
    return section


def _plot_mechanisms(section: Section, speeds: np.ndarray) -> None:
    """Errors by epsilon; simulated, so that nothing more is released."""
    simulated = Noise.insecure(0)
    with drawing(
        section.figures,
        "Which mechanism",
        f"Half a 95 % interval of the mean of {len(speeds):,} speeds by mechanism and epsilon: "
        "for the same answer Laplace noise needs more devices at every epsilon. Simulated.",
    ) as axis:
        for name, style in (("laplace", GREY), ("pm", ORANGE), ("optimal", BLUE)):
            options = {"n_outputs": 16} if name == "optimal" else {"n_levels": 64}
            halves = []
            for epsilon in _SWEEP:
                mechanism = local.make(name, epsilon, 0, 150, **options)
                codes = mechanism.encode(speeds, noise=simulated)
                low, high = mechanism.estimate(codes).interval(0.95)
                halves.append((high - low) / 2)
            axis.loglog(_SWEEP, halves, "o-", color=style, label=name)
        axis.set_xticks(_SWEEP, [f"{epsilon:g}" for epsilon in _SWEEP])
        axis.set_yticks((0.25, 0.5, 1, 2, 4), ("0.25", "0.5", "1", "2", "4"))
        axis.minorticks_off()
        axis.set_xlabel("epsilon")
        axis.set_ylabel("uncertainty of the mean (km/h)")
        axis.legend(frameon=False)
