"""Messages survive the wire, and nothing else is read as one."""

import numpy as np
import pytest

from anamorph.federation import MessageError
from anamorph.federation.protocol.wire import pack, unpack


def test_messages_are_the_same_after_the_wire():
    message = {
        "text": "a\u00e9",
        "number": 3,
        "share": 0.1,
        "yes": True,
        "nothing": None,
        "bytes": b"\0\1\2",
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.array(2.5),
        "list": [1, {"inner": np.zeros((0, 4))}],
    }
    again = unpack(pack(message))
    assert again.keys() == message.keys()
    for name in ("text", "number", "share", "yes", "nothing", "bytes"):
        assert again[name] == message[name]
    np.testing.assert_array_equal(again["array"], message["array"])
    assert again["array"].dtype == np.float32
    assert again["scalar"].shape == ()
    assert again["list"][1]["inner"].shape == (0, 4)


@pytest.mark.parametrize("value", [object(), np.array(["text"]), np.array([object()]), {1: 2}])
def test_what_cannot_be_sent(value):
    with pytest.raises(MessageError):
        pack({"value": value})


def test_bytes_that_are_no_message():
    data = pack({"array": np.arange(10.0)})
    for broken in (b"", b"GIF89a", data[:-1], data[:20], data.replace(b"<f8", b"|O8")):
        with pytest.raises(MessageError):
            unpack(broken)
