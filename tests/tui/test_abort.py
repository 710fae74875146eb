"""Where llama.cpp ends the process, the terminal is given back."""

import os
import re
import sys
import termios
from pathlib import Path

import pytest
from fakes.chat_terminal import TESTS, ChatTerminal

# Ends the process as a backend does, from a thread of its own, once a file is there.
ABORTS = """
import ctypes, os, threading, time

def wait():
    while not os.path.exists(os.environ["ABORT_AT"]):
        time.sleep(0.05)
    from localspec.llama import library
    {call}

if "ABORT_AT" in os.environ:
    threading.Thread(target=wait, daemon=True).start()
"""
ENDS = {
    "assertion": (
        'library.symbol("ggml_abort", None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)'
        '(b"/build/ggml-cuda.cu", 108, b"CUDA error")'
    ),
    "exception": 'library.symbol("_Znwm", ctypes.c_void_p, ctypes.c_size_t)(2**62)',
}


@pytest.mark.parametrize("call", ENDS.values(), ids=ENDS)
def test_the_terminal_is_given_back(tmp_path: Path, call: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(ABORTS.format(call=call))
    path = os.pathsep.join([str(tmp_path), str(TESTS), *sys.path])
    go = tmp_path / "go"
    with ChatTerminal(tmp_path, env={"PYTHONPATH": path, "ABORT_AT": str(go)}) as chat:
        used = termios.tcgetattr(chat._screen)
        chat.type("Hello\r")
        chat.wait_for_messages(["Hello"])
        go.touch()
        assert chat.wait_ended() == -6
        given_back = termios.tcgetattr(chat._screen)
    assert not used[3] & termios.ICANON and given_back[3] & termios.ICANON
    modes = dict(re.findall(rb"\x1b\[\?(\d+)([hl])", chat.shown))
    # The cursor is shown; the alternate screen, mouse, focus and bracketed paste are not.
    assert modes[b"25"] == b"h"
    assert {modes[mode] for mode in (b"1049", b"1000", b"1003", b"1004", b"2004")} == {b"l"}
    _, _, behind = chat.shown.rpartition(b"\x1b[?1049l")
    assert b"continue with: localspec chat --resume" in behind
