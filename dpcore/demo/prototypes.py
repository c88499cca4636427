"""Handwritten digits: one private prototype for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcore.demo.plots import BLUE, GREY, ORANGE, drawing
from dpcore.demo.section import Context, Quality, Section
from dpcore.noise import Noise

__all__ = ["run"]

_EPSILON, _DELTA = 2.0, 1e-5
_SWEEP = (0.5, 1.0, 2.0, 4.0, 8.0)
_CODE = """\
model = PrivateGLVQ(epsilon=2.0, classes=range(10), bounds=(0, 16))
model.fit(X, y).prototypes_          # safe to publish"""


def run(context: Context) -> Section:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from dpcore.learners import PrivateGLVQ
    from dpcore.learners.lvq import GLVQ

    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    section = Section(
        "prototypes",
        "Private prototypes",
        f"{len(X):,} handwritten digits of 8 x 8 pixels (the set that comes with scikit-learn). "
        "The model is one prototype for each digit; it may be published.",
        _CODE,
    )

    def private(epsilon: float, noise: Noise | None = None) -> Any:
        model = PrivateGLVQ(epsilon, _DELTA, classes=range(10), bounds=(0, 16), noise=noise)
        return model.fit(X, y)

    context.step(1, 4, "without noise")
    plain = GLVQ(bounds=(0, 16), random_state=0).fit(X, y)
    context.step(2, 4, "with noise")
    with context.ledger("prototypes", _EPSILON, _DELTA) as ledger:
        model = private(_EPSILON)
    section.charge(ledger, model.privacy_)
    commonest = float((y_test == np.bincount(y).argmax()).mean())
    exact, noisy = (float(each.score(X_test, y_test)) for each in (plain, model))
    section.quality.append(
        Quality("accuracy on digits held out", exact, noisy, commonest, "commonest digit")
    )
    section.facts.append(
        f"{len(X):,} records are few for differential privacy: noise is added to sums over "
        "records, so that with ten times as many a tenth of the epsilon would do."
    )
    if not context.plots:
        return section
    with drawing(
        section.figures,
        "Prototypes without and with privacy",
        f"The ten prototypes without noise (above) and at epsilon {_EPSILON:g} (below): still "
        "digits, while what a single record could change is hidden by the noise.",
        shape=(2, 10),
        size=(4.6, 1.4),
    ) as axes:
        for row, each in zip(axes, (plain, model), strict=True):
            for axis, image in zip(row, each.prototypes_.reshape(-1, 8, 8), strict=True):
                axis.imshow(image, cmap="gray_r", vmin=0, vmax=16)
                axis.axis("off")
    context.step(3, 4, "other epsilons")
    sweep, draws = (_SWEEP[::2], 1) if context.quick else (_SWEEP, 3)
    found = np.array(
        [
            [private(epsilon, Noise.insecure(draw)).score(X_test, y_test) for draw in range(draws)]
            for epsilon in sweep
        ]
    )
    with drawing(
        section.figures,
        "Accuracy against epsilon",
        "Accuracy on digits held out, by epsilon (simulated, the range of all draws shaded): below "
        "epsilon 1 so few records are not enough.",
    ) as axis:
        axis.semilogx(sweep, found.mean(axis=1), "o-", color=BLUE, label="private")
        axis.fill_between(sweep, found.min(1), found.max(1), color=BLUE, alpha=0.2, lw=0)
        axis.axhline(section.quality[0].plain, color=GREY, label="without noise")
        axis.axhline(commonest, color=ORANGE, ls="--", label="commonest digit")
        axis.set_xticks(sweep, [f"{epsilon:g}" for epsilon in sweep])
        axis.minorticks_off()
        axis.set_ylim(0, 1)
        axis.set_xlabel("epsilon of the fit")
        axis.set_ylabel("accuracy")
        axis.legend(frameon=False)
    return section
