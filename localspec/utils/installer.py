"""Installer: the command that installs packages where localspec is."""

import shutil
import sys
from pathlib import Path

from localspec.utils.shell import command_line


def installer() -> str:
    """Return the command: of pip, pipx or uv."""
    # An environment of a tool has no command pip that people could call.
    folder = Path(sys.prefix)
    if (folder / "uv-receipt.toml").exists():
        return f"uv pip install --python {folder}"
    if (folder / "pipx_metadata.json").exists():
        return f"pipx runpip {folder.name} install"
    # Where the environment is not activated, the first pip is that of another Python.
    pip = shutil.which("pip")
    if pip and Path(pip).parent == Path(sys.executable).parent:
        return "pip install"
    return command_line([sys.executable, "-m", "pip", "install"])
