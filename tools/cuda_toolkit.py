"""Makes a CUDA toolkit out of NVIDIA's Python packages, or adds what a toolkit lacks.

    pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl nvidia-cuda-runtime nvidia-cublas
    python tools/cuda_toolkit.py ~/cuda
    PATH=~/cuda/bin:$PATH whispyx backends build cuda

The packages hold the files of a toolkit, but CMake does not find them: there is no folder `lib64`, and the libraries
have no names without a version (libcublas.so). The folder made here holds symbolic links only: of the packages (of this
interpreter, CUDA 13 and later) and, with --base, first of the toolkit named.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from pathlib import Path

NEEDED = {
    "bin/nvcc": "nvidia-cuda-nvcc",
    "bin/ptxas": "nvidia-cuda-nvcc",
    "bin/cudafe++": "nvidia-cuda-nvcc",
    "nvvm/bin/cicc": "nvidia-nvvm",
    "include/crt/host_config.h": "nvidia-cuda-crt",
    "include/cuda_runtime.h": "nvidia-cuda-runtime",
    "include/cccl/cub/cub.cuh": "nvidia-cuda-cccl",
    "include/cublas_v2.h": "nvidia-cublas",
    "lib/libcudart.so": "nvidia-cuda-runtime",
    "lib/libcublas.so": "nvidia-cublas",
}
"""What compiling ggml's CUDA backend reads, and the package that brings it."""


def package_folders() -> list[Path]:
    """Return the folders of NVIDIA's packages that are laid out as a toolkit (nvidia/cu13 and later)."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (found.submodule_search_locations or ())] if found else []
    return sorted((folder for place in places for folder in place.glob("cu[0-9]*")), reverse=True)


def link_tree(source: Path, target: Path) -> None:
    """Link every file below `source` at the same place below `target`, unless something is there."""
    for entry in sorted(source.iterdir()):
        at = target / entry.name
        if entry.is_dir():
            if not at.is_symlink():
                at.mkdir(exist_ok=True)
                link_tree(entry, at)
        elif not at.exists():
            at.unlink(missing_ok=True)  # a link of an earlier run that leads nowhere now
            at.symlink_to(entry.resolve())


def make(target: Path, sources: list[Path]) -> list[str]:
    """Make the folder; return what is missing in it, as sentences."""
    target.mkdir(parents=True, exist_ok=True)
    libraries = target / "lib"
    libraries.mkdir(exist_ok=True)
    if not (target / "lib64").exists():
        (target / "lib64").symlink_to("lib")
    for source in sources:
        for entry in sorted(source.iterdir()):
            if entry.is_dir() and entry.name in ("bin", "include", "nvvm", "lib", "lib64"):
                into = libraries if entry.name == "lib64" else target / entry.name
                into.mkdir(exist_ok=True)
                link_tree(entry, into)
    for versioned in sorted(libraries.glob("*.so.*")):
        plain = libraries / re.sub(r"\.so\..*$", ".so", versioned.name)
        if not plain.exists():
            plain.symlink_to(versioned.name)
    return [
        f"{path} is missing; it comes with the package {package}"
        for path, package in NEEDED.items()
        if not (target / path).exists()
    ]


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder to make")
    parser.add_argument("--base", type=Path, help="a toolkit whose files come first")
    arguments = parser.parse_args()
    folders = package_folders()
    sources = [*([arguments.base] if arguments.base else []), *folders[:1]]
    absent = make(arguments.folder.absolute(), sources)
    if absent:
        print(*absent, sep="\n", file=sys.stderr)
        return 1
    print(arguments.folder.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
