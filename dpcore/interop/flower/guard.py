"""A SuperNode that runs dpcore's app and no other: ``python -m dpcore.interop.flower.guard``.

Flower's own runs whatever its SuperLink ships, with the rights of the node's user.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from dpcore.interop.flower.launch import write_app

__all__ = ["main", "own_files", "unpack"]

_IDENTITY = ("dpcore/dpcore-federation", "1.0.0")


def main() -> None:
    """Be ``flower-supernode``, with its arguments."""
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode import start_client_internal as supernode
    from flwr.supernode.cli import flower_supernode

    ours = own_files()
    # What Flower does with an app after it arrived and before it is kept to be run. A version of
    # Flower that has no such step fails here.
    read = supernode.get_fused_config_from_fab

    def check(content: bytes, run: Any) -> Any:
        # Flower finds the unpacked app by the name that the SuperLink gives it.
        if (run.fab_id, run.fab_version) != _IDENTITY or unpack(content) != ours:
            print("An app was refused: it is not dpcore's, built by this Flower.", flush=True)
            raise RunNotRunningException  # the message is dropped, and the node goes on
        return read(content, run)

    supernode.get_fused_config_from_fab = check
    flower_supernode()


def own_files() -> list[tuple[str, bytes]]:
    """The files of dpcore's app, as the Flower installed here packs them."""
    from flwr.cli.build import build_fab_from_disk

    with tempfile.TemporaryDirectory() as folder:
        return unpack(build_fab_from_disk(write_app(Path(folder) / "app")))


def unpack(content: bytes) -> list[tuple[str, bytes]]:
    """Names and contents in an app; how they are compressed differs between machines."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    except (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return []


if __name__ == "__main__":
    main()
