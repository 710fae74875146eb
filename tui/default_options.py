"""Default options: how a chat starts where the command line does not say it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.lora import Lora
from localspec_tui.archive import Archive
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.preferences import Preferences
from localspec_tui.session_settings import SessionSettings, gone, in_words, is_there, named_with

# Of earlier conversations, from which drafts may copy: about as much as is indexed.
_MOST_LETTERS = 300_000


def with_defaults(options: LaunchOptions, archive: Archive) -> LaunchOptions:
    """Fill in what was not given.

    A resumed session keeps its sampling, its reasoning, what it does when the context is full and,
    with its model, its chat template, what reads images, its context size, its cache types and
    rotations, and its drafters. Else the model is the one that was used last. A model that is not
    on this disk any more becomes the bundled pair. Drafts may copy from the latest conversations.
    """
    kept, own = SessionSettings(), None
    if options.session:
        kept = archive.settings(options.session)
        own = next((e.model for e in archive.list() if e.key == options.session), None)
    sampling = {**kept.sampling, **options.sampling}
    session_options = {**kept.session_options, **options.session_options}
    options = replace(
        options,
        sampling=sampling,
        session_options=session_options,
        drop_oldest=kept.drop_oldest,
        earlier_texts=_earlier_texts(archive),
    )
    if options.model:
        return _as_begun(options, kept) if options.model == own else options
    model = own or Preferences.read().model
    if model and not is_there(model):
        return _noted(options, f"{gone(model)}; this is the bundled pair")
    options = replace(options, model=model)
    if own:
        options = _as_begun(options, kept)
    if options.draft is not None:
        return options
    draft, note = kept.usable_draft()
    options = replace(options, draft=draft)
    return _noted(options, note) if note else options


def _earlier_texts(archive: Archive) -> Sequence[str]:
    try:
        return archive.latest_contents(_MOST_LETTERS)
    except LocalspecError:
        # The archive says what is wrong with it where it matters more.
        return ()


def _as_begun(options: LaunchOptions, kept: SessionSettings) -> LaunchOptions:
    """Use what this conversation was begun with and is not named now."""
    return _with_runtime(_with_template(_with_projector(options, kept), kept), kept)


def _with_projector(options: LaunchOptions, kept: SessionSettings) -> LaunchOptions:
    if options.mmproj or not kept.mmproj:
        return options
    if not Path(kept.mmproj).is_file():
        return _noted(options, gone(kept.mmproj))
    note = f"--mmproj {kept.mmproj}, as this conversation was begun"
    return _noted(replace(options, mmproj=kept.mmproj), note)


def _with_template(options: LaunchOptions, kept: SessionSettings) -> LaunchOptions:
    if options.chat_template == kept.chat_template or not kept.chat_template:
        return options
    if options.chat_template or "chat_template" in options.named:
        return _noted(options, "this conversation was begun with another chat template")
    note = "the chat template is the one that this conversation was begun with"
    return _noted(replace(options, chat_template=kept.chat_template), note)


def _with_runtime(options: LaunchOptions, kept: SessionSettings) -> LaunchOptions:
    named = named_with(options.named)
    others = {name: value for name, value in kept.runtime.items() if name in named}
    rest = {name: value for name, value in kept.runtime.items() if name not in named}
    paths = [Lora.parse(each).path for each in rest.get("lora") or []]
    if missing := [str(path) for path in paths if not path.is_file()]:
        which = "it" if len(missing) == 1 else "them"
        options = _noted(options, f"{gone(*missing)}; this conversation goes on without {which}")
        adapters = zip(rest.pop("lora"), paths, strict=True)
        if there := [each for each, path in adapters if path.is_file()]:
            rest["lora"] = there
    if words := in_words(others, options.runtime):
        options = _noted(options, f"this conversation was begun with {words}")
    if words := in_words(rest, options.runtime):
        options = _noted(options, f"{words}, as this conversation was begun")
    return replace(options, runtime={**options.runtime, **rest})


def _noted(options: LaunchOptions, note: str) -> LaunchOptions:
    return replace(options, notes=(*options.notes, note))
