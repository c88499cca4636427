"""Private steps of torch optimizers do what they promise."""

import hashlib
import io
import itertools
import math

import numpy as np
import pytest
import torch

import dpcore
from bench.examples import torch_dp_training
from dpcore._gradients import grid_unit, noisy_sum
from dpcore.accounting import SampledGaussianEvent, compose
from dpcore.errors import (
    BudgetExceededError,
    ParameterError,
)
from dpcore.interop.torch import (
    DPOptimizer,
    per_sample_gradients,
)

PINNED = dpcore.Noise.from_key(bytes(range(32))).stream("torch")
RUN = {"clip": 0.5, "delta": 1e-5, "steps": 5, "sampling_rate": 1.0, "n_records": 50}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tests run in several processes already: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1), torch.nn.Flatten(0)
    )


def private(module, lr=0.1, **options):
    sgd = torch.optim.SGD(module.parameters(), lr=lr)
    given = {"noise_multiplier": 2.0, "noise": PINNED, **RUN, **options}
    return DPOptimizer(sgd, **given)


def flat(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).double()


def data(n=50):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(n, 3, generator=generator), torch.randn(n, generator=generator)


def single_gradients(module, x, y):
    rows = []
    for a, b in zip(x, y, strict=True):
        module.zero_grad()
        torch.nn.functional.mse_loss(module(a[None]), b[None]).backward()
        rows.append(torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    return torch.stack(rows).double()


def set_gradients(module, rows):
    """As an engine of per-sample gradients leaves them."""
    at = 0
    for p in module.parameters():
        p.grad_sample = rows[:, at : at + p.numel()].reshape(len(rows), *p.shape)
        at += p.numel()


def test_per_sample_gradients_are_those_of_single_records():
    module, (x, y) = network(), data(20)
    per_sample_gradients(module, torch.nn.functional.mse_loss, x, y, chunk_size=7)
    found = torch.cat([p.grad_sample.reshape(20, -1) for p in module.parameters()], dim=1)
    assert torch.allclose(found.double(), single_gradients(module, x, y), atol=1e-6)


def test_a_step_is_the_noisy_clipped_sum():
    module, (x, y) = network(), data()
    optimizer = private(module)
    start, rows = flat(module), single_gradients(module, x, y)
    unit = grid_unit(rows.shape[1], 0.5, 2.0)
    factor = (0.5 * (1 - 1e-6) / rows.norm(dim=1)).clamp(max=1)
    on_grid = (rows * factor[:, None] / unit).round()
    assert bool((factor < 1).any())
    assert bool((on_grid.norm(dim=1) * unit <= 0.5 + math.sqrt(rows.shape[1]) * unit / 2).all())
    total = (on_grid.sum(0) * unit).numpy()
    source = optimizer._source.stream("step", 0, hashlib.sha256(total.tobytes()).digest())
    expected = noisy_sum(total, 0.5, 2.0, source) / 50
    set_gradients(module, rows)
    optimizer.step()
    assert np.allclose((start - flat(module)).numpy() / 0.1, expected, atol=1e-6)


def test_one_record_moves_a_sum_by_the_clip_norm_at_most():
    module = network()
    optimizer = private(module, clip=0.25)
    d = flat(module).numel()
    others = 1e3 * torch.randn(40, d, dtype=torch.float64)
    for scale in (1e-9, 1e-3, 1.0, 1e30):
        one = scale * torch.randn(1, d, dtype=torch.float64)
        with_one = optimizer._clipped_sum(split(module, torch.cat([others, one])))
        without = optimizer._clipped_sum(split(module, others))
        unit = grid_unit(d, 0.25, 2.0)
        assert np.linalg.norm(with_one - without) <= 0.25 + math.sqrt(d) / 2 * unit
        assert (with_one / unit == np.rint(with_one / unit)).all()


def split(module, rows):
    set_gradients(module, rows)
    return [p.grad_sample for p in module.parameters()]


def test_the_sum_does_not_depend_on_chunks(monkeypatch):
    module = network()
    optimizer = private(module)
    rows = torch.randn(33, flat(module).numel())
    whole = optimizer._clipped_sum(split(module, rows))
    monkeypatch.setattr("dpcore.interop.torch.training._CHUNK", 100)
    assert np.array_equal(optimizer._clipped_sum(split(module, rows.flip(0))), whole)


def test_a_record_without_a_finite_gradient_counts_as_zero():
    module = network()
    optimizer = private(module)
    rows = torch.randn(5, flat(module).numel())
    bad = rows.clone()
    bad[1, 2], bad[3, 0] = math.nan, math.inf
    expected = optimizer._clipped_sum(split(module, rows[[0, 2, 4]]))
    assert np.array_equal(optimizer._clipped_sum(split(module, bad)), expected)


def test_the_noise_has_the_scale_that_is_accounted_for():
    """Variance of 40000 coordinates, by the normal approximation at a false-alarm rate of 1e-6."""
    module = torch.nn.Linear(200, 200, bias=False)
    optimizer = private(module, noise_multiplier=3.0, n_records=1)
    total = optimizer._clipped_sum([torch.zeros(0, 200, 200)])
    noisy = noisy_sum(total, 0.5, 3.0, optimizer._source.stream("step", 0))
    ratio = float(np.mean(np.square(noisy))) / (3.0 * 0.5) ** 2
    n = noisy.size
    least, most = (1 - 4.9 * math.sqrt(2 / n)), (1 + 4.9 * math.sqrt(2 / n)) * (1 + 1 / 1024) ** 2
    assert least < ratio < most


def test_epsilon_is_that_of_the_accountant():
    optimizer = private(network(), epsilon=2.0, noise_multiplier=None, sampling_rate=0.1, steps=100)
    privacy = optimizer.privacy()
    [event] = privacy.events
    assert isinstance(event, SampledGaussianEvent)
    assert (event.count, event.sampling_rate) == (100, 0.1)
    assert event.noise_multiplier == optimizer.noise_multiplier
    assert privacy.epsilon == compose([event]).epsilon(1e-5)
    assert 1.99 < privacy.epsilon <= 2.0
    assert privacy.private
    assert any("lots" in text for text in privacy.not_covered)
    assert not private(network(), noise=dpcore.Noise.insecure(1)).privacy().private


def test_the_whole_run_is_charged_before_its_first_step(tmp_path):
    ledger = dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=2.0, delta=1e-5)
    with ledger:
        module, (x, y) = network(), data()
        optimizer = private(module, epsilon=1.5, noise_multiplier=None, noise=None)
        assert len(ledger.entries) == 1
        for lot in optimizer.lots(len(x)):
            per_sample_gradients(module, torch.nn.functional.mse_loss, x[lot], y[lot])
            optimizer.step()
        assert len(ledger.entries) == 1
        with pytest.raises(BudgetExceededError):
            private(module, epsilon=1.5, noise_multiplier=None, noise=None)
    assert 1.49 < ledger.spent[0] <= 1.5


