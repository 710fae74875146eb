"""Projector check: a new file that reads images is first tried in a child process."""

from localspec.gguf.projectors import ProjectorFile
from localspec.llama import projector_trial
from localspec.llama.media import mtmd_library
from localspec.loading.file_trial import require_tried


def require_usable(projector: ProjectorFile) -> None:
    """Raise ModelLoadError if llama.cpp refuses a projector, or ends the process with it."""
    mtmd_library()  # a build may lack it
    require_tried(projector.path, "projector_checks", projector_trial.__name__, "mmproj")
