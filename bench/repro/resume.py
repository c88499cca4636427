"""Parts of an experiment that are kept on disk, so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpcore._files import replace_bytes


def fingerprint(*arrays: Any) -> str:
    """Of data: results of other data are never mixed in."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


class Parts:
    """Values by name, each written as a whole when it is known.

    `label` says what all of them depend on (data, options): parts with another one are made anew.
    """

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.label, self.seconds = folder, label, 0.0
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        path = self.folder / (hashlib.sha256(name.encode()).hexdigest()[:16] + ".json")
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("name") == name and kept.get("label") == self.label:
            print(f"{name}: kept from before", flush=True)
        else:
            print(f"{name} ...", flush=True)
            begin = time.perf_counter()
            value = make()
            kept = {
                "name": name,
                "label": self.label,
                "seconds": round(time.perf_counter() - begin, 3),
                "value": value,
            }
            replace_bytes(path, json.dumps(kept).encode())
        self.seconds += kept["seconds"]
        # What was kept has been through JSON; so has everything, then.
        return json.loads(json.dumps(kept["value"]))

    def finish(self) -> None:
        """Forget the parts: the result holds them now."""
        shutil.rmtree(self.folder)
