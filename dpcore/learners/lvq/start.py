"""Where the prototypes begin: private class means, or a place that does not depend on the data.

Records are points of the grid of `clipped`: their sums and norms are exact, so that no rounding
depends on the order or the number of records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.central import gaussian, laplace
from dpcore.learners.lvq.clipped import digits
from dpcore.learners.lvq.kernel import row_dots
from dpcore.noise import Noise

__all__ = ["Start", "default_radius", "gaussian_start", "laplace_start", "noisy_count"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_N_RADII = 24
_LEAST_CLASS = 0.2  # of an even share: below that a noisy class size is not believed
_CHUNK = 4096


@dataclass(frozen=True)
class Start:
    """Class means about a centre on the grid, and the public scale that step sizes follow."""

    centre: Floats
    means: Floats
    radius: float
    n_records: float


def default_radius(d: int) -> float:
    """Half the norm of a corner of the cube: a guess at |x - centre| that looks at no data."""
    return math.sqrt(d) / 2


def noisy_count(n: int, multiplier: float, source: Noise) -> float:
    """The number of records with Gaussian noise, at least 1."""
    noisy = gaussian(np.array([n]), sensitivity=1, sigma=multiplier, noise=source)
    return max(1.0, float(np.asarray(noisy)[0]))


def laplace_start(
    points: Array,
    codes: npt.NDArray[np.intp],
    n_classes: int,
    epsilons: dict[str, float],
    source: Noise,
) -> Start:
    """Counts and sums with Laplace noise, as in the paper; guarded division and clamping on top.

    Privacy
    -------
    Add-remove: one record changes one count by 1 and the sums by at most d in l1.
    """
    d = points.shape[1]
    unit = 1 << digits(d)
    counts = np.bincount(codes, minlength=n_classes)
    noisy = laplace(
        counts, epsilon=epsilons["counts"], sensitivity=1, noise=source.stream("counts")
    )
    sums = _class_sums(points, codes, n_classes)
    noisy_sums = laplace(
        sums, epsilon=epsilons["sums"], sensitivity=d * unit, noise=source.stream("sums")
    )
    sizes = np.maximum(1.0, np.asarray(noisy, dtype=np.float64))
    means = np.clip(np.asarray(noisy_sums) / (unit * sizes[:, None]), -1, 1)
    total = max(1.0, float(np.asarray(noisy).sum()))
    return Start(np.zeros(d), means, default_radius(d), total)


def gaussian_start(
    points: Array,
    codes: npt.NDArray[np.intp],
    n_classes: int,
    multipliers: dict[str, float],
    source: Noise,
    *,
    radius: float | None = None,
) -> Start:
    """A centre, the median distance to it, and the class means about it, with Gaussian noise.

    Privacy
    -------
    Add-remove. The count is released with the sums, scaled to half of their bound. Records further
    from the centre than the radius count as the nearest point at the radius.
    """
    d = points.shape[1]
    unit = 1 << digits(d)
    bound = unit * math.sqrt(d)
    weight = max(1, round(bound / 2))
    total = np.append(_class_sums(points, np.zeros_like(codes), 1)[0], len(points) * weight)
    noisy = _release(total, math.hypot(bound, weight), multipliers["centre"], source, "centre")
    n_records = max(1.0, noisy[-1] / weight)
    centre = np.clip(np.rint(noisy[:-1] / n_records), -unit, unit)
    if radius is None:
        radius = _median_norm(points, centre, multipliers["radius"], source)
    # Half a unit for rounding each coordinate, and one for the rounding of the norm itself.
    bound = unit * radius + math.sqrt(d) / 2 + 1
    weight = max(1, round(bound / 2))

    def centred(part: Floats) -> Floats:
        moved = part - centre
        norms = np.sqrt(row_dots(moved, moved))
        shrink = np.minimum(1, unit * radius / np.maximum(norms, 1))
        return np.asarray(np.rint(moved * shrink[:, None]))

    counts = np.bincount(codes, minlength=n_classes) * weight
    sums = np.column_stack([_class_sums(points, codes, n_classes, centred), counts])
    noisy = _release(sums, math.hypot(bound, weight), multipliers["sums"], source, "sums")
    least = max(1.0, _LEAST_CLASS * n_records / n_classes)
    means = noisy[:, :-1] / (unit * np.maximum(noisy[:, -1:] / weight, least))
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    means *= np.minimum(1, radius / np.maximum(norms, 1e-300))
    return Start(centre / unit, means, radius, n_records)


def _median_norm(points: Array, centre: Floats, multiplier: float, source: Noise) -> float:
    """Upper edge of the bin of a noisy histogram that holds the median distance from the centre."""
    d = points.shape[1]
    edges = 2 * math.sqrt(d) * 2.0 ** (np.arange(1 - _N_RADII, 1) / 4)
    counts = np.zeros(_N_RADII, np.int64)
    for begin in range(0, len(points), _CHUNK):
        moved = points[begin : begin + _CHUNK] - centre
        norms = np.sqrt(row_dots(moved, moved)) * 2.0 ** -digits(d)
        bins = np.minimum(np.searchsorted(edges, norms), _N_RADII - 1)
        counts += np.bincount(bins, minlength=_N_RADII)
    running = np.cumsum(_release(counts, 1.0, multiplier, source, "radius"))
    return float(edges[int(np.argmax(running >= running[-1] / 2))])


def _release(
    x: Array, sensitivity: float, multiplier: float, source: Noise, name: str
) -> npt.NDArray[np.float64]:
    """Integers with Gaussian noise of at least `multiplier` times their l2 sensitivity."""
    reach = math.nextafter(sensitivity, math.inf)
    sigma = math.nextafter(reach * multiplier, math.inf)
    noisy = gaussian(x.astype(np.int64), sensitivity=reach, sigma=sigma, noise=source.stream(name))
    return np.asarray(noisy, dtype=np.float64)


def _class_sums(
    points: Array,
    codes: npt.NDArray[np.intp],
    n_classes: int,
    change: Callable[[Floats], Floats] | None = None,
) -> npt.NDArray[np.int64]:
    """Sums of whole numbers of units over each class; exact, as all stay below 2**53."""
    total = np.zeros((n_classes, points.shape[1]), np.int64)
    for begin in range(0, len(points), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        members = (codes[part] == np.arange(n_classes)[:, None]).astype(np.float64)
        units = points[part].astype(np.float64, copy=False)
        total += (members @ (units if change is None else change(units))).astype(np.int64)
    return total
