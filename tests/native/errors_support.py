"""How a refusal must be worded, and a number to look for in what it says."""

import re

import pytest

from dpcore.errors import DataError, ParameterError

# Numbers whose digits nothing else has, to be looked for in messages.
SECRET = 7391.4826
SECRET_DIGITS = ("7391", "4826", "73914826")


def check_refusal(kind, name, call):
    """The call is refused with one sentence that names the parameter and shows no data."""
    with pytest.raises((ParameterError, DataError)) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind, message
    assert f"'{name}'" in message
    assert re.fullmatch(r"The '[^\n]*[^.\n]\.", message), message
    assert not re.search(r"[.!?] ", message), "more than one sentence"
    assert not any(digits in message for digits in SECRET_DIGITS)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message
