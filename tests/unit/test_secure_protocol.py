"""Whole rounds: the sum is exact whenever enough clients remain, and nothing is learned else."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from secure_support import STAGES, Run, parameters

import dpcore
from dpcore.errors import (
    BudgetExceededError,
    DataError,
    ParameterError,
    ProtocolError,
    RoundAbortedError,
    WireFormatError,
)
from dpcore.secure import Client, Cohort, Parameters, shamir
from dpcore.secure.keys import commitment
from dpcore.secure.rounds import begin_context

SLOW = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def rounds(draw):
    n = draw(st.integers(4, 9))
    gone = {}
    for stage in STAGES:
        gone[stage] = draw(st.sets(st.integers(0, n - 1), max_size=3 if n > 6 else 2))
    if draw(st.booleans()):
        keep = draw(st.sampled_from(STAGES))
        gone = {
            stage: set(list(who)[:1]) if stage == keep else set() for stage, who in gone.items()
        }
    options = {
        "dimension": draw(st.integers(1, 70)),
        "ring_bits": draw(st.sampled_from([32, 64])),
        "server": draw(st.sampled_from(["malicious", "curious"])),
        "degree": draw(st.sampled_from([None, 4, 6])),
    }
    return n, gone, options, draw(st.integers(0, 2**32))


def outcome(run, gone):
    """What must happen, from the public rules alone: the survivors, or None for an abort."""
    p, here = run.p, None
    present = set(range(len(run.clients)))
    for stage in STAGES:
        present = present - gone[stage]
        if stage == "advertise":
            roster = sorted(present)
            if len(present) < p.min_clients:
                return None
            continue
        here = here or run.server._round
        n = len(roster)
        place = {number: at for at, number in enumerate(roster)}
        least = {"share": p.min_clients, "mask": p.min_survivors}.get(stage, 0)
        if stage in ("share", "mask") and len(present) < max(least, p.threshold(n)):
            return None
        if stage == "share":
            members = set(present)
        if stage == "mask":
            survivors = set(present)
        if stage == "confirm":
            committee = {roster[at] for at in here.committee()}
            if len(committee & present) < p.threshold(len(committee)):
                return None
        for number in members if stage == "unmask" else present:
            holders = {roster[at] for at in here.holders(place[number])}
            enough = p.threshold(len(holders))
            alive = holders & present
            if len(alive) < enough:
                return "refused" if stage in ("share", "mask") else None
    return survivors


@given(rounds())
@SLOW
def test_the_sum_is_exact_or_there_is_none(case):
    n, gone, options, seed = case
    p = parameters(**options)
    vectors = np.random.default_rng(seed).uniform(-9, 9, (n, p.dimension))
    run = Run(n, p, vectors)
    silent = set()
    try:
        for stage in STAGES:
            silent |= gone[stage]
            run.step(silent)
    except RoundAbortedError:
        assert outcome(run, gone) is None
        assert run.server.stage == "aborted"
        assert run.server._sum.size == 0
        with pytest.raises(ProtocolError):
            run.server.result()
        return
    except dpcore.errors.RefusedError:
        assert outcome(run, gone) == "refused"
        return
    survivors = outcome(run, gone)
    result = run.server.result()
    assert set(result.survivors) == survivors
    assert np.array_equal(result.words, run.expected(sorted(survivors)))


@pytest.mark.parametrize("server", ["malicious", "curious"])
def test_every_number_of_dropouts_at_every_stage(server):
    n = 7
    for stage in STAGES:
        for k in range(n):
            run = Run(n, parameters(server=server))
            gone = {name: set() for name in STAGES} | {stage: set(range(k))}
            try:
                silent = set()
                for name in STAGES:
                    silent |= gone[name]
                    run.step(silent)
            except RoundAbortedError:
                assert outcome(run, gone) is None, (stage, k)
            else:
                survivors = outcome(run, gone)
                assert survivors is not None, (stage, k)
                assert np.array_equal(run.server.result().words, run.expected(sorted(survivors)))


def test_below_the_threshold_the_shares_say_nothing():
    """The server's best attempt with all shares that it got in an aborted round."""
    run = Run(6).until("unmask", {"mask": [5]})
    needed = run.p.threshold(6)
    answers = {i: run.answer(i) for i in range(needed - 1)}
    for number, answer in answers.items():
        run.server.accept(number, answer)
    collected = dict(run.server._answers)
    with pytest.raises(RoundAbortedError):
        run.server.advance()
    here = run.server._round
    for place in range(6):
        shares = [
            table["share"][table["position"] == place][0].tobytes() for table in collected.values()
        ]
        guess = shamir.combine([number + 1 for number in collected], shares)
        start = begin_context(run.p, 1)
        assert commitment(start, guess) != here.entries[place]["commitment"].tobytes()


