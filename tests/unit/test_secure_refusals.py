"""What a client refuses, one test each: nothing is sent, and its state stays as it was."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from secure_support import Run, changed, parameters, roster_of

import dpcore
from dpcore.errors import BudgetExceededError, ParameterError, RefusedError, WireFormatError
from dpcore.secure import Client, DistributedGaussian, Identity
from dpcore.secure.messages import (
    SERVER,
    Begin,
    Confirmations,
    Delivery,
    Roster,
    Survivors,
    to_bits,
)
from dpcore.secure.rounds import begin_context


def refuses(client, call, match, kind=RefusedError):
    """Whether the client raises and stays as it was."""
    before = client._state
    with pytest.raises(kind, match=match):
        call()
    return client._state is before


def bits(n, *missing):
    members = np.ones(n, bool)
    members[list(missing)] = False
    return to_bits(members)


def begin(p, number=1):
    return Begin(number, SERVER, begin_context(p, number), p.to_bytes()).to_bytes()


# Before anything is sent


def test_changed_noise_parameters():
    run = Run(5, parameters(noise_sigma=3))
    for weaker in (0, 2.5, 4):
        text = begin(parameters(noise_sigma=weaker))
        assert refuses(
            run.clients[0], lambda text=text: run.clients[0].advertise(text), "noise_sigma"
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session", b"other"),
        ("dimension", 5),
        ("bound", 9),
        ("fraction_bits", 15),
        ("ring_bits", 32),
        ("min_clients", 5),
        ("min_survivors", 4),
        ("server", "curious"),
        ("degree", 4),
        ("max_clients", 19),
    ],
)
def test_any_other_changed_parameter(name, value):
    run = Run(5)
    text = begin(parameters(**{name: value}))
    assert refuses(run.clients[0], lambda: run.clients[0].advertise(text), f"'{name}'")


def test_an_old_or_repeated_round():
    run = Run(5, number=7)
    run.step()
    client = run.clients[0]
    for number in (0, 1, 6, 7):
        text = begin(run.p, number)
        assert refuses(client, lambda text=text: client.advertise(text), "not newer")
    assert client.advertise(begin(run.p, 8))


def test_a_begin_whose_digest_is_of_another_round():
    run = Run(5)
    text = changed(Begin.from_bytes(begin(run.p)), context=begin_context(run.p, 2))
    assert refuses(run.clients[0], lambda: run.clients[0].advertise(text), "another round")


# The roster


def entries_of(run):
    return Roster.from_bytes(run.inbox[0]).entries


def test_too_small_a_set():
    run = Run(5)
    run.step()
    for size in (1, 2, 3):
        text = roster_of(run, entries_of(run)[:size])
        assert refuses(run.clients[0], lambda text=text: run.clients[0].share(text), "min_clients")


def test_too_large_a_set():
    run = Run(6, parameters(max_clients=5))
    for number, client in run.clients.items():
        run.server.accept(number, client.advertise(run.inbox[number]))
    entries = np.concatenate([run.server._answers[i] for i in range(6)])
    assert refuses(
        run.clients[0], lambda: run.clients[0].share(roster_of(run, entries)), "max_clients"
    )


def test_itself_not_in_the_roster():
    run = Run(6)
    run.step()
    text = roster_of(run, entries_of(run)[1:])
    assert refuses(run.clients[0], lambda: run.clients[0].share(text), "does not contain")


def test_its_own_keys_changed():
    run = Run(5)
    run.step()
    entries = entries_of(run).copy()
    entries["mask"][0] = np.void(Identity().public)
    assert refuses(
        run.clients[0], lambda: run.clients[0].share(roster_of(run, entries)), "other keys"
    )


def test_an_unknown_client():
    run = Run(5)
    run.step()
    entries = entries_of(run).copy()
    entries["id"][4] = 99
    assert refuses(
        run.clients[0], lambda: run.clients[0].share(roster_of(run, entries)), "directory"
    )


@pytest.mark.parametrize("field", ["channel", "mask", "commitment", "signature"])
def test_a_key_that_its_client_did_not_sign(field):
    """The server in the middle of a pair."""
    run = Run(5)
    run.step()
    entries = entries_of(run).copy()
    entries[field][3] = np.void(bytes(entries.dtype[field].itemsize - 32) + Identity().public)
    assert refuses(
        run.clients[0], lambda: run.clients[0].share(roster_of(run, entries)), "not signed"
    )


def test_a_signed_key_of_an_earlier_round():
    run = Run(5)
    run.step()
    old = entries_of(run)[3:4]
    again = Run(5, run.p, clients=run.clients, number=2)
    again.step()
    entries = entries_of(again).copy()
    entries[3:4] = old
    client = again.clients[0]
    assert refuses(client, lambda: client.share(roster_of(again, entries)), "not signed")


@pytest.mark.parametrize("field", ["channel", "mask"])
def test_duplicate_keys(field):
    run = Run(5)
    run.step()
    entries = entries_of(run).copy()
    entries[field][2] = entries[field][3]
    assert refuses(run.clients[0], lambda: run.clients[0].share(roster_of(run, entries)), "twice")


def test_duplicate_or_unsorted_clients():
    run = Run(5)
    run.step()
    for order in ([0, 1, 2, 3, 3, 4], [1, 0, 2, 3, 4]):
        text = roster_of(run, entries_of(run)[order])
        assert refuses(run.clients[0], lambda text=text: run.clients[0].share(text), "once")


def test_a_second_set_for_one_round():
    run = Run(6)
    run.step()
    other = roster_of(run, entries_of(run)[:5])
    run.clients[0].share(run.inbox[0])
    assert refuses(run.clients[0], lambda: run.clients[0].share(other), "shared")


# Delivery


def test_a_second_delivery_is_never_masked():
    run = Run(6).until("mask")
    client = run.clients[0]
    delivery = Delivery.from_bytes(run.inbox[0])
    smaller = changed(delivery, members=bits(6, 5), sealed=delivery.sealed[:-1])
    client.mask(run.inbox[0], run.x[0])
    assert refuses(client, lambda: client.mask(smaller, run.x[0]), "masked")
    assert refuses(client, lambda: client.mask(run.inbox[0], run.x[0]), "masked")


def test_a_delivery_to_too_few():
    run = Run(6).until("mask")
    client = run.clients[0]
    delivery = Delivery.from_bytes(run.inbox[0])
    few = changed(delivery, members=bits(6, 3, 4, 5), sealed=delivery.sealed[:2])
    assert refuses(client, lambda: client.mask(few, run.x[0]), "threshold")


def test_a_delivery_without_itself():
    run = Run(6).until("mask")
    text = changed(Delivery.from_bytes(run.inbox[0]), members=bits(6, 0))
    assert refuses(run.clients[0], lambda: run.clients[0].mask(text, run.x[0]), "does not contain")


def test_a_delivery_with_missing_or_forged_shares():
    run = Run(6).until("mask")
    client = run.clients[0]
    delivery = Delivery.from_bytes(run.inbox[0])
    missing = changed(delivery, sealed=delivery.sealed[1:])
    assert refuses(client, lambda: client.mask(missing, run.x[0]), "each neighbour")
    forged = delivery.sealed.copy()
    forged["sealed"][2] = forged["sealed"][3]
    text = changed(delivery, sealed=forged)
    assert refuses(client, lambda: client.mask(text, run.x[0]), "sealed share")


def test_the_replay_of_an_earlier_round():
    run = Run(5).until("mask")
    old = run.inbox[0]
    again = Run(5, run.p, clients=run.clients, number=2).until("mask")
    client = again.clients[0]
    assert refuses(client, lambda: client.mask(old, again.x[0]), "another round")


def test_an_insufficient_budget():
    class NoBudgetError(Exception):
        pass

    spent = []

    def charge(session, number):
        spent.append((session, number))
        if len(spent) > 5:
            raise NoBudgetError("no budget left")

    run = Run(5, charge=charge).until("done")
    assert spent == [(b"test", 1)] * 5
    again = Run(5, run.p, clients=run.clients, number=2).until("mask")
    client = again.clients[0]
    assert refuses(client, lambda: client.mask(again.inbox[0], again.x[0]), "budget", NoBudgetError)
    assert client.phase == "shared"


def test_a_real_ledger_is_charged_once_a_round_and_ends_it(tmp_path):
    plan = DistributedGaussian(Fraction(2), 3, Fraction(4), 4)
    budget = plan.epsilon(1e-6, rounds=2)
    ledgers = [
        dpcore.Ledger(tmp_path / f"{i}.sqlite", epsilon=budget, delta=1e-6) for i in range(5)
    ]
    event = plan.event(unit="client", adjacency="replace")
    run = Run(5, parameters(noise_sigma=2))
    for ledger, client in zip(ledgers, run.clients.values(), strict=True):
        client._charge = lambda session, number, ledger=ledger: ledger.reserve(
            event, key=(session, number)
        )
    run.until("done")
    Run(5, run.p, clients=run.clients, number=2).until("done")
    assert [len(ledger.entries) for ledger in ledgers] == [2] * 5
    third = Run(5, run.p, clients=run.clients, number=3).until("mask")
    client = third.clients[0]
    text = third.inbox[0]
    assert refuses(client, lambda: client.mask(text, third.x[0]), "budget", BudgetExceededError)


def test_a_vector_of_another_length_is_not_charged():
    spent = []
    run = Run(5, charge=lambda *_: spent.append(1)).until("mask")
    client = run.clients[0]
    assert refuses(client, lambda: client.mask(run.inbox[0], np.zeros(3)), "'x'", ParameterError)
    assert not spent


# Survivors


def survivors(run, *missing):
    return changed(Survivors.from_bytes(run.inbox[0]), members=bits(6, *missing))


def test_fewer_survivors_than_the_threshold():
    run = Run(6).until("confirm")
    client = run.clients[0]
    assert refuses(client, lambda: client.confirm(survivors(run, 3, 4)), "threshold")
    sparse = Run(6, parameters(min_clients=6, min_survivors=6)).until("confirm")
    client = sparse.clients[0]
    assert refuses(client, lambda: client.confirm(survivors(sparse, 3)), "threshold")


def test_survivors_without_itself():
    run = Run(6).until("confirm")
    assert refuses(
        run.clients[0], lambda: run.clients[0].confirm(survivors(run, 0)), "does not contain"
    )


def test_survivors_that_never_shared():
    run = Run(6).until("confirm", {"share": [5]})
    text = changed(Survivors.from_bytes(run.inbox[0]), members=bits(6))
    assert refuses(run.clients[0], lambda: run.clients[0].confirm(text), "did not share")


def test_a_second_list_of_survivors():
    run = Run(6).until("confirm")
    client = run.clients[0]
    client.confirm(run.inbox[0])
    assert refuses(client, lambda: client.confirm(survivors(run, 5)), "confirmed")


def test_both_kinds_of_share_for_one_client():
    """First as a survivor, then as one that dropped out: the second question finds no shares."""
    run = Run(6).until("confirm")
    client, second = run.clients[0], survivors(run, 5)
    run.until("unmask")
    client.unmask(run.inbox[0])
    assert client.phase == "idle"
    assert refuses(client, lambda: client.confirm(second), "idle")
    assert refuses(client, lambda: client.unmask(run.inbox[0]), "idle")
    assert client._state.held == b""


def test_survivors_that_too_few_confirm():
    run = Run(6).until("unmask")
    client = run.clients[0]
    message = Confirmations.from_bytes(run.inbox[0])
    few = changed(message, signed=message.signed[: run.p.threshold(6) - 1])
    assert refuses(client, lambda: client.unmask(few), "Too few")


def test_confirmations_of_other_survivors():
    """A server that tells two stories has signatures for each, and enough for neither."""
    run = Run(6).until("confirm")
    others = {i: run.clients[i].confirm(survivors(run, 5)) for i in (3, 4)}
    mine = {i: run.clients[i].confirm(run.inbox[i]) for i in (0, 1, 2)}
    assert all(others.values())
    for number, answer in mine.items():
        run.server.accept(number, answer)
    signed = [run.server._answers[i] for i in mine]
    for number, answer in others.items():
        forged = signed[0].copy()
        forged["position"] = number
        forged["signature"] = np.frombuffer(answer[-64:], "V64")
        signed.append(forged)
    context = run.server._context
    text = Confirmations(1, SERVER, context, np.concatenate(signed)).to_bytes()
    assert refuses(run.clients[0], lambda: run.clients[0].unmask(text), "Too few")


def test_revealed_shares_are_of_one_kind_for_each_client():
    run = Run(6).until("unmask", {"mask": [4]})
    answer = run.clients[0].unmask(run.inbox[0])
    run.server.accept(0, answer)
    table = run.server._answers[0]
    assert table["position"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["of_key"].tolist() == [0, 0, 0, 0, 1, 0]


# Restarts


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask", "done"])
def test_a_restart_goes_on_where_it_was(stage, tmp_path):
    p = parameters()
    identities = [Identity() for _ in range(5)]
    directory = {i: one.public for i, one in enumerate(identities)}

    def client(i):
        return Client(i, identities[i], directory, p, store=tmp_path / f"{i}.state")

    run = Run(5, p, clients={i: client(i) for i in range(5)})
    run.until(stage)
    run.clients.update({i: client(i) for i in range(5)})
    run.until("done")
    assert np.array_equal(run.server.result().words, run.expected(range(5)))
    later = Run(5, p, clients={i: client(i) for i in range(5)}, number=2).until("done")
    assert later.server.result().round == 2


def test_a_restart_never_repeats_a_message(tmp_path):
    p = parameters()
    identities = [Identity() for _ in range(5)]
    directory = {i: one.public for i, one in enumerate(identities)}

    def client(i):
        return Client(i, identities[i], directory, p, store=tmp_path / f"{i}.state")

    run = Run(5, p, clients={i: client(i) for i in range(5)})
    while run.server.stage != "done":
        inbox = run.inbox[0]
        stage = run.server.stage
        run.step()
        reborn = client(0)
        arguments = (inbox, run.x[0]) if stage == "mask" else (inbox,)
        again = partial(getattr(reborn, stage), *arguments)
        assert refuses(reborn, again, "This client is|not newer")


def test_the_state_is_stored_before_the_answer_leaves(tmp_path):
    """A disk that fails: no message, no change."""
    run = Run(5)
    first = run.clients[0]
    folder = tmp_path / "gone"
    client = Client(0, first._identity, run.directory, run.p, store=folder / "0.state")
    assert refuses(client, lambda: client.advertise(run.inbox[0]), "No such", FileNotFoundError)
    folder.mkdir()
    assert client.advertise(run.inbox[0])
    path = folder / "0.state"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in folder.iterdir()] == ["0.state"]


def test_damaged_or_foreign_state_is_refused(tmp_path):
    run = Run(5)
    first, path = run.clients[0], tmp_path / "0.state"
    client = Client(0, first._identity, run.directory, run.p, store=path)
    client.advertise(run.inbox[0])
    good = path.read_bytes()
    second = run.clients[1]
    with pytest.raises(RefusedError, match="another client"):
        Client(1, second._identity, run.directory, run.p, store=path)
    with pytest.raises(RefusedError, match="another client"):
        Client(0, first._identity, run.directory, parameters(dimension=9), store=path)
    for place in (0, 5, 20, 60, len(good) - 1):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bytes(bad))
        with pytest.raises(WireFormatError, match="damaged"):
            Client(0, first._identity, run.directory, run.p, store=path)
    path.write_bytes(b"")
    with pytest.raises(WireFormatError):
        Client(0, first._identity, run.directory, run.p, store=path)


def test_secrets_leave_the_state_as_soon_as_they_have_served():
    run = Run(5).until("mask")
    client = run.clients[0]
    assert client._state.seed
    client.mask(run.inbox[0], run.x[0])
    assert not client._state.seed
    assert not client._state.mask
    assert not client._state.channel


def test_messages_of_refusals_hold_no_data():
    run = Run(5, vectors=np.full((5, 4), 7391.4826)).until("mask")
    with pytest.raises(RefusedError) as caught:
        run.clients[0].mask(run.inbox[1], run.x[0])
    assert "7391" not in str(caught.value)
