"""`.ci/peers` links only objects of the sources that it is given.

Its compiler is replaced by one that copies: a program holds what its sources hold.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[1] / ".ci" / "peers"
# The last of the arguments behind -o is written; what is compiled is noted.
COPY = """#!/bin/sh
[ "$1" = --version ] && { cat "$(dirname "$0")/version"; exit; }
for each in "$@"; do
    [ "$before" = -o ] && out=$each
    [ "$before" = -c ] && { files=$each; echo "$(basename "$each")" >>"$(dirname "$0")/compiled"; }
    case $each in *.o | *.a) [ "$before" = -o ] || files="$files $each" ;; esac
    before=$each
done
cat $files >"$out"
"""
STUBS = {
    "c++": COPY,
    "cc": COPY,
    "ar": '#!/bin/sh\nshift; out=$1; shift; cat "$@" >"$out"\n',
    "nm": "#!/bin/sh\n[ $1 = -u ] && echo '                 U mtmd_free'\nexit 0\n",
    "version": "1",
}
SOURCES = (
    "common/arg.cpp",
    "common/jinja/jinja.cpp",
    "common/parsers/parser.cpp",
    "common/build-info.cpp.in",
    "vendor/cpp-httplib/httplib.cpp",
    "tools/server/main.cpp",
    "tools/server/server.cpp",
    "tools/ui/ui.h.in",
    "tools/ui/ui.cpp.in",
    "examples/speculative-simple/speculative-simple.cpp",
    "include/llama.h",
)
SHARED = {"arg.cpp", "jinja.cpp", "parser.cpp", "build-info.cpp", "httplib.cpp"}
TOOLS = {"main.cpp", "server.cpp", "ui.cpp", "speculative-simple.cpp"}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("bash"), reason="a script for Linux"
)


class Place:
    """A folder with a compiler, sources of several versions and the folder that is built into."""

    def __init__(self, root: Path) -> None:
        self.tools, self.libraries, self.built = root / "bin", root / "lib", root / "built"
        self._root = root
        for folder in (self.tools, self.libraries):
            folder.mkdir()
        for name, text in STUBS.items():
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)

    def sources(self, version: str) -> Path:
        """Sources that all hold their version, older than any object."""
        for name in SOURCES:
            file = self._root / version / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{Path(name).name} of {version}\n")
            os.utime(file, (1, 1))
        return self._root / version

    def build(self, sources: Path) -> tuple[set[str], str, str]:
        """Build; return what was compiled, and what is in the two programs."""
        compiled = self.tools / "compiled"
        compiled.write_text("")
        path = f"{self.tools}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            ["bash", PEERS, sources, self.libraries, self.built],
            env={**os.environ, "PATH": path, "JOBS": "2"},
            check=True,
            timeout=100,
        )
        programs = [self.built / f"llama-{name}" for name in ("server", "speculative-simple")]
        server, tool = (each.read_text() for each in programs)
        return set(compiled.read_text().split()), server, tool


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_objects_of_other_sources_are_not_linked(place: Place) -> None:
    first, second = place.sources("b1"), place.sources("b2")
    compiled, server, tool = place.build(first)
    assert compiled == SHARED | TOOLS | {"pictures.c"}
    for text in (server, tool):
        assert "arg.cpp of b1" in text
    assert "server.cpp of b1" in server
    assert "speculative-simple.cpp of b1" in tool
    compiled, server, tool = place.build(second)
    assert compiled == SHARED | TOOLS | {"pictures.c"}
    assert " of b1" not in server + tool
    assert "arg.cpp of b2" in server
    # Those of the first are still there.
    assert place.build(first)[0] == {"pictures.c"}


def test_a_file_that_changes_is_seen_whatever_its_time(place: Place) -> None:
    sources = place.sources("b1")
    place.build(sources)
    header = sources / "include" / "llama.h"
    header.write_text("another")
    os.utime(header, (1, 1))
    assert place.build(sources)[0] >= SHARED | TOOLS
    (place.tools / "version").write_text("2")
    assert place.build(sources)[0] >= SHARED | TOOLS


def test_the_same_sources_elsewhere_are_not_compiled_again(place: Place) -> None:
    sources = place.sources("b1")
    place.build(sources)
    moved = sources.rename(sources.with_name("moved"))
    assert place.build(moved)[0] == {"pictures.c"}


def test_nothing_stands_in_for_a_library_that_is_there(place: Place) -> None:
    """Objects of a call with fewer libraries would hide functions of these."""
    sources = place.sources("b1")
    assert "mtmd_free" in place.build(sources)[1]
    for name in ("libmtmd.so", "libllama-common.so"):
        (place.libraries / name).touch()
    compiled, server, tool = place.build(sources)
    assert not compiled
    assert "mtmd_free" not in server
    assert "arg.cpp" not in server + tool