def test_lots_are_poisson_samples_and_each_gets_one_step():
    module = network()
    optimizer = private(module, sampling_rate=0.3, steps=20)
    sizes = []
    for lot in optimizer.lots(1000):
        sizes.append(len(lot))
        assert bool((lot.diff() > 0).all())
        set_gradients(module, torch.zeros(0, flat(module).numel()))
        optimizer.step()
    # 4.9 standard deviations of a sum of 20000 coins.
    assert abs(sum(sizes) - 6000) < 4.9 * math.sqrt(20000 * 0.3 * 0.7)
    assert len(set(sizes)) > 5
    lots = private(module, sampling_rate=0.3).lots(10)
    next(lots)
    with pytest.raises(ParameterError, match="exactly one step"):
        next(lots)


def test_an_empty_lot_still_moves_the_model():
    module = network()
    optimizer, before = private(module), flat(module)
    per_sample_gradients(module, torch.nn.functional.mse_loss, torch.zeros(0, 3), torch.zeros(0))
    optimizer.step()
    assert bool((flat(module) != before).all())


def test_a_pinned_run_repeats_and_another_run_shares_no_noise():
    def run(**options):
        module = network()
        optimizer = private(module, **options)
        set_gradients(module, torch.zeros(0, flat(module).numel()))
        before = flat(module)
        optimizer.step()
        return flat(module) - before

    first = run()
    assert torch.equal(first, run())
    for other in ({"lr": 0.2}, {"clip": 0.4}, {"steps": 6}, {"n_records": 51}):
        ratio = run(**other) / first
        assert float(ratio.std()) > 0.01 * float(ratio.abs().mean())