def test_a_masked_vector_alone_is_uniform_over_the_whole_ring():
    """Chi-square of every byte, and a test of the top value, at a false-alarm rate of 1e-6."""
    from scipy import stats

    n = 1 << 20
    for bits, dtype in ((32, np.uint32), (64, np.uint64)):
        p = parameters(dimension=n, ring_bits=bits)
        run = Run(4, p, np.zeros((4, n))).until("mask")
        words = np.frombuffer(run.answer(0)[60:], dtype)
        assert words.size == n
        p_values = [
            stats.chisquare(np.bincount(column, minlength=256)).pvalue
            for column in words.view(np.uint8).reshape(n, -1).T
        ]
        top = words >> np.array(bits - 14, dtype)
        p_values.append(
            stats.chisquare(np.bincount(top.astype(np.int64), minlength=1 << 14)).pvalue
        )
        p_values.append(stats.binomtest(int((top == (1 << 14) - 1).sum()), n, 2.0**-14).pvalue)
        assert min(p_values) * len(p_values) > 1e-6
        # The mutant: a generator whose upper end is excluded, as a modulus of 2**k - 2**(k-14) is.
        mutant = top[top != (1 << 14) - 1]
        assert stats.binomtest(int((mutant == (1 << 14) - 1).sum()), n, 2.0**-14).pvalue < 1e-6


def test_masks_of_one_client_differ_between_rounds_and_from_its_data():
    first = Run(4, parameters(dimension=1000))
    first.until("mask")
    one = first.answer(0)
    second = Run(4, first.p, clients=first.clients, number=2).until("mask")
    assert (
        np.mean(np.frombuffer(one[60:], "u8") == np.frombuffer(second.answer(0)[60:], "u8")) < 0.01
    )


def test_a_cohort_runs_round_after_round_also_in_processes():
    p = parameters(dimension=300, max_clients=10)
    x = np.random.default_rng(1).uniform(-1, 1, (10, 300))
    units = p.fixed_point.quantize
    with Cohort(p, 10, n_jobs=2) as cohort:
        for number in (1, 2):
            result = cohort.round(x, dropouts={"mask": [number], "unmask": [9]})
            assert result.round == number
            kept = [i for i in range(10) if i != number]
            assert np.array_equal(result.words, p.fixed_point.wrap(sum(units(x[i]) for i in kept)))
        with pytest.raises(RoundAbortedError):
            cohort.round(x, dropouts={"share": range(7)})


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_exhausted_budget_ends_a_round_and_not_the_cohort(n_jobs):
    def charge(session, number):
        if number == 1:
            raise BudgetExceededError("The budget is spent.")

    p = parameters()
    with Cohort(p, 6, charge=charge, n_jobs=n_jobs) as cohort:
        with pytest.raises(BudgetExceededError):
            cohort.round(np.ones((6, 4)))
        assert cohort.round(np.ones((6, 4))).total.tolist() == [6.0] * 4


def test_a_cohort_checks_what_it_is_given():
    cohort = Cohort(parameters(), 5)
    for bad in (np.zeros((4, 4)), np.zeros((5, 3)), np.zeros(5)):
        with pytest.raises(ParameterError):
            cohort.round(bad)
    with pytest.raises(ParameterError, match="dropouts"):
        cohort.round(np.zeros((5, 4)), dropouts={"never": [1]})
    with pytest.raises(DataError):
        cohort.round(np.full((5, 4), np.nan))


