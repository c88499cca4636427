"""Every sampler: all SIMD levels alike, any cut alike, and equal to the twin."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import twin
from native_support import KEY, KEY_BYTES, LEVELS, SAMPLERS, TAILED, from_law, sampler

from dpcore import _laws
from dpcore_ext import sample

LENGTHS = [*range(1, 71), 255, 256, 257, 2047, 2048, 2049, 4097]
OFFSETS = [0, 1, 7, 33]
# Element 2**37 reads the block of a 16-bit lane at which the counter carries into its high half,
# 2**35 that of a 64-bit lane, 2**32 that of a refine lane; the last one ends at the limit.
BASES = [0, 2**32 - 1000, 2**35 - 1000, 2**37 - 1000, 2**62 - 4200]


@pytest.mark.parametrize("name", SAMPLERS)
def test_level_length_and_start_do_not_change_an_element(name, select_level):
    native = sampler(name)
    for base in BASES:
        select_level("baseline")
        whole = native.draw(base, 4200)
        for level in LEVELS:
            select_level(level)
            for offset in OFFSETS:
                for n in LENGTHS if base == 0 else (1, 33, 2049, 4097):
                    drawn = native.draw(base + offset, n)
                    expected = whole[offset : offset + n]
                    assert np.array_equal(drawn, expected), (level, base, offset, n)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if sampler(name).adds])
def test_noise_is_added_alike_at_every_level_into_unaligned_memory(name, select_level):
    native = sampler(name)
    random = np.random.default_rng(1)
    x = random.integers(-(2**61), 2**61, 2100)
    x[:4] = -(2**62), 2**62, 0, -1
    select_level("baseline")
    expected = x + native.draw(5, x.size)
    for level in LEVELS:
        select_level(level)
        for n in (1, 2, 31, 33, 65, 257, 2049):
            for shift in (0, 1, 3):
                out = np.full(n + 8, 77, np.int64)
                source = np.concatenate([np.zeros(shift, np.int64), x[:n]])[shift:]
                native.fill(KEY, 5, source, out[shift : shift + n])
                assert np.array_equal(out[shift : shift + n], expected[:n]), (level, n, shift)
                assert (out[:shift] == 77).all()
                assert (out[shift + n :] == 77).all()
        in_place = x.copy()
        native.fill(KEY, 5, in_place, in_place)
        assert np.array_equal(in_place, expected), level


@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_equal_those_of_the_twin(name, select_level):
    native = sampler(name)
    for start, n in ((0, 3000), (2**37 - 100, 200), (2**62 - 100, 100)):
        expected = native.expected(start, n)
        for level in LEVELS:
            select_level(level)
            assert native.draw(start, n).tolist() == expected, (level, start)


@pytest.mark.parametrize("name", SAMPLERS)
def test_single_elements_equal_the_bulk_call(name):
    """Calls of at most SMALL elements refine every element; larger ones only the open ones."""
    native = sampler(name)
    bulk = native.draw(0, 1000)
    single = np.concatenate([native.draw(i, 1) for i in range(1000)])
    assert np.array_equal(single, bulk)
    small = [native.draw(i, min(sample.SMALL, 1000 - i)) for i in range(0, 1000, sample.SMALL)]
    assert np.array_equal(np.concatenate(small), bulk)
    one_more = native.draw(0, sample.SMALL + 1)
    assert np.array_equal(one_more, bulk[: sample.SMALL + 1])


@pytest.mark.parametrize("name", TAILED)
def test_small_calls_follow_the_tail_as_the_twin_does(name, select_level):
    native = sampler(name)
    expected = native.expected(0, 1000)
    top = native.twin.top
    last = (top.first + len(top.thresholds)) << sum(bits for _, bits in native.twin.digits)
    assert sum(abs(value) > last for value in expected) > 10
    for level in LEVELS:
        select_level(level)
        drawn = [native.draw(i, min(32, 1000 - i)) for i in range(0, 1000, 32)]
        assert np.concatenate(drawn).tolist() == expected, level


@pytest.mark.parametrize("name", TAILED)
def test_bulk_calls_follow_the_tail_as_the_twin_does(name, select_level):
    """Holds for every table, also where the last outcome fills whole cells of the guide."""
    native = sampler(name)
    expected = native.expected(0, 1000)
    for level in LEVELS:
        select_level(level)
        assert native.draw(0, 1000).tolist() == expected, level


@pytest.mark.parametrize("make", [_laws.discrete_laplace, _laws.geometric])
@pytest.mark.parametrize("scale", [1, 10, 1000])
def test_a_rare_tail_is_reached_in_bulk(make, scale, select_level):
    """The last outcome shares its cell of the guide with others, as in the laws in use."""
    law = make(Fraction(1, scale), reach=18)
    native = from_law(law)
    last = (law.top.first + len(law.top.thresholds)) << sum(bits for _, bits in law.digits)
    select_level("baseline")
    drawn = native.draw(0, 1 << 20)
    beyond = np.flatnonzero(np.abs(drawn) >= last)
    assert 1 <= len(beyond) < 100
    for i in beyond:
        assert drawn[i] == native.twin.noise(KEY_BYTES, int(i))
    for level in LEVELS[1:]:
        select_level(level)
        assert np.array_equal(native.draw(0, 1 << 20), drawn), level


@pytest.mark.parametrize("lattice", [True, False])
@pytest.mark.parametrize("sigma", [33, 10**4, 10**9])
def test_the_128_bit_acceptance_decides_as_the_64_bit_one(lattice, sigma, select_level):
    law = (_laws.discrete_gaussian if lattice else _laws.rounded_gaussian)(Fraction(sigma))
    wide = _laws.Rejection(law.cells, law.kappa, law.shift, law.lattice, guard=2**64 - 1)
    expected = from_law(law).draw(0, 200_000)
    for level in LEVELS:
        select_level(level)
        assert np.array_equal(from_law(wide).draw(0, 200_000), expected), level
    small = np.concatenate([from_law(wide).draw(i, 32) for i in range(0, 3200, 32)])
    assert np.array_equal(small, expected[:3200])


@pytest.mark.parametrize("sigma", [32.000000001, np.nextafter(64.0, 65), 2.0**36, 1e10, 32.5])
@pytest.mark.parametrize("make", [_laws.discrete_gaussian, _laws.rounded_gaussian])
def test_gaussians_exist_up_to_the_edges_of_their_cell_widths(make, sigma):
    native = from_law(make(Fraction(float(sigma))))
    assert native.draw(0, 300).tolist() == native.expected(0, 300)


@pytest.mark.parametrize("make", [_laws.discrete_laplace, _laws.geometric])
def test_laws_exist_up_to_the_largest_documented_scale(make):
    native = from_law(make(1 / Fraction(_laws.MAX_LAPLACE_SCALE)))
    assert native.draw(0, 100).tolist() == native.expected(0, 100)


def test_integers_refuse_about_half_the_words_for_the_bound_that_asks_for_it():
    words = [twin.lane_word(KEY_BYTES, 0, i, 64) for i in range(1000)]
    refused = sum(word * (2**63 + 1) % 2**64 < 2**64 % (2**63 + 1) for word in words)
    assert 400 < refused < 600


def test_exp_neg_is_within_its_stated_error():
    random = np.random.default_rng(4)
    exponents = [0, 1, 2, 3, 2**62, 2**62 - 1, 2**63, 2**64 - 1]
    exponents += [int(v) for v in random.integers(0, 2**64, 3000, dtype=np.uint64)]
    exponents += [int(v) >> int(s) for v, s in zip(exponents[8:500], range(492), strict=True)]
    with mpmath.workprec(200):
        for exponent in exponents:
            exact = mpmath.exp(-mpmath.mpf(exponent) / 2**62) * 2**64
            assert abs(sample.exp_neg(exponent) - exact) <= sample.GAUSS_GUARD / 4, exponent


def test_exp_neg_equals_the_twin():
    exponents = np.random.default_rng(5).integers(0, 2**64, 3000, dtype=np.uint64).tolist()
    for exponent in [0, 1, 2**64 - 1, *exponents]:
        assert sample.exp_neg(exponent) == twin.exp_negative_64(exponent)


def test_the_128_bit_exponential_of_the_twin_is_exact_to_115_bits():
    random = np.random.default_rng(6)
    with mpmath.workprec(300):
        for _ in range(500):
            exponent = int.from_bytes(random.bytes(16), "little")
            exact = mpmath.exp(-mpmath.mpf(exponent) / 2**126) * 2**128
            assert abs(twin.exp_negative_128(exponent) - exact) < 2**13


def test_a_guide_entry_names_the_outcome_of_its_whole_cell():
    table = _laws.discrete_laplace(Fraction(1, 10)).top
    reference = twin.Table(table.thresholds, table.first)
    guide = table.native.guide
    open_cells = 0
    for cell in range(65536):
        low, high = cell << 240, ((cell + 1) << 240) - 1
        if guide[cell] == -32768:
            # A threshold exactly at the start of a cell would not have to open it.
            assert any(t >> 240 == cell for t in table.thresholds)
            open_cells += 1
        else:
            assert reference.outcome(low) == reference.outcome(high)
            assert guide[cell] == table.first + reference.outcome(low)
    assert 0 < open_cells <= len(table.thresholds)


def test_saturation_replaces_what_leaves_int64():
    """40 low bits under a top whose tail reaches far beyond 2**23 cells."""
    tail = (*(0,) * 32766, 2**247)
    empty = _laws.IntegerTable(())
    law = _laws.Digits(
        _laws.IntegerTable((2**255 - 12345, 2**255 + 12345), first=-1, open_ends=2),
        _laws.IntegerTable(tail),
        ((empty, 8),) * 5,
        symmetric=True,
    )
    native = from_law(law)
    x = np.array([0, 2**62, -(2**62)] * 4, np.int64)
    drawn = native.add(0, x)
    assert drawn.tolist() == twin.sample(native.twin, KEY_BYTES, 0, x.tolist())
    assert drawn.max() == 2**63 - 1
    assert drawn.min() == -(2**63)
    assert ((drawn > -(2**63)) & (drawn < 2**63 - 1)).any()
