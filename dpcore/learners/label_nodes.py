"""The work of one node, as functions of what it holds: the same bits wherever they run."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.accounting import Privacy, PureEvent
from dpcore.cluster import Clustering
from dpcore.learners.label_proportions import LabelProportionClassifier
from dpcore.series import Bins

__all__ = [
    "NodeId",
    "NodeTask",
    "SentMessage",
    "fit_node",
    "label_scheme",
    "network_privacy",
    "node_seeds",
    "run_job",
]

NodeId = int | str
_NOT_COVERED = (
    "a vehicle or person behind several readings: the loss of g readings is g times epsilon",
    "which readings are missing, bin edges, batch sizes, positions and who is whose neighbour",
    "models, cluster centers and predictions of a node, which use its own readings without noise",
    "batch size, number of clusters and other parameters chosen by looking at protected data",
    "several horizons, widths or label schemes on the same readings: losses add up",
)
_NOT_COVERED_ADD_REMOVE = "a reading that changes its label: it costs 2 epsilon"


@dataclass(frozen=True)
class SentMessage:
    """One message on one link: numbers of the nodes, and its length."""

    sender: int
    receiver: int
    n_bytes: int


@dataclass(frozen=True)
class NodeTask:
    """Everything that the model of a node is a function of; it can be sent to a worker.

    Attributes
    ----------
    node : int or str
        The node's id.
    X : ndarray of shape (n_rows, width)
        Its training windows.
    targets : ndarray of shape (n_tables, n_batches, n_labels)
        The tables it holds, cut to the training batches.
    batch : ndarray of int64, shape (n_rows,)
        Batch of each window.
    own : int or None
        Which of the tables is its own.
    random_state : int
        That of the whole network.
    n_clusters, labeling, n_starts, vote, n_init
        As for `LabelProportionClassifier`.
    """

    node: NodeId
    X: npt.NDArray[np.float64]
    targets: npt.NDArray[np.float64]
    batch: npt.NDArray[np.int64]
    own: int | None
    random_state: int
    n_clusters: int
    labeling: str
    n_starts: int
    vote: str
    n_init: int


def fit_node(
    task: NodeTask, cache: dict[str, Clustering] | None = None
) -> LabelProportionClassifier:
    """The model of one node."""
    model = LabelProportionClassifier(
        task.n_clusters,
        labeling=task.labeling,
        n_starts=task.n_starts,
        own=task.own,
        vote=task.vote,
        n_init=task.n_init,
    )
    model.classes_ = np.arange(task.targets.shape[2])
    model.n_features_in_ = task.X.shape[1]
    seeds = node_seeds(task.random_state, task.node)
    return model._fit_arrays(task.X, task.targets, task.batch, seeds, cache)


def run_job(job: Callable[[], Any] | None) -> Any:
    """The model that a job makes; None for a node that has nothing to learn from."""
    return None if job is None else job()


def node_seeds(random_state: int, node: NodeId) -> np.random.SeedSequence:
    """Algorithmic choices of a node: a function of the network's number and the node's id."""
    name = hashlib.sha256(repr(node).encode()).digest()
    return np.random.SeedSequence(
        [operator.index(random_state), int.from_bytes(name[:16], "little")]
    )


def label_scheme(bins: Bins, width: int, horizon: int, batch_size: int) -> str:
    """A name for what labels and batches mean: another one is another release."""
    edges = hashlib.sha256(np.array(bins.edges).tobytes()).hexdigest()[:16]
    return f"{edges}/{width}/{horizon}/{batch_size}"


def network_privacy(
    events: Sequence[PureEvent], adjacency: str, sent: bool, private: bool
) -> Privacy:
    """What the messages promise: nodes hold different readings, so one reading costs one table."""
    not_covered: tuple[str, ...] = _NOT_COVERED
    if adjacency == "add-remove":
        not_covered = (*not_covered, _NOT_COVERED_ADD_REMOVE)
    if events:
        return Privacy.of(events, not_covered=not_covered, private=private)
    loss = np.inf if sent else 0.0
    return Privacy(loss, 0.0, "reading", adjacency, (), not_covered, private=not sent)
