"""Garbage into every parser: a clear error or a valid message, never a hang or half a change."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_support import STAGES, Run, clone, parameters

from dpcore.errors import DPCoreError, ProtocolError, WireFormatError
from dpcore.secure import Parameters
from dpcore.secure import messages as m
from dpcore.secure.state import State

KINDS = [
    m.Begin, m.Advertisement, m.Roster, m.Shares, m.Delivery, m.Masked, m.Survivors,
    m.Confirmation, m.Confirmations, m.Reveal,
]  # fmt: skip
FAST = settings(max_examples=200, deadline=None, derandomize=True)


def recorded():
    """All messages of a round, the clients before each stage, and the servers in each."""
    run = Run(5, parameters(noise_sigma=3))
    texts, clients, inboxes = {}, {}, {}
    while run.server.stage != "done":
        stage = run.server.stage
        inboxes[stage] = run.inbox[0]
        clients[stage] = clone(run.clients[0])
        answers = run.step([4] if stage == "mask" else ())
        texts[stage] = answers[0]
    return run, texts, clients, inboxes


RUN, ANSWERS, CLIENTS, INBOXES = recorded()
VALID = [*INBOXES.values(), *ANSWERS.values()]


def test_every_kind_of_message_was_recorded():
    assert sorted(text[5] for text in VALID) == list(range(1, 11))


@pytest.mark.parametrize("text", VALID, ids=lambda text: KINDS[text[5] - 1].__name__)
def test_a_message_has_one_encoding(text):
    assert KINDS[text[5] - 1].from_bytes(text).to_bytes() == text


@pytest.mark.parametrize("text", VALID, ids=lambda text: KINDS[text[5] - 1].__name__)
def test_no_prefix_and_no_extension_is_a_message(text):
    kind = KINDS[text[5] - 1]
    for end in [*range(min(len(text), 200)), *range(200, len(text), 37), len(text) - 1]:
        with pytest.raises(WireFormatError):
            kind.from_bytes(text[:end])
    for more in (b"\0", text):
        with pytest.raises(WireFormatError):
            kind.from_bytes(text + more)


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_versions_and_sides_are_refused(kind):
    [text] = [text for text in VALID if text[5] == kind.KIND]
    for place, value in ((0, 0), (4, 0), (4, 2), (4, 255), (5, 0), (5, 11), (6, 1), (7, 128)):
        bad = bytearray(text)
        bad[place] = value
        with pytest.raises(WireFormatError):
            kind.from_bytes(bytes(bad))
    bad = bytearray(text)
    bad[16:24] = b"\xff" * 8 if not kind.FROM_SERVER else bytes(8)
    with pytest.raises(WireFormatError, match="side"):
        kind.from_bytes(bytes(bad))


@given(st.binary(max_size=400), st.sampled_from(KINDS))
@FAST
def test_garbage_is_never_a_message(data, kind):
    with pytest.raises(WireFormatError):
        kind.from_bytes(data)
    header = b"dpsa\x01" + bytes([kind.KIND]) + bytes(2 + 8)
    header += (b"\xff" if kind.FROM_SERVER else b"\0") * 8 + bytes(32)
    try:
        message = kind.from_bytes(header + data)
    except WireFormatError:
        return
    assert message.to_bytes() == header + data


@given(st.data())
@FAST
def test_a_length_never_causes_a_large_allocation(data):
    kind = data.draw(st.sampled_from(KINDS))
    [text] = [text for text in VALID if text[5] == kind.KIND]
    bad = bytearray(text)
    bad[56:60] = data.draw(st.binary(min_size=4, max_size=4))
    if bytes(bad) != text:
        with pytest.raises(WireFormatError):
            kind.from_bytes(bytes(bad))


def mutated(data, text):
    """The message with some bytes changed, cut out or doubled."""
    bad = bytearray(text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(bad) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "double", "set"]))
        if how == "flip":
            bad[place] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "set":
            bad[place] = data.draw(st.integers(0, 255))
        elif how == "cut" and len(bad) > 1:
            del bad[place]
        else:
            bad[place:place] = bad[place : place + 9]
    return bytes(bad)


@given(st.data(), st.sampled_from(STAGES))
@FAST
def test_a_client_survives_changed_messages(data, stage):
    client = clone(CLIENTS[stage])
    before = client._state
    text = mutated(data, INBOXES[stage])
    arguments = (text, np.zeros(4)) if stage == "mask" else (text,)
    try:
        getattr(client, stage)(*arguments)
    except DPCoreError:
        # Nothing has changed, and the right message still works.
        assert client._state is before
        arguments = (INBOXES[stage], np.zeros(4)) if stage == "mask" else (INBOXES[stage],)
        getattr(client, stage)(*arguments)


@given(st.data(), st.sampled_from(STAGES))
@FAST
def test_a_server_survives_changed_messages(data, stage):
    run = Run(4).until(stage)
    good = run.answer(0)
    text = mutated(data, good)
    before = (run.server._sum.copy(), dict(run.server._answers))
    try:
        run.server.accept(0, text)
    except (WireFormatError, ProtocolError):
        assert np.array_equal(run.server._sum, before[0])
        assert run.server._answers == before[1]
        run.server.accept(0, good)


@given(st.binary(max_size=300))
@FAST
def test_garbage_is_no_state_and_no_parameters(data):
    for parse in (State.from_bytes, Parameters.from_bytes):
        with pytest.raises(WireFormatError):
            parse(data)


@given(st.data())
@FAST
def test_changed_parameters_are_refused_or_other_parameters(data):
    good = RUN.p.to_bytes()
    bad = mutated(data, good)
    try:
        found = Parameters.from_bytes(bad)
    except WireFormatError:
        return
    assert found.to_bytes() == bad
    assert (found == RUN.p) == (bad == good)
