"""A network of sensors that share only noisy label histograms of time batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpcore._checks import (
    check_array,
    check_choice,
    check_executor,
    check_flag,
    check_index,
    check_instance,
    check_list,
    check_name,
    check_positive,
)
from dpcore._parallel import get_num_threads
from dpcore._release import check_noise
from dpcore.accounting import PureEvent
from dpcore.errors import DataError, ParameterError
from dpcore.labeling import EXACT_LIMIT
from dpcore.learners._fitting import all_or_nothing
from dpcore.learners.label_baselines import BASELINES, make_baseline
from dpcore.learners.label_nodes import (
    NodeId,
    NodeTask,
    SentMessage,
    fit_node,
    label_scheme,
    network_privacy,
    node_seeds,
    run_job,
)
from dpcore.learners.label_rules import suggest_parameters
from dpcore.noise import Noise
from dpcore.proportions import (
    LabelCounts,
    ReleaseRegister,
    label_counts,
    paper_proportions,
    release_label_counts,
)
from dpcore.series import Bins, align, check_neighbours, check_node_ids, windows

__all__ = ["LabelProportionNetwork", "SentMessage"]


class LabelProportionNetwork(BaseEstimator):
    """Every node clusters its own windows and labels the clusters by proportions it received.

    A node sends one noisy table, the label counts of its time batches, to its neighbours. It labels
    its clusters once for each table it holds, its own without noise included, and the labelings
    vote. `fit` is `build`, `exchange` and `train` in turn.

    Parameters
    ----------
    bins : Bins or sequence of Bins
        Public bins of the values, for all nodes or for each. Labels must mean the same everywhere:
        use bins relative to the size of the node where sizes differ.
    epsilon : float or None
        Privacy loss of one reading; None for tables without noise, which protect nobody.
    adjacency : {"replace", "add-remove"}
        A reading changes its value (noise of scale 2 / epsilon), or exists or not (1 / epsilon).
    width, horizon : int
        Values in a window, and steps ahead of it that are predicted.
    batch_size : int or None
        Rows in a batch; None for `suggest_parameters`.
    n_clusters : int or None
        Clusters of a node; None for `suggest_parameters`.
    labeling : {"monotone", "search", "exact", "auto"}
    n_starts : int
        Starts of "search".
    postprocess : {"none", "clip", "simplex"}
    smoothing : int
        What receivers make of the counts; see `dpcore.proportions.LabelCounts`.
    own : {"exact", "noisy", "none"}
        What a node takes as its own table: exact counts, which do not leave it; the noisy ones that
        it sent; or none, as if it had no labels.
    vote : {"median", "majority", "joint"}
        How the tables of a node are joined; see `LabelProportionClassifier`. Bins are ordered, and
        under noise the median of labels errs less than the commonest one. Models of neighbours do
        not vote: their predictions come from raw windows, which no guarantee would cover.
    exchange_tables : bool
        False for own tables alone: nothing is sent then.
    model : {"proportions", "majority", "persistence", "centroid", "supervised", "knn"}
        A baseline in place of label proportions; see `make_baseline`. Nothing is sent then.
    reproduce : None or "paper"
        "paper" clips and normalises inside the loop, as published; its tables are not private.
    n_init : int
        Runs of k-means.
    noise : Noise, optional
        Source of the noise; on a pinned stream it is a function of the key, the node's id, the
        scheme (bins, width, horizon, batch size), the period, the batch and the label.
    period : str
        Name of the time that the series covers, for a ledger: periods must not overlap. A ledger
        knows batches by their place in the series, so a later one begins with NaN for the past.
    random_state : int
        Algorithmic choices; those of a node are a function of this number and the node's id.
    cache : dict, optional
        Keeps clusterings for other networks on the same data; they are the same with and without.

    Attributes
    ----------
    batches_ : TimeBatches
    labels_ : ndarray of shape (n_rows, n_nodes)
        True labels; not private.
    tables_ : list of bytes or None
        What each node sends; None for nodes without labels.
    messages_ : list of SentMessage
        Every message on every link.
    n_bytes_ : int
        Their total length.
    models_ : list
        The model of each node.
    privacy_ : Privacy
        What the messages promise together, and what is not covered.

    Privacy
    -------
    Pure epsilon-DP for one reading against everyone who sees all messages: one reading is the label
    of one row of one batch of one node. Tables are drawn once and sent to all neighbours; a second
    draw by this object raises, and one by any object where a ledger is in force. Not covered: see
    `privacy_`.

    Cost
    ----
    Dominated by k-means. Nodes are fitted on as many threads as `dpcore.get_num_threads`, each node
    as a function of its data, the tables it received, and its id: the same bits wherever it runs.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.series import Bins
    >>> from dpcore.learners import LabelProportionNetwork
    >>> day = 50 + 40 * np.sin(np.arange(960) * 2 * np.pi / 96)
    >>> series = day[:, None] + np.random.default_rng(0).normal(0, 5, (960, 3))
    >>> network = LabelProportionNetwork(Bins.relative(100.0), epsilon=1.0)
    >>> network = network.fit(series, neighbours=[[1, 2], [0, 2], [0, 1]])
    >>> bool(network.score().mean() > 0.5), len(network.messages_), network.privacy_.epsilon <= 1
    (True, 6, True)
    """

    def __init__(
        self,
        bins: Bins | Sequence[Bins],
        *,
        epsilon: float | None = 0.1,
        adjacency: str = "replace",
        width: int = 5,
        horizon: int = 1,
        batch_size: int | None = 32,
        n_clusters: int | None = 16,
        labeling: str = "monotone",
        n_starts: int = 10,
        postprocess: str = "none",
        smoothing: int = 0,
        own: str = "exact",
        vote: str = "median",
        exchange_tables: bool = True,
        model: str = "proportions",
        reproduce: str | None = None,
        n_init: int = 10,
        noise: Noise | None = None,
        period: str = "",
        random_state: int = 0,
        cache: dict[str, Any] | None = None,
    ) -> None:
        self.bins = bins
        self.epsilon = epsilon
        self.adjacency = adjacency
        self.width = width
        self.horizon = horizon
        self.batch_size = batch_size
        self.n_clusters = n_clusters
        self.labeling = labeling
        self.n_starts = n_starts
        self.postprocess = postprocess
        self.smoothing = smoothing
        self.own = own
        self.vote = vote
        self.exchange_tables = exchange_tables
        self.model = model
        self.reproduce = reproduce
        self.n_init = n_init
        self.noise = noise
        self.period = period
        self.random_state = random_state
        self.cache = cache

    @all_or_nothing("_register")
    def fit(
        self,
        series: npt.ArrayLike,
        neighbours: Sequence[Any] | None = None,
        *,
        node_ids: Sequence[NodeId] | None = None,
        labelled: npt.ArrayLike | None = None,
        executor: Any = None,
    ) -> LabelProportionNetwork:
        """Build the windows, exchange tables and train all nodes.

        Parameters as for `build` and `train`.
        """
        check_executor(executor)
        built = self.build(series, neighbours, node_ids=node_ids, labelled=labelled)
        return built.exchange().train(executor=executor)

    def build(
        self,
        series: npt.ArrayLike,
        neighbours: Sequence[Any] | None = None,
        *,
        node_ids: Sequence[NodeId] | None = None,
        labelled: npt.ArrayLike | None = None,
    ) -> LabelProportionNetwork:
        """Windows, labels and batches of all nodes.

        Parameters
        ----------
        series : array_like of shape (n_times, n_nodes)
            NaN where a value is missing; that it is missing is taken as public.
        neighbours : list of lists of int, optional
            For each node the numbers of those whose tables it receives; none by default.
        node_ids : sequence of int or str, optional
            Names that noise and algorithmic choices hang on; 0, 1, ... by default.
        labelled : array_like of bool, shape (n_nodes,), optional
            Nodes that know labels of their own; the others send nothing and rely on neighbours.
        """
        x = check_array(series, "series", dimensions=2)
        if x.shape[1] == 0:
            raise ParameterError("The 'series' parameter must have the shape (n_times, n_nodes).")
        if np.isinf(x).any():
            raise DataError("The 'series' parameter must hold finite numbers or NaN.")
        n_nodes = x.shape[1]
        self._check_parameters()
        given = self.bins
        listed = [given] * n_nodes if isinstance(given, Bins) else check_list(given, "bins")
        bins = [check_instance(each, "bins", Bins) for each in listed]
        if len(bins) != n_nodes or len({each.n_labels for each in bins}) != 1:
            raise ParameterError("The 'bins' parameter must be as many, with one number of labels.")
        ids = check_node_ids(node_ids, n_nodes)
        known = np.ones(n_nodes, np.bool_)
        if labelled is not None:
            known = check_array(labelled, "labelled", dtype=np.bool_)
        if known.shape != (n_nodes,):
            raise ParameterError("The 'labelled' parameter must have one entry for every node.")
        self._bins, self._ids, self._labelled = bins, ids, known
        self._neighbours = check_neighbours(neighbours, n_nodes)
        self.n_labels_ = bins[0].n_labels
        self.batch_size_, self.n_clusters_ = self._sizes(len(x))
        if self.labeling == "exact" and self.n_labels_**self.n_clusters_ > EXACT_LIMIT:
            raise ParameterError("The 'labeling' parameter 'exact' is for at most 2**26 labelings.")
        self.batches_ = align(x, self.width, self.horizon, self.batch_size_)
        pairs = [windows(x[:, j], self.width, self.horizon) for j in range(n_nodes)]
        rows = self.batches_.rows
        self._features = [features[rows] for features, _ in pairs]
        self.labels_ = np.column_stack(
            [bins[j].label(following[rows]) for j, (_, following) in enumerate(pairs)]
        )
        n_batches, batch = self.batches_.n_batches, self.batches_.batch
        self._counts = [
            label_counts(self.labels_[:, j], batch, n_batches, self.n_labels_)
            for j in range(n_nodes)
        ]
        # The register outlives this call: fitting the same data again must not draw again.
        self._register = getattr(self, "_register", None) or ReleaseRegister()
        self._digest = hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
        return self

    def _check_parameters(self) -> None:
        """All that `exchange` and `train` will ask for, before anything is drawn."""
        check_choice(self.own, "own", ("exact", "noisy", "none"))
        check_choice(self.model, "model", ("proportions", *BASELINES))
        check_choice(self.adjacency, "adjacency", ("replace", "add-remove"))
        check_choice(self.labeling, "labeling", ("monotone", "search", "exact", "auto"))
        check_choice(self.postprocess, "postprocess", ("none", "clip", "simplex"))
        check_choice(self.vote, "vote", ("median", "majority", "joint"))
        if self.reproduce is not None:
            check_choice(self.reproduce, "reproduce", ("paper",))
        if self.epsilon is not None:
            check_positive(self.epsilon, "epsilon")
        for name in ("width", "horizon", "n_starts", "n_init"):
            check_index(getattr(self, name), name, least=1)
        for name in ("batch_size", "n_clusters"):
            if getattr(self, name) is not None:
                check_index(getattr(self, name), name, least=1)
        for name in ("smoothing", "random_state"):
            check_index(getattr(self, name), name)
        check_flag(self.exchange_tables, "exchange_tables")
        check_name(self.period, "period", may_be_empty=True)
        check_noise(self.noise)
        if self.cache is not None:
            check_instance(self.cache, "cache", dict)

    def exchange(self) -> LabelProportionNetwork:
        """Draw the tables of all nodes, once, and send them to the neighbours.

        A second draw of the same data by this object raises `RepeatedReleaseError`, unless the
        noise is pinned and so the same: send again what `tables_` holds.
        """
        check_is_fitted(self, "batches_")
        n_nodes = len(self._ids)
        source = check_noise(self.noise)
        if not source.pinned:
            # One fresh stream for all nodes of this exchange.
            source = source.release("label proportion network")
            if self.epsilon is not None:
                slots = self.batches_.slots.tolist()
                self._register.claim("network", slots, self._digest)
        sends = self.exchange_tables and self.model == "proportions"
        draws = sends or (self.own == "noisy" and self.model == "proportions")
        events: list[PureEvent] = []
        self.tables_ = [
            self._draw(j, source, events) if draws and self._labelled[j] else None
            for j in range(n_nodes)
        ]
        lengths = [None if table is None else len(table) for table in self.tables_]
        self.messages_ = [
            SentMessage(int(sender), receiver, length)
            for receiver in (range(n_nodes) if sends else ())
            for sender in self._neighbours[receiver]
            if (length := lengths[sender]) is not None
        ]
        self.n_bytes_ = sum(message.n_bytes for message in self.messages_)
        self.privacy_ = network_privacy(events[:1], self.adjacency, draws, source.private)
        return self

    def _draw(self, j: int, source: Noise, events: list[PureEvent]) -> bytes:
        """What node j sends; notes what it costs."""
        counts, sizes = self._counts[j], self.batches_.sizes
        if self.reproduce is not None:
            epsilon = 0.0 if self.epsilon is None else self.epsilon
            stream = source.stream("paper", self._ids[j])
            return np.asarray(paper_proportions(counts, epsilon=epsilon, noise=stream)).tobytes()
        if self.epsilon is None:
            return LabelCounts(counts, sizes, 0.0, self.adjacency, private=False).to_bytes()
        message, event = release_label_counts(
            counts,
            epsilon=self.epsilon,
            adjacency=self.adjacency,
            noise=source,
            node=self._ids[j],
            slots=self.batches_.slots,
            sizes=sizes,
            scheme=label_scheme(self._bins[j], self.width, self.horizon, self.batch_size_),
            period=self.period,
        )
        events.append(event)
        return message.to_bytes()

    def train(
        self,
        batches: npt.ArrayLike | None = None,
        *,
        nodes: Sequence[int] | None = None,
        executor: Any = None,
    ) -> LabelProportionNetwork:
        """Fit the model of every node, nodes in parallel.

        Parameters
        ----------
        batches : array_like of bool, shape (n_batches,), optional
            Batches to train on; all by default. Tables are cut to them, not drawn again.
        nodes : sequence of int, optional
            Nodes to train; the others only send. All by default.
        executor : object with a method map, optional
            Where to fit the nodes, such as `dpcore.interop.dask.Workers` or an executor of
            `concurrent.futures`; threads of this process by default. It changes no bit. Tables
            were drawn here before: only windows and tables are sent. `cache` is not used then.
        """
        check_is_fitted(self, "messages_")
        n_batches = self.batches_.n_batches
        chosen = np.ones(n_batches, np.bool_)
        if batches is not None:
            chosen = check_array(batches, "batches", dtype=np.bool_)
        if chosen.shape != (n_batches,) or not chosen.any():
            raise ParameterError("The 'batches' parameter must choose among the batches.")
        rows = chosen[self.batches_.batch]
        numbers = (np.cumsum(chosen) - 1)[self.batches_.batch[rows]]
        tables = [self._decode(j) for j in range(len(self._ids))]

        def job(j: int) -> Callable[[], Any] | None:
            """The work of node j on nothing but its own data: it can be sent elsewhere."""
            X = self._features[j][rows]
            if self.model != "proportions":
                return partial(self._baseline(j).fit, X, self.labels_[rows, j])
            held, own = self._held(j, tables)
            if not held:
                return None
            task = NodeTask(
                self._ids[j],
                X,
                np.stack(held)[:, chosen],
                numbers,
                own,
                self.random_state,
                n_clusters=self.n_clusters_,
                labeling=self.labeling,
                n_starts=self.n_starts,
                vote=self.vote,
                n_init=self.n_init,
            )
            return partial(fit_node, task, self.cache if executor is None else None)

        n_nodes = len(self._ids)
        trained = range(n_nodes) if nodes is None else [range(n_nodes)[j] for j in nodes]
        if executor is None:
            models = self._over(lambda j: run_job(job(j)), trained)
        else:
            models = list(executor.map(run_job, map(job, trained)))
        self.models_: list[Any] = [None] * n_nodes
        for j, model in zip(trained, models, strict=True):
            self.models_[j] = model
        return self

    def _over(self, work: Callable[[int], Any], nodes: Sequence[int]) -> list[Any]:
        """Work on several nodes, in threads; scikit-learn's baselines have threads of their own."""
        if self.model != "proportions":
            return [work(j) for j in nodes]
        with ThreadPoolExecutor(get_num_threads()) as pool:
            return list(pool.map(work, nodes))

    def _decode(self, j: int) -> npt.NDArray[np.float64] | None:
        data = self.tables_[j]
        if data is None:
            return None
        if self.reproduce is not None:
            return np.frombuffer(data).reshape(self._counts[j].shape)
        message = LabelCounts.from_bytes(data)
        return message.proportions(self.postprocess, smoothing=self.smoothing)

    def _held(
        self, j: int, tables: list[npt.NDArray[np.float64] | None]
    ) -> tuple[list[npt.NDArray[np.float64]], int | None]:
        """The tables that node j labels its clusters by, its own first, and the place of that."""
        held, own = [], None
        if self.own != "none" and self._labelled[j]:
            exact = self._counts[j] / self.batches_.sizes[:, np.newaxis]
            mine = exact if self.own == "exact" else tables[j]
            assert mine is not None
            held.append(mine)
            own = 0
        if self.exchange_tables:
            received = [tables[i] for i in self._neighbours[j]]
            held += [table for table in received if table is not None]
        return held, own

    def _baseline(self, j: int) -> Any:
        seed = int(node_seeds(self.random_state, self._ids[j]).generate_state(1)[0]) % 2**31
        return make_baseline(
            self.model,
            self._bins[j],
            n_clusters=self.n_clusters_,
            n_init=self.n_init,
            random_state=seed,
        )

    def predict(self, rows: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]:
        """Predicted labels of rows of `batches_`, shape (n_rows, n_nodes); -1 without a model.

        Parameters
        ----------
        rows : array_like of bool, shape (n_rows,), optional
            All rows by default.
        """
        check_is_fitted(self, "models_")
        chosen = self._rows(rows)
        out = np.full((int(chosen.sum()), len(self._ids)), -1, np.int64)

        def predict_one(j: int) -> None:
            if self.models_[j] is not None:
                out[:, j] = self.models_[j].predict(self._features[j][chosen])

        self._over(predict_one, range(len(self._ids)))
        return out

    def score(self, rows: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
        """Accuracy of each node on the rows, measured with true labels: not private."""
        predicted = self.predict(rows)
        truth = self.labels_[self._rows(rows)]
        accuracy: npt.NDArray[np.float64] = (predicted == truth).mean(axis=0)
        return accuracy

    def _rows(self, rows: npt.ArrayLike | None) -> npt.NDArray[np.bool_]:
        if rows is None:
            return np.ones(len(self.labels_), np.bool_)
        chosen = check_array(rows, "rows", dtype=np.bool_)
        if chosen.shape != (len(self.labels_),) or not chosen.any():
            raise ParameterError("The 'rows' parameter must choose among the rows.")
        return chosen

    def _sizes(self, n_times: int) -> tuple[int, int]:
        if self.batch_size is not None and self.n_clusters is not None:
            return self.batch_size, self.n_clusters
        n_rows = n_times - self.width + 1 - self.horizon
        size, k = suggest_parameters(n_rows, self.n_labels_, self.epsilon, self.adjacency)
        return self.batch_size or size, self.n_clusters or k
