"""RPC build: compile llama.cpp's RPC backend alone, beside a library that was built without it.

It is two files of llama.cpp's sources, of the same version as the library, and takes seconds.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import llama_cpp

from localspec.errors import ModelLoadError
from localspec.llama import library
from localspec.utils.format import printable
from localspec.utils.installer import installer
from localspec.utils.paths import cache_file, make_private_folder, written_whole

_ANEW = (
    f'CMAKE_ARGS="-DGGML_RPC=on" {installer()} --force-reinstall --no-cache-dir llama-cpp-python'
)
_GGML = "/vendor/llama.cpp/ggml/"
_SOURCES = ("ggml-rpc.cpp", "transport.cpp")
_OPTIONS = ("-O2", "-std=c++17", "-fPIC", "-shared", "-DGGML_SHARED", "-DGGML_BACKEND_SHARED")
_LONGEST_LINE = 200


def built_file() -> Path:
    """Return the file of the backend for the library that is installed; it may not exist yet."""
    return cache_file("rpc", [*library.build_signature()]).with_suffix(".so")


def build() -> Path:
    """Compile the backend; return its file. The sources are fetched with pip.

    Raises ModelLoadError, with another way to get RPC, where that fails.
    """
    compiler = shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++")
    if compiler is None or sys.platform == "win32":
        raise ModelLoadError(f"no C++ compiler (c++) is here that could build RPC; use {_ANEW}")
    file = built_file()
    make_private_folder(file.parent)
    with tempfile.TemporaryDirectory() as folder, written_whole(file) as part:
        ggml = _extracted(_fetched(Path(folder)), Path(folder))
        _run(_compile_command(compiler, ggml, part), "compiling llama.cpp's RPC")
    return file


def _fetched(folder: Path) -> Path:
    """Fetch the sources of the installed version."""
    package = f"llama-cpp-python=={library.version()}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    _run(
        [*pip, "--no-binary", "llama-cpp-python", "--dest", str(folder), package],
        f"fetching {package}",
    )
    return next(folder.glob("llama_cpp_python-*.tar.gz"))


def _extracted(archive: Path, folder: Path) -> Path:
    """Extract the headers and sources of ggml that the backend needs; return ggml's folder."""
    with tarfile.open(archive) as sources:
        wanted = [each for each in sources if each.isfile() and _is_needed(each.name)]
        sources.extractall(folder, wanted, filter="data")
    top = wanted[0].name.partition("/")[0] if wanted else ""
    return folder / f"{top}{_GGML}"


def _is_needed(name: str) -> bool:
    _, _, inside = name.partition(_GGML)
    folder, _, file = inside.rpartition("/")
    return folder in ("include", "src/ggml-rpc") or (folder == "src" and file.endswith(".h"))


def _compile_command(compiler: str, ggml: Path, file: Path) -> list[str]:
    backend, libraries = ggml / "src" / "ggml-rpc", Path(llama_cpp.__file__).parent / "lib"
    include = [f"-I{ggml / each}" for each in ("include", "src")]
    sources = [str(backend / each) for each in _SOURCES]
    link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lggml-base", "-lpthread"]
    return [compiler, *_OPTIONS, *include, *sources, *link, "-o", str(file)]


def _run(command: list[str], what: str) -> None:
    """Run a program. Raises ModelLoadError with its last line if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        errors = [line for line in lines if "error" in line.lower()]
        reason = printable((errors or lines)[0][:_LONGEST_LINE])
        raise ModelLoadError(f"{what} failed ({reason}); use {_ANEW}")