def test_insecure_noise_marks_the_sum():
    p = parameters(noise_sigma=3)
    cohort = Cohort(p, 5, noise=dpcore.Noise.insecure(3))
    assert isinstance(cohort.round(np.zeros((5, 4))).total, dpcore.NotPrivateArray)
    assert not isinstance(Cohort(p, 5).round(np.zeros((5, 4))).total, dpcore.NotPrivateArray)


def test_the_noise_of_all_survivors_is_in_the_sum():
    p = parameters(noise_sigma=50, dimension=20000)
    total = Cohort(p, 6).round(np.zeros((6, 20000)), dropouts={"mask": [0]})
    units = p.fixed_point.unwrap(total.words)
    # 5 shares of variance 2500: the sample variance has a relative deviation of 1 %.
    assert abs(units.var() / (5 * 2500) - 1) < 0.05


@pytest.mark.parametrize("degree", [4, 10])
def test_a_sparse_graph_gives_the_same_sum(degree):
    p = parameters(degree=degree, max_clients=60, dimension=33, server="curious")
    x = np.random.default_rng(2).uniform(-8, 8, (60, 33))
    result = Cohort(p, 60).round(x, dropouts={"mask": [7], "unmask": [30]})
    units = p.fixed_point.quantize
    assert np.array_equal(
        result.words, p.fixed_point.wrap(sum(units(x[i]) for i in range(60) if i != 7))
    )


def test_a_wrong_share_is_noticed():
    run = Run(5).until("unmask")
    for number in run.inbox:
        answer = bytearray(run.answer(number))
        if number == 0:
            answer[-1] ^= 1  # the share of client 4's self mask
        run.server.accept(number, bytes(answer))
    with pytest.raises(RoundAbortedError, match="share"):
        run.server.advance()


def test_the_server_takes_one_answer_of_each_member_of_the_stage():
    run = Run(5)
    first = run.answer(0)
    run.server.accept(0, first)
    with pytest.raises(ProtocolError, match="already"):
        run.server.accept(0, first)
    with pytest.raises(ProtocolError, match="sender"):
        run.server.accept(1, first)
    other = Run(5)
    with pytest.raises(ProtocolError, match="signed"):
        run.server.accept(1, other.answer(1))


def test_a_late_vector_does_not_enter_the_sum():
    run = Run(5).until("mask")
    late = run.answer(2)
    run.step([2])
    with pytest.raises(WireFormatError, match="stage"):
        run.server.accept(2, late)
    run.inbox.pop(2, None)
    run.until("done")
    assert np.array_equal(run.server.result().words, run.expected([0, 1, 3, 4]))


def test_parameters_survive_their_encoding():
    p = parameters(noise_sigma=2.5, degree=6, server="curious", ring_bits=32)
    assert Parameters.from_bytes(p.to_bytes()) == p


@pytest.mark.parametrize(
    "change",
    [
        {"session": b""},
        {"session": "text"},
        {"dimension": 0},
        {"bound": 0},
        {"fraction_bits": 53},
        {"ring_bits": 16},
        {"min_clients": 2},
        {"min_survivors": 2},
        {"min_survivors": 5},
        {"max_clients": 3},
        {"max_clients": 70000},
        {"server": "honest"},
        {"degree": 5},
        {"degree": 2},
        {"noise_sigma": -1},
        {"noise_sigma": 1.9},
        {"noise_sigma": 2.0**37},
        {"ring_bits": 32, "bound": 8, "max_clients": 4096},
        {"ring_bits": 32, "noise_sigma": 1e9},
    ],
    ids=str,
)
def test_parameters_are_checked_at_set_up(change):
    with pytest.raises(ParameterError):
        parameters(**change)


def test_a_client_must_be_in_its_directory():
    run = Run(4)
    client = run.clients[0]
    with pytest.raises(ParameterError, match="directory"):
        Client(1, client._identity, client._directory, run.p)
