"""The stacked models of all nodes: each fact that the published architecture implies."""

import numpy as np
import pytest
import torch

import dpcore
from dpcore.errors import ParameterError
from dpcore.learners.forecast import HistogramLSTM
from dpcore.learners.forecast.cells import NativeCells, can_be_native, plain_cells
from dpcore.learners.forecast.training import (
    Options,
    WindowData,
    clip_gradients,
    node_losses,
    train,
)
from dpcore_ext import rng

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def threads_are_forgotten():
    yield
    dpcore.set_num_threads(None)


def cells(groups=3, rows=19, steps=12, hidden=16, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = [(groups, rows, steps), (groups, 4 * hidden), (groups, hidden, 4 * hidden)]
    x, wx, wh = (torch.randn(shape, generator=random) for shape in shapes)
    return x, wx * 0.5, wh * 0.3, torch.randn(groups, 4 * hidden, generator=random) * 0.3


def outputs_and_gradients(run, arguments, seed=1):
    x, *weights = arguments
    leaves = [weight.clone().requires_grad_() for weight in weights]
    h = run(x, *leaves)
    pull = torch.randn(h.shape, generator=torch.Generator().manual_seed(seed))
    (h * pull.to(h.dtype)).sum().backward()
    return [h.detach(), *(leaf.grad for leaf in leaves)]


def data(n_nodes=3, n_channels=1, n_times=200, n_bins=0, dtype=torch.float32, seed=0):
    random = np.random.default_rng(seed)
    groups = n_nodes * n_channels
    series = torch.from_numpy(random.normal(size=(groups, n_times))).to(dtype)
    sides = [torch.from_numpy(random.random((groups, n_times // 12 + 1, n_bins))).to(dtype)]
    return WindowData(series, None, sides if n_bins else [], 12, 0, 12, 12, n_nodes)


OPTIONS = Options(1, 16, 0.01, "standardised", None, None, 0, False)
NONE = np.array([], np.int64)


# The recurrent step


@pytest.mark.parametrize(
    ("groups", "rows", "steps", "hidden"),
    [(1, 1, 1, 16), (3, 7, 12, 16), (2, 8, 5, 32), (3, 19, 12, 16), (1, 64, 12, 48)],
)
def test_native_cells_are_the_plain_ones(groups, rows, steps, hidden):
    arguments = cells(groups, rows, steps, hidden)
    plain = outputs_and_gradients(plain_cells, arguments)
    native = outputs_and_gradients(NativeCells.apply, arguments)
    exact = outputs_and_gradients(plain_cells, [each.double() for each in arguments])
    for ours, theirs, true in zip(native, plain, exact, strict=True):
        size = float(true.abs().max())
        assert float((ours - true).abs().max()) <= 4e-6 * size
        assert float((theirs - true).abs().max()) <= 4e-6 * size


def test_native_cells_are_the_same_bits_at_every_level_and_on_any_threads(select_level):
    arguments = cells(groups=40, rows=21)
    found = set()
    for level in rng.levels():
        for n_threads in (1, 3):
            select_level(level)
            dpcore.set_num_threads(n_threads)
            parts = outputs_and_gradients(NativeCells.apply, arguments)
            found.add(b"".join(part.numpy().tobytes() for part in parts))
    assert len(rng.levels()) >= 1
    assert len(found) == 1


def test_native_cells_saturate_without_overflow():
    x, wx, wh, bias = cells(1, 9)
    for factor in (1e3, -1e3, 1e30):
        h = NativeCells.apply(x * factor, wx, wh, bias)
        assert torch.isfinite(h).all()
        assert torch.allclose(h, plain_cells(x * factor, wx, wh, bias), atol=2e-6)


def test_what_the_native_kernel_cannot_do_goes_to_torch():
    x, _, wh, _ = cells()
    assert can_be_native(x, wh)
    assert not can_be_native(x.double(), wh.double())
    assert not can_be_native(x, wh[:, :8])
    assert not can_be_native(x.clone().requires_grad_(), wh)


def test_native_buffers_are_checked():
    from dpcore_ext.recurrent import Cells

    x, wx, wh, bias = (each.numpy() for each in cells(2, 3, 4))
    h, c, gates = (np.empty((2, 3, 4, n), np.float32) for n in (16, 16, 64))
    held = Cells(x, wx, wh, bias, h, c, gates)
    for first, last in ((-1, 1), (1, 0), (0, 3)):
        with pytest.raises(ParameterError):
            held.forward(first, last)
    with pytest.raises(ParameterError):
        Cells(x, wx[:1], wh, bias, h, c, gates)
    with pytest.raises(ParameterError):
        Cells(x, wx, wh, bias, h[:, :2].copy(), c, gates)
    with pytest.raises(ParameterError):
        Cells(x, wx[:, :32].copy(), wh[:, :8, :32].copy(), bias[:, :32].copy(), h, c, gates)
    with pytest.raises(ParameterError):
        held.backward(h[:, :2].copy(), wx.copy(), wh.copy(), bias.copy(), 0, 2)
    with pytest.raises(ParameterError):
        held.backward(h, wx.copy(), wh[:1].copy(), bias.copy(), 0, 2)


# The model


def test_numbers_of_parameters():
    assert HistogramLSTM(1, 2, n_bins=10).n_parameters == 13_320
    assert HistogramLSTM(1, 2).n_parameters == 13_080
    assert HistogramLSTM(325, 2, n_bins=10).n_parameters == 4_329_000


def test_the_linear_layer_is_the_identity_at_first_and_is_what_forward_applies():
    model = HistogramLSTM(2, 2, kernel="torch")
    a = torch.relu(torch.randn(4, 5, 12, 16))
    assert torch.equal(model.linear_layer(a), a)
    with torch.no_grad():
        model.linear.add_(torch.randn(model.linear.shape) * 0.1)
    x = torch.randn(4, 5, 12)
    u = (x - x.mean(2, keepdim=True)) / x.std(2, keepdim=True, correction=0)
    z = model.linear_layer(model.states(u)).flatten(2)
    dense, offset = model.dense.flatten(0, 1), model.offset.flatten(0, 1)
    v = z @ dense + offset[:, None]
    v = v * x.std(2, keepdim=True, correction=0) + x.mean(2, keepdim=True)
    assert torch.allclose(model.forward_groups(x), v, atol=1e-5)


def test_channels_and_nodes_do_not_mix():
    model = HistogramLSTM(3, 2, n_bins=4, hidden=4, width=6, horizon=2)
    x = torch.randn(5, 3, 2, 6, requires_grad=True)
    side = torch.rand(5, 3, 2, 4, requires_grad=True)
    predicted = model(x, side)
    assert predicted.shape == (5, 3, 2, 2)
    for node in range(3):
        for channel in range(2):
            out = predicted[:, node, channel].sum()
            for given in (x, side):
                [gradient] = torch.autograd.grad(out, given, retain_graph=True)
                assert gradient[:, node, channel].abs().sum() > 0
                gradient[:, node, channel] = 0
                assert gradient.abs().sum() == 0


@pytest.mark.parametrize("a", [0.5, 3.0])
def test_instance_norm_makes_forecasts_follow_scale_and_level(a):
    model = HistogramLSTM(2, n_bins=4)
    x, side = torch.randn(9, 2, 1, 12), torch.rand(9, 2, 1, 4)
    moved = model(a * x + 7, side)
    assert torch.allclose(moved, a * model(x, side) + 7, atol=1e-5 * 10)
    plain = HistogramLSTM(2, n_bins=4, input_norm="none")
    assert not torch.allclose(plain(a * x + 7, side), a * plain(x, side) + 7, atol=0.1)
    left = HistogramLSTM(2, n_bins=4, output_norm="none")
    assert torch.allclose(left(a * x + 7, side), left(x, side), atol=1e-4)


def test_a_constant_window_gives_its_level():
    model = HistogramLSTM(2)
    predicted = model(torch.full((3, 2, 1, 12), 4.25))
    assert torch.isfinite(predicted).all()
    assert torch.allclose(predicted, torch.tensor(4.25), atol=1e-4)


def test_the_first_weights_of_a_node_depend_on_its_number_alone():
    few, many = HistogramLSTM(2, random_state=3), HistogramLSTM(5, random_state=3)
    for name, weights in few.state_dict().items():
        assert torch.equal(weights, many.state_dict()[name][:2])
    other = HistogramLSTM(2, random_state=4)
    assert not torch.equal(few.wx, other.wx)
    gates = few.wh[0, 0, :, :16]
    assert torch.allclose(gates @ gates.T, torch.eye(16), atol=1e-5)
    assert few.bias[0, 0].reshape(4, 16).mean(1).tolist() == [0, 0, 1, 0]


def test_options_and_columns_are_checked():
    for options in ({"input_norm": "layer"}, {"hidden": 0}, {"kernel": "fast"}):
        with pytest.raises(ParameterError):
            HistogramLSTM(2, **options)
    with pytest.raises(ParameterError):
        HistogramLSTM(2, n_bins=3)(torch.zeros(1, 2, 1, 12))


# Training together is training apart


class SeparateModel(torch.nn.Module):
    """One node as a user would write it: nn.Parameter by layer, a loop over steps, no stacking."""

    def __init__(self, stacked, node):
        super().__init__()
        for name, weights in stacked.state_dict().items():
            setattr(self, name, torch.nn.Parameter(weights[node].clone()))
        self.hidden = stacked.hidden

    def forward(self, x, side):
        mean, deviation = x.mean(2, keepdim=True), x.std(2, keepdim=True, correction=0)
        u, H, found = (x - mean) / deviation, self.hidden, []
        for f in range(len(x)):
            h = c = torch.zeros(x.shape[1], H, dtype=x.dtype)
            kept = []
            for t in range(x.shape[2]):
                gates = u[f, :, t, None] * self.wx[f] + h @ self.wh[f] + self.bias[f]
                i, g, o_f, o = (gates[:, q * H : (q + 1) * H] for q in range(4))
                c = torch.sigmoid(o_f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                kept.append(torch.relu(h) @ self.linear[f, t])
            z = torch.cat([*kept, side[f]], dim=1)
            found.append(z @ self.dense[f] + self.offset[f])
        return torch.stack(found) * deviation + mean


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_twenty_steps_together_are_twenty_steps_apart(dtype, limit):
    n_nodes, F = 3, 2
    given = data(n_nodes, F, n_bins=5, dtype=dtype)
    stacked = HistogramLSTM(n_nodes, F, n_bins=5, dtype=dtype)
    apart = [SeparateModel(stacked, node) for node in range(n_nodes)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (stacked, *apart)]
    order = np.random.default_rng(0).permutation(170)[:160].reshape(20, 8)
    for batch in torch.from_numpy(order):
        for optimizer in optimizers:
            optimizer.zero_grad()
        node_losses(stacked, given, batch, "standardised").sum().backward()
        x, side = given.inputs(batch)
        y, _ = given.targets(batch)
        for node, model in enumerate(apart):
            own = slice(node * F, node * F + F)
            (model(x[own], side[own]) - y[own]).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    for node, model in enumerate(apart):
        for name, weights in model.named_parameters():
            together = getattr(stacked, name)[node]
            # Adam divides by the size of the gradient: of single-precision noise in a gradient near
            # 0 it makes a whole step, so the last hundredth may differ by a little more there.
            difference = (together - weights).detach().abs()
            assert float(difference.quantile(0.99)) <= limit
            assert float(difference.max()) <= limit * (50 if dtype is torch.float32 else 1)


def test_a_node_is_not_moved_by_its_companions():
    def trained(n_nodes):
        given = data(n_nodes, n_times=120)
        model = HistogramLSTM(n_nodes)
        train(model, given, np.arange(90), NONE, OPTIONS)
        return model

    few, many = trained(1), trained(4)
    for name, weights in few.state_dict().items():
        assert torch.allclose(weights[0], many.state_dict()[name][0], atol=1e-6)


def test_gradients_are_clipped_per_node():
    model = HistogramLSTM(2)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model.wx.grad[0] = 3.0
    model.bias.grad[1] = 1e-3
    clip_gradients(model, 1.0)
    assert abs(float(model.wx.grad[0].norm()) - 1) < 1e-6
    assert torch.all(model.bias.grad[1] == 1e-3)


def test_missing_targets_do_not_count_and_constant_windows_not_in_instance_space():
    given = data(2, n_times=60)
    observed = torch.ones_like(given.series, dtype=torch.bool)
    observed[0, 12:18] = False
    masked = WindowData(given.series, observed, [], 12, 0, 12, 12, 2)
    model = HistogramLSTM(2)
    first = torch.tensor([0])
    error = (model.forward_groups(given.inputs(first)[0]) - given.targets(first)[0]).square()
    losses = node_losses(model, masked, first, "standardised")
    assert torch.allclose(losses[0], error[0, :, 6:].mean())
    assert torch.allclose(losses[1], error[1].mean())
    flat = WindowData(torch.ones_like(given.series), None, [], 12, 0, 12, 12, 2)
    assert node_losses(model, flat, first, "instance").tolist() == [0, 0]


def test_every_node_stops_for_itself_and_keeps_its_best_weights():
    """A node of pure noise worsens and stops; a node that can be learned goes on."""
    random = np.random.default_rng(0)
    wave = np.sin(np.arange(400) / 7)
    series = torch.from_numpy(np.stack([wave, random.normal(size=400)])).float()
    given = WindowData(series, None, [], 12, 0, 12, 12, 2)
    model = HistogramLSTM(2)
    options = Options(12, 16, 0.01, "standardised", 2, None, 0, False)
    errors, weights = [], []

    def note(state):
        errors.append(state["error"].numpy().copy())
        weights.append({k: v.clone() for k, v in model.state_dict().items()})

    train(model, given, np.arange(250), np.arange(280, 376), options, after_epoch=note)
    table = np.array(errors)
    for node in range(2):
        best, waited, chosen = np.inf, 0, 0
        for epoch, error in enumerate(table[:, node]):
            if waited >= 2:
                break
            waited = 0 if error < best else waited + 1
            if error < best:
                best, chosen = error, epoch
        for name, value in model.state_dict().items():
            assert torch.equal(value[node], weights[chosen][name][node])
    stops = [int(np.argmin(table[:, node])) for node in range(2)]
    assert stops[1] < stops[0]