def test_another_loss_on_a_pinned_stream_shares_no_noise():
    """The difference of two steps would otherwise be that of the exact sums."""

    def step(rows):
        module = network()
        optimizer = private(module, sampling_rate=1.0)
        before = flat(module)
        set_gradients(module, rows)
        optimizer.step()
        return flat(module) - before

    rows = 0.01 * torch.randn(
        50, flat(network()).numel(), generator=torch.Generator().manual_seed(0)
    )
    exact = 0.1 * rows.double().sum(dim=0) / 50
    assert torch.equal(step(rows), step(rows))
    noise = step(rows) - step(2 * rows) - exact
    assert float(noise.std()) > 0.1 * RUN["clip"] * 2.0 / 50


def test_a_frozen_parameter_stays_where_it_is():
    module, (x, y) = network(), data()
    optimizer = private(module)
    torch.nn.functional.mse_loss(module(x), y).backward()
    frozen = module[0].weight.requires_grad_(False)
    before, free = frozen.clone(), module[2].weight.clone()
    per_sample_gradients(module, torch.nn.functional.mse_loss, x, y)
    optimizer.step()
    assert torch.equal(frozen, before)
    assert not torch.equal(module[2].weight, free)
    frozen.grad = torch.ones_like(frozen)
    optimizer.zero_grad()
    assert frozen.grad is None


def test_something_must_be_trained():
    module = network().requires_grad_(False)
    with pytest.raises(ParameterError, match="train"):
        private(module)
    module.requires_grad_(True)
    optimizer = private(module)
    module.requires_grad_(False)
    with pytest.raises(ParameterError, match="train"):
        optimizer.step()
    assert optimizer.steps_taken == 0


def train(module, optimizer, n_steps, scheduler=None):
    x, y = data()
    for lot in itertools.islice(optimizer.lots(len(x)), n_steps):
        per_sample_gradients(module, torch.nn.functional.mse_loss, x[lot], y[lot])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def adam(module, **options):
    inner = torch.optim.Adam(module.parameters(), lr=0.05)
    given = {"noise_multiplier": 2.0, "noise": PINNED, **RUN, "sampling_rate": 0.5, **options}
    return DPOptimizer(inner, **given)


def saved(module, optimizer):
    """Through a file, as a run that is stopped leaves it."""
    file = io.BytesIO()
    torch.save((module.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(tmp_path):
    whole = network()
    optimizer = adam(whole)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, 0.5)
    train(whole, optimizer, 5, schedule)
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=100.0, delta=1e-3) as ledger:
        module = network()
        optimizer = adam(module)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, 0.5)
        train(module, optimizer, 2, schedule)
        weights, state = saved(module, optimizer)
        place = schedule.state_dict()
        assert len(ledger.entries) == 1
        # Of another beginning, so this is a run of its own until the state is there.
        module = network(seed=1)
        optimizer = adam(module)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, 0.5)
        optimizer.load_state_dict(state)
        schedule.load_state_dict(place)
        module.load_state_dict(weights)
        assert optimizer.steps_taken == 2
        train(module, optimizer, 5, schedule)
        assert len(ledger.entries) == 2
    assert torch.equal(flat(module), flat(whole))
    set_gradients(module, torch.zeros(2, flat(module).numel()))
    with pytest.raises(ParameterError, match="used up"):
        optimizer.step()


