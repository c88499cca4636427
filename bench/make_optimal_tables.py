"""Write dpcore/local/optimal_tables.npz: ``python -m bench.make_optimal_tables`` (a quarter hour).

A mechanism is stored as its positive output positions and its smallest probabilities, from which
`dpcore.local.optimal` builds the rows exactly; a few hundred bytes each.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import dpcore
from dpcore.local import optimal
from dpcore.local.optimal_search import search

EPSILONS = (0.1, 0.2, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
OTHER_EPSILONS = (0.5, 1, 2, 2.5, 3, 4, 5)


def cases() -> list[tuple[float, int, str]]:
    """Parameters shipped."""
    worst = [(float(e), k, "worst") for e in EPSILONS for k in (4, 8, 16, 64)]
    others = [
        (float(e), k, name)
        for name in ("second_moment", "at_zero")
        for e in OTHER_EPSILONS
        for k in (8, 16)
    ]
    return worst + others


def main(path: Path) -> None:
    keys, ends, outputs, masses = [], [], [], []
    for epsilon, n_outputs, objective in cases():
        begun = time.perf_counter()
        y, m = search(epsilon, n_outputs, objective, thorough=True)
        seconds = time.perf_counter() - begun
        found = optimal._build((y, m), epsilon, n_outputs, None)
        print(
            f"{objective} {epsilon} {n_outputs}: {len(found.outputs)} outputs, "
            f"{len(found.rows)} rows, worst variance {found.worst_case_variance:.6g}, "
            f"{seconds:.1f} s",
            flush=True,
        )
        keys.append((epsilon, n_outputs, optimal.OBJECTIVES.index(objective)))
        outputs.append(y)
        masses.append(m)
        ends.append((sum(map(len, outputs)), sum(map(len, masses))))
    np.savez_compressed(
        path,
        keys=np.array(keys),
        ends=np.array(ends),
        outputs=np.concatenate(outputs),
        masses=np.concatenate(masses),
    )


if __name__ == "__main__":
    default = Path(dpcore.__file__).parent / "local" / "optimal_tables.npz"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
