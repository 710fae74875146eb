"""The prompt of a command: its argument, standard input, or both."""

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from localspec.cli.output import write_note
from localspec.conversation.transcript import arrangements
from localspec.engine.engine import Engine
from localspec.engine.media_marks import join_parts, media_mark, only_for_chats
from localspec.engine.prompt import Chat, Prompt
from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_stream
from localspec.utils.text_file import SAVE_IT, decode_text, is_pdf, undecodable

# Seconds after which a command says that it waits for its prompt.
_PATIENCE = 2.0


def read_prompt(argument: str | None) -> str:
    """Return standard input (unless it is a terminal) and the argument, with a line break between.

    One line break at the end of standard input is dropped: `echo` and editors add it, and models
    continue better without it.
    """
    piped = "" if sys.stdin is None or sys.stdin.isatty() else _decoded(_piped(argument))
    piped = piped.removesuffix("\n")
    typed = argument or ""
    if piped and typed:
        write_note(f"{len(piped.encode()):,} bytes of standard input are put before the prompt")
    prompt = "\n".join(part for part in (piped, typed) if part)
    if not prompt:
        raise InvalidValueError("no prompt; give one as an argument or on standard input")
    return prompt


def as_prompt(
    engine: Engine,
    text: str,
    chat: bool | None,
    *,
    system: str | None = None,
    variables: Mapping[str, Any] = {},
    media: Sequence[bytes] = (),
) -> Prompt:
    """Return the text as a chat turn, or as it is.

    chat: None makes it a chat turn if the model prefers that. system: the system prompt of a chat.
    variables: for the chat template. media: the contents of images and sounds, which stand before
    the text of a chat turn. Raises InvalidValueError for a system
    prompt, or media, of a text that is continued.
    """
    if engine.prefers_chat if chat is None else chat:
        content = join_parts([*map(media_mark, media), text])
        question = [{"role": "user", "content": content}]
        return _accepted(engine, [Chat(each, variables) for each in arrangements(system, question)])
    name = engine.model.path.name
    if media:
        raise InvalidValueError(only_for_chats(engine.model))
    if system:
        raise InvalidValueError(
            f"--system is for chats, and {name} continues a text; put it before the prompt"
        )
    return text


def _accepted(engine: Engine, chats: Sequence[Chat]) -> Chat:
    """Return the first of several forms of a chat that the model's template takes."""
    model = engine.model
    if model.chat_template and chats[0].messages != chats[-1].messages:
        for chat in chats:
            with suppress(InvalidValueError):
                chat.text(model, model.chat_template)
                return chat
    # Where it takes none, what it says of the first is the error.
    return chats[0]


def _piped(argument: str | None) -> bytes:
    nothing = "NUL" if os.name == "nt" else "/dev/null"
    way_out = f"; `< {nothing}` if nothing comes" if argument else ""
    wait = threading.Timer(_PATIENCE, write_note, [f"waiting for standard input to end{way_out}"])
    wait.daemon = True
    wait.start()
    try:
        return read_stream(sys.stdin.buffer, MOST_TEXT_BYTES, "standard input")
    except OSError as error:
        raise InvalidValueError(
            f"standard input cannot be read: {error.strerror or error}; give a shorter prompt"
        ) from error
    finally:
        wait.cancel()


def _decoded(data: bytes) -> str:
    if is_pdf(data):
        raise InvalidValueError(
            "standard input is a PDF; give its text: pdftotext FILE - | localspec generate"
        )
    try:
        # As in files: line feeds, and no byte order mark. PowerShell sends both.
        text = decode_text(data).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"standard input: {undecodable(error)}; {SAVE_IT} first") from error
    return text
