"""A wheel holds what it must, and puts nothing of ours but two packages into site-packages."""

import sys
import zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
top = {name.split("/")[0] for name in names}
ours = {name for name in top if not name.endswith(".dist-info")}
assert ours == {"localspec", "localspec_tui"}, ours
wanted = {
    "localspec/models.toml",
    "localspec/py.typed",
    "localspec/bench/page.css",
    "localspec/bench/prompts/code.txt",
    "localspec/cli/bench.schema.json",
    "localspec/cli/generate.schema.json",
    "localspec/bundled/README.md",
    "localspec/server/static/page.html",
    "localspec/server/static/page.css",
    "localspec/server/static/page.js",
    "localspec/training/bundled_pair/everyday.txt",
    "localspec/bundled/terminal-9m-q8_0.gguf",
    "localspec/bundled/terminal-5m-q4_0.gguf",
    "localspec_tui/__init__.py",
}
assert wanted <= set(names), wanted - set(names)
sys.stdout.write(f"{sys.argv[1].rsplit('/', 1)[-1]}: {len(names)} files\n")
