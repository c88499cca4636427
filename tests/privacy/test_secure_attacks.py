"""Attacks that succeed against deliberately weak protocols and fail against ours."""

import sys
from pathlib import Path

import numpy as np
import pytest
import weak_secagg as weak

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from secure_support import Run, changed, clone, parameters

from dpcore.errors import RefusedError, WireFormatError
from dpcore.secure import keys, shamir
from dpcore.secure.messages import Delivery, Survivors, to_bits
from dpcore.secure.ring import add_masks

N = 500
SECRET = b"what the pairs share"
VECTOR = np.arange(N, dtype=np.uint64) * np.uint64(12345)
BODY = 60  # header and length of a masked vector's message


def words_of(message):
    return np.frombuffer(message[BODY:], np.uint64)


def share_equal(a, b):
    return float(np.mean(a == b))


# Symmetric seeds


def test_symmetric_seeds_without_a_sign_cancel_to_nothing():
    assert not weak.symmetric_masks(SECRET, 1, [0, 2, 3], N).any()


def test_our_masks_do_not_cancel_within_one_client_and_do_in_the_sum():
    p = parameters(dimension=N)
    run = Run(4, p, np.zeros((4, N))).until("mask")
    seeds = [client._state.seed for client in run.clients.values()]
    sent = [words_of(run.answer(i)) for i in range(4)]
    for words in sent:
        assert share_equal(words, 0) < 0.01
    # Pair masks cancel in the sum: what is left are the self masks of the four.
    found = [keys.self_mask_key(seed, p.session, run.server._context) for seed in seeds]
    total = np.sum(sent, axis=0, dtype=np.uint64)
    assert share_equal(total, 0) < 0.01
    add_masks(found, [True] * 4, total)
    assert not total.any()


# Three queries: c({i, j}) + c({i, l}) - c({i, j, l})


def three_queries(ask):
    """The combination that cancels all masks when keys do not depend on the set."""
    return ask([0, 1]) + ask([0, 2]) - ask([0, 1, 2])


def test_three_queries_recover_a_vector_whose_keys_know_the_round_only():
    def ask(members):
        return weak.masked_by_round(SECRET, 0, members, 1, VECTOR)

    assert np.array_equal(three_queries(ask), VECTOR)


def deliver(run, members):
    """A delivery to client 0 of a round in which only these shared."""
    delivery = Delivery.from_bytes(run.inbox[0])
    chosen = np.isin(np.arange(len(run.clients)), members)
    sealed = delivery.sealed[np.isin(delivery.sealed["position"], members)]
    return changed(delivery, members=to_bits(chosen), sealed=sealed)


def three_queries_to_clones():
    """The attack on our client, helped twice: by clones of it, each asked once, and by its seed."""
    p = parameters(dimension=N, bound=2**30, fraction_bits=0, server="curious")
    x = np.tile(np.arange(N) * 7.0, (7, 1))
    run = Run(7, p, x).until("mask")
    sets = {(0, 1): [0, 1, 2, 3], (0, 2): [0, 4, 5, 6], (0, 1, 2): list(range(7))}
    here, seed = run.server._round, run.clients[0]._state.seed

    def ask(members):
        chosen = sets[tuple(members)]
        words = words_of(clone(run.clients[0]).mask(deliver(run, chosen), x[0])).copy()
        context = here.members_context(np.isin(np.arange(7), chosen))
        add_masks([keys.self_mask_key(seed, p.session, context)], [True], words)
        return words

    return share_equal(three_queries(ask), p.fixed_point.encode(x[0])), run, sets


def test_three_queries_are_refused_and_would_not_help():
    recovered, run, sets = three_queries_to_clones()
    assert recovered < 0.01
    client, x = run.clients[0], run.x[0]
    client.mask(deliver(run, sets[0, 1]), x)
    with pytest.raises(RefusedError):
        client.mask(deliver(run, sets[0, 2]), x)


def test_three_queries_would_help_if_keys_forgot_the_set(monkeypatch):
    """The mutant: without the digest of the set in the key the attack above succeeds."""
    ours = keys.mask_key
    monkeypatch.setattr(
        keys, "mask_key", lambda shared, session, _, *ends: ours(shared, session, b"", *ends)
    )
    assert three_queries_to_clones()[0] == 1.0


# The late message


def test_a_late_message_is_read_where_there_is_no_self_mask():
    members = [0, 1, 2, 3]
    late = weak.masked_by_round(SECRET, 1, members, 1, VECTOR)
    assert np.array_equal(late - weak.rebuilt_masks(SECRET, 1, members, 1, N), VECTOR)


def test_a_late_message_stays_masked():
    """The server says that client 1 dropped out, gets its key, and then looks at its vector."""
    p = parameters(dimension=N)
    x = np.tile(np.linspace(-8, 8, N), (5, 1))
    run = Run(5, p, x).until("mask")
    late = words_of(run.answer(1))
    late_context = run.server._context
    run.step([1])
    run.until("unmask")
    for number in run.inbox:
        run.server.accept(number, run.answer(number))
    tables = run.server._answers
    points = [number + 1 for number in tables]
    shares = [table["share"][table["position"] == 1][0].tobytes() for table in tables.values()]
    needed = p.threshold(5)
    secret = shamir.combine(points[:needed], shares[:needed])
    here = run.server._round
    pair = keys.Pair(secret)
    assert pair.public == here.entries[1]["mask"].tobytes(), "the key itself is disclosed"
    found, negative = [], []
    for other in (0, 2, 3, 4):
        shared = pair.exchange(here.entries[other]["mask"].tobytes())
        found.append(keys.mask_key(shared, p.session, late_context, 1, other))
        negative.append(not other < 1)
    attempt = late.copy()
    add_masks(found, negative, attempt)
    plain = p.fixed_point.encode(x[1])
    assert share_equal(attempt, plain) < 0.01
    assert run.server.advance() == {}
    assert np.array_equal(run.server.result().words, run.expected([0, 2, 3, 4]))


def test_the_self_mask_is_all_that_stands_between():
    """The same attack with the victim's seed gives the vector: the test above is not void."""
    p = parameters(dimension=N)
    x = np.tile(np.linspace(-8, 8, N), (5, 1))
    run = Run(5, p, x).until("mask")
    victim = run.clients[1]
    seed, secret = victim._state.seed, victim._state.mask
    attempt = words_of(run.answer(1)).copy()
    context, here = run.server._context, run.server._round
    found, negative = [keys.self_mask_key(seed, p.session, context)], [True]
    for other in (0, 2, 3, 4):
        shared = keys.Pair(secret).exchange(here.entries[other]["mask"].tobytes())
        found.append(keys.mask_key(shared, p.session, context, 1, other))
        negative.append(not other < 1)
    add_masks(found, negative, attempt)
    assert np.array_equal(attempt, p.fixed_point.encode(x[1]))


def test_the_share_of_the_self_mask_cannot_be_asked_for_afterwards():
    run = Run(5).until("confirm", {"mask": [1]})
    honest = Survivors.from_bytes(run.inbox[0])
    run.until("unmask")
    for client in (run.clients[i] for i in run.inbox):
        client.unmask(run.inbox[client.number])
        with pytest.raises((RefusedError, WireFormatError)):
            client.confirm(changed(honest, members=to_bits(np.ones(5, bool))))
        assert client._state.held == b""
