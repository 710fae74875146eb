"""The prompt of a command: its argument, standard input, or both."""

import sys

from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_stream


def read_prompt(argument: str | None) -> str:
    """Return standard input (unless it is a terminal) and the argument, with a line break between.

    One line break at the end of standard input is dropped: `echo` and editors add it, and models
    continue better without it.
    """
    piped = "" if sys.stdin is None or sys.stdin.isatty() else _decoded(_piped())
    piped = piped.removesuffix("\n")
    typed = _checked(argument or "")
    prompt = "\n".join(part for part in (piped, typed) if part)
    if not prompt:
        raise InvalidValueError("no prompt; give one as an argument or on standard input")
    return prompt


def as_prompt(engine: Engine, text: str, chat: bool | None) -> Prompt:
    """Return the text as a chat turn, or as it is.

    chat: None makes it a chat turn if the model prefers that.
    """
    if engine.prefers_chat if chat is None else chat:
        return [{"role": "user", "content": text}]
    return text


def _piped() -> bytes:
    try:
        return read_stream(sys.stdin.buffer, MOST_TEXT_BYTES, "standard input")
    except OSError as error:
        raise InvalidValueError(
            f"standard input cannot be read: {error.strerror or error}; give a shorter prompt"
        ) from error


def _decoded(data: bytes) -> str:
    try:
        # As in files: line feeds, and no byte order mark. PowerShell sends both.
        return data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            f"standard input is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}; "
            "convert it first, for example with iconv"
        ) from error


def _checked(argument: str) -> str:
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(argument[error.start]) & 0xFF
        raise InvalidValueError(
            f"the prompt is not UTF-8: character {error.start} is the byte 0x{byte:02x}; "
            "retype it, or pipe it in as UTF-8"
        ) from error
    return argument
