"""Unfinished trainings: whether one is resumed or begun again, and which others lie on the disk."""

from collections.abc import Callable

from localspec.distillation.work_folder import WorkFolder
from localspec.errors import InvalidValueError
from localspec.gguf.fingerprint import fingerprint
from localspec.training.training_request import TrainingRequest
from localspec.utils.format import format_bytes

# Files of a work folder: what is there while a training goes on, and what it is of.
BUDGET, _ABOUT = "budget", "about"


def prepare(folder: WorkFolder, request: TrainingRequest, say: Callable[[str], None]) -> None:
    """Get the folder of a training ready; names the others of this target that were not finished.

    A training is known by its texts, so one whose chats or files have changed since is another.
    Raises InvalidValueError where an unfinished training would be lost.
    """
    target = fingerprint(request.source.target)
    unfinished = folder.read_json(BUDGET) is not None
    if unfinished and not (request.resume or request.anew):
        raise InvalidValueError(
            "an unfinished training of this drafter is here; --resume goes on with it, --anew "
            "begins again"
        )
    # One that was stopped early has no budget yet, and goes on all the same.
    if request.resume and folder.read_json(_ABOUT) is None:
        say("there is no unfinished training to resume, so this one begins")
    if not unfinished:
        for other in folder.siblings():
            about = other.read_json(_ABOUT) if other.size(BUDGET) is not None else None
            if about and about["target"] == target:
                say(
                    f"another training of this model was not finished: {about['kind']} on "
                    f"{about['texts']}, {format_bytes(other.total_size(''))} in {other.path}; "
                    "--resume goes on with it only with the texts and options that it began with; "
                    "delete that folder to give it up"
                )
    length = _length(request)
    if request.resume and unfinished:
        begun = (folder.read_json(_ABOUT) or {}).get("length", length)
        if begun != length:
            say(f"{begun} was named when this training began, and counts; {length} does not")
            length = begun
    if not request.resume:
        folder.clear()
    about = {"target": target, "kind": request.kind, "texts": request.texts, "length": length}
    folder.write_json(_ABOUT, about)


def _length(request: TrainingRequest) -> str:
    """How long it may be, as an option."""
    if request.tokens:
        return f"--tokens {request.tokens}"
    return f"--minutes {request.seconds / 60:g}"
