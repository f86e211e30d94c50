"""Only what pyproject.toml cannot say: the extension modules and how they are built (tools/build)."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.build import BuildError, commands, cython

try:
    commands.require_writable()
except BuildError as error:
    raise SystemExit(error.paragraph()) from None

setup(
    ext_modules=cython.extensions(),
    cmdclass={"build_ext": commands.BuildExt, "build_py": commands.BuildPy, "sdist": commands.Sdist},
)
