"""Exit 1 when a ratio of a recorded run lies below its limit: ``python -m bench.gate FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def failures(payload: dict) -> list[str]:
    """One line for each row or bound that misses its limit or was not checked."""
    rows, bounds = payload["rows"], payload.get("bounds", [])
    lines = [
        f"{row['name']}: {row['ratio']:.3g} is below {row['limit']:g}"
        for row in rows
        if not row["ratio"] >= row["limit"]
    ]
    lines += [
        f"{bound['name']}: {bound['value']:.3g} {bound['unit']} is above {bound['most']:g}"
        for bound in bounds
        if not bound["value"] <= bound["most"]
    ]
    lines += [f"{row['name']}: not checked" for row in (*rows, *bounds) if not row["checked"]]
    return lines if rows or bounds else ["no rows were measured"]


def check(path: Path) -> int:
    found = failures(json.loads(Path(path).read_text()))
    print("\n".join(found) if found else f"all limits hold in {Path(path).name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1])))
