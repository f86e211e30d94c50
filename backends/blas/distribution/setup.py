"""Compiles the plugin when the package is built. A plugin of your own needs no kit: compile it as you like."""

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

import whispyx
from whispyx.models.cache import cache_root
from whispyx.plugins import kit


class BuildPy(build_py):
    """Puts the plugin beside the package's module."""

    def run(self) -> None:
        super().run()
        into = Path(self.build_lib, "whispyx_backend_blas").resolve()
        # OpenBLAS is not copied into this wheel: it comes with the package that the wheel depends on.
        kit.build("blas", into, cache_root() / "backends", bundle=False, step=print)


class Compiled(Distribution):
    """A distribution that belongs to one platform."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    """One wheel for every Python of a platform: the plugin knows nothing of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=Compiled,
    cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel},
    # A plugin belongs to one release of ggml, and so to the whispyx that it was built with.
    install_requires=[f"whispyx=={whispyx.__version__}", "scipy-openblas32>=0.3.27"],
)
