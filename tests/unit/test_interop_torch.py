"""Releases on tensors equal those on arrays, traced or not."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

import dpcore
from dpcore import local
from dpcore.errors import (
    DataError,
    InsecureNoiseError,
    ParameterError,
)
from dpcore.interop.torch import (
    Encode,
    Gaussian,
    Laplace,
    Mask,
)
from dpcore.secure.ring import add_masks

PINNED = dpcore.Noise.from_key(bytes(range(32))).stream("torch")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tests run in several processes already: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Releases


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("module", "function"),
    [
        (Laplace(epsilon=0.5, sensitivity=2, dimension=None, noise=PINNED), dpcore.laplace),
        (Gaussian(epsilon=0.5, sensitivity=2, delta=1e-6, noise=PINNED), dpcore.gaussian),
    ],
    ids=["laplace", "gaussian"],
)
def test_noise_is_that_of_numpy(module, function, dtype):
    x = torch.arange(-500, 500).to(dtype).reshape(4, 250)
    options = {"epsilon": 0.5, "sensitivity": 2}
    if function is dpcore.gaussian:
        options["delta"] = 1e-6
    found = module(x)
    assert found.dtype == (dtype if dtype.is_floating_point else torch.int64)
    assert not torch.equal(found, x)
    assert np.array_equal(found.numpy(), function(x.numpy(), noise=PINNED, **options))


@pytest.mark.parametrize("mechanism", [local.Duchi(1.0), local.Piecewise(1.0, n_levels=600)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_codes_are_those_of_numpy(mechanism, dtype):
    x = torch.linspace(-1.5, 1.5, 3001, dtype=dtype)
    module = Encode(mechanism, noise=PINNED)
    expected = mechanism.encode(x.numpy(), noise=PINNED)
    assert np.array_equal(module(x).numpy(), expected)
    parts = torch.cat([module(x[:1000]), module(x[1000:], start=1000)])
    assert np.array_equal(parts.numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_masks_are_those_of_numpy_and_cancel(dtype):
    keys, signs = [bytes([i]) * 32 for i in range(3)], [False, True, False]
    words = torch.arange(-300, 301).to(dtype)
    expected = words.numpy().view(f"u{dtype.itemsize}").copy()
    add_masks(keys, signs, expected)
    found = Mask(keys, signs)(words.clone())
    assert np.array_equal(found.numpy().view(f"u{dtype.itemsize}"), expected)
    assert torch.equal(Mask(keys, [not sign for sign in signs])(found), words)


def test_a_mask_is_for_one_vector():
    mask, words = Mask([bytes(32)], [False]), torch.arange(5)
    with pytest.raises(ParameterError, match="words"):
        mask(torch.zeros(5))
    mask(words.clone())
    for again in (words.clone(), words + 1):
        before = again.clone()
        with pytest.raises(ParameterError, match="one vector"):
            mask(again)
        assert torch.equal(again, before)


@pytest.mark.parametrize(
    "bad",
    [
        torch.zeros(3, device="meta"),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3).to_sparse(),
        np.zeros(3),
        [0.0, 0.0, 0.0],
        None,
    ],
    ids=["meta", "bfloat16", "complex", "bool", "sparse", "numpy", "list", "none"],
)
def test_only_dense_tensors_of_numbers_on_the_cpu_are_taken(bad, tmp_path):
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0) as ledger:
        for module in (
            Laplace(epsilon=1, sensitivity=1),
            Gaussian(sigma=1.0, sensitivity=1),
            Encode(local.Duchi(1.0)),
        ):
            with pytest.raises(ParameterError, match="'x'"):
                module(bad)
            if bad is not None:
                with pytest.raises(ParameterError, match="'out'"):
                    module(torch.zeros(3), out=bad)
        with pytest.raises(ParameterError, match="'words'"):
            Mask([bytes(32)], [False])(bad)
    assert not ledger.entries


def test_results_are_written_where_asked_without_a_copy():
    array = np.zeros(1000)
    out = torch.from_numpy(array)
    found = Laplace(epsilon=1, sensitivity=1, noise=PINNED)(torch.ones(1000).double(), out=out)
    assert found.data_ptr() == array.ctypes.data
    assert array.any()
    codes = torch.empty(1000, dtype=torch.uint8)
    assert Encode(local.Duchi(1.0))(out, out=codes).data_ptr() == codes.data_ptr()
    for wrong in (
        torch.empty(1000, dtype=torch.uint16),
        torch.empty(999, dtype=torch.uint8),
        torch.empty(2000, dtype=torch.uint8)[::2],
    ):
        with pytest.raises(ParameterError, match="out"):
            Encode(local.Duchi(1.0))(out, out=wrong)
    with pytest.raises(ParameterError, match="out"):
        Laplace(epsilon=1, sensitivity=1)(torch.arange(3), out=torch.arange(3).int())


def test_a_tensor_that_is_not_contiguous_or_needs_a_gradient():
    x = torch.arange(12.0, dtype=torch.float64, requires_grad=True).reshape(3, 4).T
    module = Laplace(epsilon=1, sensitivity=1, noise=PINNED)
    found = module(x)
    assert not found.requires_grad
    contiguous = np.ascontiguousarray(x.detach().numpy())
    expected = dpcore.laplace(contiguous, epsilon=1, sensitivity=1, noise=PINNED)
    assert np.array_equal(found.numpy(), expected)


# Tracing


def test_ops_pass_the_checks_of_torch():
    module = Laplace(epsilon=1, sensitivity=1, noise=PINNED)
    arguments = (torch.arange(8), torch.empty(8, dtype=torch.int64), module.number, 0)
    torch.library.opcheck(
        torch.ops.dpcore.release.default, arguments, test_utils=("test_schema", "test_faketensor")
    )
    for check in ("test_schema", "test_faketensor"):
        mask = Mask([bytes(32)], [False])
        torch.library.opcheck(
            torch.ops.dpcore.mask.default,
            (torch.zeros(8, dtype=torch.int64), mask.number),
            test_utils=check,
        )


def test_a_compiled_function_gives_the_same(tmp_path):
    module = Laplace(epsilon=1, sensitivity=1, noise=PINNED)

    def pipeline():
        mask = Mask([bytes(32)], [True])
        return lambda x: mask(module(3 * x) + 1)

    traced = torch.compile(pipeline(), fullgraph=True, backend="aot_eager")
    x = torch.arange(100)
    ledger = dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0)
    with ledger:
        found = traced(x)
    assert torch.equal(found, pipeline()(x))
    assert [entry.event.mechanism for entry in ledger.entries] == ["laplace"]


def test_a_compiler_does_not_merge_two_releases():
    module = Laplace(epsilon=0.01, sensitivity=1)

    def twice(x):
        return module(x), module(x)

    first, second = torch.compile(twice, fullgraph=True, backend="aot_eager")(
        torch.zeros(50).long()
    )
    assert not torch.equal(first, second)


def test_an_exported_graph_names_the_release_and_holds_no_key():
    class Report(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = Encode(local.ThreeOutputs(1.0), noise=PINNED)

        def forward(self, x):
            return self.encode(x / 2)

    report, x = Report(), torch.linspace(-2, 2, 64)
    program = torch.export.export(report, (x,))
    assert "dpcore.release" in str(program.graph)
    assert not program.state_dict
    assert not program.constants
    assert torch.equal(program.module()(x), report(x))


def test_a_graph_of_another_process_is_refused():
    x = torch.zeros(3)
    with pytest.raises(ParameterError, match="process"):
        torch.ops.dpcore.release(x, x.clone(), 10**12, 0)


@pytest.mark.parametrize("module", [Laplace(epsilon=1, sensitivity=1), Encode(local.Duchi(1.0))])
def test_a_release_is_neither_copied_nor_pickled(module):
    assert copy.deepcopy(module) is module
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(module)


def test_refusals():
    with pytest.raises(InsecureNoiseError):
        Laplace(epsilon=1, sensitivity=1, noise=dpcore.Noise.insecure(1))
    with pytest.raises(ParameterError, match="mechanism"):
        Encode("duchi")
    with pytest.raises(ParameterError, match="keys"):
        Mask([bytes(31)], [True])
    with pytest.raises(ParameterError, match="words"):
        Mask([bytes(32)], [True])(torch.zeros(3))
    with pytest.raises(DataError):
        Encode(local.Duchi(1.0))(torch.tensor([math.nan]))
