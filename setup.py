"""What pyproject.toml cannot say: two files that are installed elsewhere than they lie.

`tui/` becomes the package `localspec_tui`, and `models.toml` goes inside `localspec`, so that
nothing called `tui`, `tests` or `models.toml` lies at the top of site-packages.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class BuildWithModels(build_py):
    """Puts models.toml into the package; an editable install reads it where it lies."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file("models.toml", str(Path(self.build_lib, "localspec", "models.toml")))


screens = ["localspec_tui" + name.removeprefix("tui") for name in find_packages(include=["tui*"])]

setup(
    packages=find_packages(include=["localspec*"]) + screens,
    package_dir={"localspec_tui": "tui"},
    cmdclass={"build_py": BuildWithModels},
)
