"""Trial: a file never seen here is loaded and decoded from in a child process first.

llama.cpp ends the whole process on some files that are sound in form; then it ends the child.
"""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative, parts
from localspec.gguf.reader import Header, display_name
from localspec.llama import library
from localspec.llama.first_decode import BEGUN
from localspec.models import registry
from localspec.utils.format import printable
from localspec.utils.paths import cache_file, stat_signature, write_atomically
from localspec.utils.progress import report_progress

# Below so many bytes nobody notices.
_NOTICEABLE = 300e6
_log = logging.getLogger(__name__)
_PROGRAM = "localspec.llama.first_decode"
# A slow disk reads so much; a small model takes a fraction of a second.
_LEAST_SECONDS, _BYTES_PER_SECOND = 60, 10e6
# Seconds between two looks at whether it is still wanted.
_LOOK = 0.1
# How a process ends by its own fault; whatever else ends it says nothing about the file.
_FAULTS = {
    int(getattr(signal, name))
    for name in ("SIGABRT", "SIGSEGV", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")
    if hasattr(signal, name)
}
_LONGEST_LINE = 200
_COMPILED_IN = re.compile(r"^\S*[/\\](?=[^/\\]+:\d+: )")
_LIBRARYS_FAULT = "llama.cpp is not fit for this machine as it is compiled: localspec doctor"
_WAY_OUT = "download it again or pass another quantization"


def loadable_header(path: Path) -> Header:
    """The header of a model that can generate text and does not end llama.cpp.

    Raises ModelNotFoundError or ModelLoadError.
    """
    header = check_generative(path)
    require_loadable(path, header)
    return header


def require_loadable(path: Path, header: Header) -> None:
    """Raise ModelLoadError if the model at `path` ends a child process that decodes from it.

    header: of its first part. The verdict is remembered as long as the files and the library stay
    what they are. A model that fails for a reason that may pass (memory, time) is refused now and
    tried again. The bundled models are sound; with them the library is tried out.
    """
    if path.samefile(registry.bundled().drafter):
        return
    files = parts(path, header)
    kept = cache_file("trials", [*map(stat_signature, files), *library.build()])
    fault = _remembered(kept)
    if fault is None:
        fault = _tried(path, sum(file.stat().st_size for file in files))
        with suppress(OSError):  # then it is tried again the next time
            write_atomically(kept, json.dumps({"fault": fault}))
    if fault:
        raise _refusal(path, fault)


def _remembered(kept: Path) -> str | None:
    """How llama.cpp ended, nothing if it did not; None if that is not known."""
    try:
        fault = json.loads(kept.read_text(encoding="utf-8"))["fault"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return fault if isinstance(fault, str) else None


def _tried(path: Path, size: int) -> str:
    """How llama.cpp ended, or nothing. Raises ModelLoadError for what is not to be remembered."""
    seconds = _LEAST_SECONDS + size / _BYTES_PER_SECOND
    if size > _NOTICEABLE:
        _log.info("%s was never seen here: trying it out, this once", path.name)
    try:
        code, output, complaints = _run(path, seconds)
    except subprocess.TimeoutExpired:
        raise _refusal(path, f"it did not decode three tokens within {seconds:.0f} s") from None
    except OSError as error:
        raise ModelLoadError(
            f"{display_name(path)} cannot be tried out: {error.strerror or error}; "
            "no process could be started for it"
        ) from error
    said = _last_line(complaints)
    if code == 0:
        return ""
    if BEGUN not in output:
        raise ModelLoadError(
            f"{display_name(path)} cannot be tried out: {said or f'exit code {code}'}; "
            "reinstall localspec"
        )
    if code == ModelLoadError.exit_code:
        raise ModelLoadError(
            f"{display_name(path)} {said}; check that the file is complete and that this llama.cpp "
            "is new enough for it"
        )
    ended = f"llama.cpp ended ({said or _name(code)})"
    if _is_fault(code) and "alloc" not in complaints:
        return ended
    raise _refusal(path, ended)


def _run(path: Path, seconds: float) -> tuple[int, bytes, str]:
    """Exit code, output and complaints of the child, which gets no signal from the keyboard."""
    lifeline, held = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, path],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "GGML_NO_BACKTRACE": "1",
                "LOCALSPEC_DEBUG": "0",
            },
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        output, complaints = _ended(child, f"trying out {path.name}", monotonic() + seconds)
    finally:
        os.close(lifeline)
        os.close(held)
    return child.returncode, output, complaints.decode("utf-8", "replace")


def _ended(child: subprocess.Popen[bytes], doing: str, latest: float) -> tuple[bytes, bytes]:
    """Output and complaints of a child that has ended, whatever happens meanwhile."""
    with child:
        try:
            while True:
                report_progress(doing)
                try:
                    return child.communicate(timeout=_LOOK)
                except subprocess.TimeoutExpired:
                    if monotonic() > latest:
                        raise
        except BaseException:
            child.kill()
            raise


def _is_fault(code: int) -> bool:
    # Windows has no signals: 3 is abort(), and what the system ends has the highest bit set.
    return -code in _FAULTS or (os.name == "nt" and (code == 3 or code >= 1 << 31))


def _name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def _last_line(complaints: str) -> str:
    """The last line that was written, as it can be shown, and without where it was compiled."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    line = _COMPILED_IN.sub("", (lines or [""])[-1])
    return printable(line[:_LONGEST_LINE])


def _refusal(path: Path, what: str) -> ModelLoadError:
    bundled = any(path.samefile(each) for each in registry.bundled())
    way_out = _LIBRARYS_FAULT if bundled else _WAY_OUT
    return ModelLoadError(f"{display_name(path)} cannot be used: {what}; {way_out}")
