"""Messages between parent and worker."""

import os

import pytest

from bsprof.measure import wire


def test_a_message_survives_the_wire():
    message = {"type": "measure", "micro_batch_size": 8, "x": [1.5, None, "a\nb"]}
    line = wire.encode(message)
    assert line.count(b"\n") == 1
    assert wire.decode(line) == {"v": wire.WIRE_VERSION, **message}


@pytest.mark.parametrize("line", [b'{"type": "x"}', b'{"v": 99, "type": "x"}', b"[1]", b"noise"])
def test_what_is_no_message_of_this_version_is_refused(line):
    with pytest.raises(ValueError, match=r".+"):
        wire.decode(line)


def test_lines_are_read_whole_however_they_arrive():
    read, write = os.pipe()
    os.set_blocking(read, False)
    reader = wire.LineReader(read)
    assert reader.lines() == []
    os.write(write, b"one\ntw")
    assert reader.lines() == [b"one"]
    os.write(write, b"o\nthree\n")
    assert reader.lines() == [b"two", b"three"]
    assert not reader.at_end
    os.close(write)
    assert reader.lines() == []
    assert reader.at_end
    os.close(read)


def test_every_phase_has_a_limit():
    limits = wire.PhaseLimits(step_s=7.0)
    assert limits.of("step") == 7.0
    for phase in ("start", "build", "probe", "compile", "clean", "load"):
        assert limits.of(phase) > 0
