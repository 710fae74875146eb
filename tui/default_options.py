"""Default options: how a chat starts where the command line does not say it."""

from dataclasses import replace

from localspec_tui.archive import Archive
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.preferences import Preferences
from localspec_tui.session_settings import SessionSettings, gone, is_there


def with_defaults(options: LaunchOptions, archive: Archive) -> LaunchOptions:
    """Fill in what was not given.

    A resumed session keeps its sampling, its reasoning, what it does when the context is full and,
    with its model, its chat template and its drafters. Else the model is the
    one that was used last. A model that is not on this disk any more becomes the bundled pair.
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
    )
    if options.model:
        return _with_template(options, kept) if options.model == own else options
    model = own or Preferences.read().model
    if model and not is_there(model):
        return _noted(options, f"{gone(model)}; this is the bundled pair")
    options = replace(options, model=model)
    if own:
        options = _with_template(options, kept)
    if options.draft is not None:
        return options
    draft, note = kept.usable_draft()
    return _noted(options, note) if note else replace(options, draft=draft)


def _with_template(options: LaunchOptions, kept: SessionSettings) -> LaunchOptions:
    """Use the chat template that was given for this conversation, if none is given now."""
    if options.chat_template or not kept.chat_template:
        return options
    note = "the chat template is the one that this conversation was begun with"
    return _noted(replace(options, chat_template=kept.chat_template), note)


def _noted(options: LaunchOptions, note: str) -> LaunchOptions:
    return replace(options, notes=(*options.notes, note))
