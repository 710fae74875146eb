"""Closed pipes: which errors tell of one."""

import errno
import sys

import pytest

from localspec.utils.closed_pipe import closed_pipe_ignored, is_closed_pipe

INVALID = OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize(("platform", "told"), [("win32", True), ("linux", False)])
def test_windows_calls_it_an_invalid_argument(
    monkeypatch: pytest.MonkeyPatch, platform: str, told: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert is_closed_pipe(INVALID) is told
    assert is_closed_pipe(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert not is_closed_pipe(OSError(errno.ENOSPC, "No space left on device"))


def test_other_errors_are_not_ignored() -> None:
    with closed_pipe_ignored():
        raise BrokenPipeError
    with pytest.raises(OSError, match="disk"), closed_pipe_ignored():
        raise OSError(errno.ENOSPC, "the disk is full")