def test_a_loaded_run_is_charged_where_it_was_not(tmp_path):
    module = network()
    optimizer = adam(module)
    train(module, optimizer, 1)
    _, state = saved(module, optimizer)
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=100.0, delta=1e-3) as ledger:
        adam(network(seed=1))
        again = adam(network(seed=1))
        assert len(ledger.entries) == 1
        again.load_state_dict(state)
        assert len(ledger.entries) == 2


def test_a_state_loaded_twice_shares_no_noise_unless_pinned():
    module = network()
    optimizer = adam(module, noise=None)
    train(module, optimizer, 2)
    weights, state = saved(module, optimizer)
    ends = []
    for _ in range(2):
        copied = network(seed=1)
        other = adam(copied, noise=None)
        other.load_state_dict(state)
        copied.load_state_dict(weights)
        before = flat(copied)
        train(copied, other, 1)
        ends.append(flat(copied) - before)
    assert not torch.allclose(*ends)


def test_states_of_other_runs_are_refused():
    module = network()
    optimizer = private(module)
    train(module, optimizer, 2)
    weights, state = saved(module, optimizer)
    with pytest.raises(ParameterError, match="first step"):
        optimizer.load_state_dict(state)
    for other in (
        *({"clip": 0.4}, {"steps": 6}, {"n_records": 51}, {"noise_multiplier": 3.0}),
        *({"delta": 1e-6}, {"noise": dpcore.Noise.insecure(1)}),
    ):
        with pytest.raises(ParameterError, match="these parameters"):
            private(network(), **other).load_state_dict(state)
    with pytest.raises(ParameterError, match="these parameters"):
        adam(network(), sampling_rate=1.0).load_state_dict(state)
    for bad in (
        *(None, 5, {}, {**state, "more": 1}, {**state, "run": 5}, {**state, "run": "xy"}),
        *({**state, "optimizer": {}}, {**state, "steps_taken": 6}, {**state, "steps_taken": -1}),
    ):
        with pytest.raises(ParameterError, match="'state'"):
            private(network()).load_state_dict(bad)
    # The noise of a step is for the parameters that it was, or would have been, taken from.
    module = network()
    optimizer = private(module)
    optimizer.load_state_dict(state)
    with pytest.raises(ParameterError, match="saved"):
        train(module, optimizer, 1)
    module.load_state_dict(weights)
    train(module, optimizer, 1)
    assert optimizer.steps_taken == 3


def test_a_gradient_is_used_once_and_a_run_ends():
    module = network()
    optimizer = private(module, steps=1)
    rows = torch.zeros(2, flat(module).numel())
    with pytest.raises(ParameterError, match="grad_sample"):
        optimizer.step()
    set_gradients(module, rows)
    next(module.parameters()).grad_sample = torch.zeros(3, 4, 3)
    with pytest.raises(ParameterError, match="same lot"):
        optimizer.step()
    set_gradients(module, rows)
    optimizer.step()
    assert all(p.grad_sample is None for p in module.parameters())
    set_gradients(module, rows)
    with pytest.raises(ParameterError, match="used up"):
        optimizer.step()
    optimizer.zero_grad()
    assert all(p.grad is None and p.grad_sample is None for p in module.parameters())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"clip": 0}, "clip"),
        ({"steps": 0}, "steps"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"delta": 0}, "delta"),
        ({"n_records": -1}, "n_records"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"noise_multiplier": None}, "epsilon"),
        ({"noise_multiplier": -1}, "noise_multiplier"),
    ],
)
def test_parameters_are_checked(options, name):
    with pytest.raises(ParameterError, match=name):
        private(network(), **options)


def test_layers_that_mix_records_are_refused():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with pytest.raises(RuntimeError):
        per_sample_gradients(module, lambda a, b: a.sum(), *data(4))


def test_the_example_learns():
    assert torch_dp_training.main(steps=40, sampling_rate=1.0) > 0.85
