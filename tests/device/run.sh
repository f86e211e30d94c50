#!/usr/bin/env bash
# Proves a plugin on a machine that has the device: builds whispyx and the plugin, tests every operation, transcribes a
# recording with tiny.en and base (flash attention on and off, 5 beams), compares the texts with the CPU's, prints times.
#
#     tests/device/run.sh                          NVIDIA GPU, needs nvcc; under 5 minutes on 16 cores
#     tests/device/run.sh --backend vulkan         any other plugin
#     tests/device/run.sh --pack DIR               on a machine with a network: collect what one without needs
#     tests/device/run.sh --packed DIR             use that, and no network
#
# Other options: --jobs N, --out DIR (reports; build/device), --plugin FILE (use it, build none), --set OPTION=VALUE (of
# CMake, repeated), --models "NAME|FILE ...", --audio FILE, --python PROGRAM, --seconds N (limit for each transcribing
# process), --pack-for X.Y (Python version to pack for), --no-venv (use --python as it is). Works from a bare checkout
# with python3, its headers, g++ and, for CUDA, nvcc and cuBLAS. Exit status: 0 all is proven, 1 something failed, 2 wrong usage, 3 something is missing.
set -euo pipefail
exec </dev/null
root=$(cd "$(dirname "$0")/../.." && pwd)

backend=cuda models="tiny.en base" audio="" jobs=$(nproc) plugin="" out="" packed="" pack="" python=python3
seconds=150 pack_for="" options=() own_venv=yes
while [ $# -gt 0 ]; do
    case $1 in
        --no-venv) own_venv="" && shift ;;
        --backend | --models | --audio | --jobs | --plugin | --out | --packed | --pack | --python | --seconds | --set | --pack-for)
            [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
            case $1 in
                --set) options+=("$2") ;;
                --pack-for) pack_for=$2 ;;
                *) declare "${1#--}=$2" ;;
            esac
            shift 2
            ;;
        -h | --help) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
        *) echo "unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
done
for name in audio plugin out packed pack; do # paths are the caller's, not the checkout's
    value=${!name}
    [ -z "$value" ] || [ "${value:0:1}" = / ] || declare "$name=$PWD/$value"
done
cd "$root"
out=${out:-$root/build/device}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PYTHONUNBUFFERED=1 WHISPYX_BUILD_JOBS=$jobs

step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }
missing() { printf 'MISSING: %s\n' "$@" >&2; exit 3; }

# What pyproject.toml names. pip asks the index only for what is not there yet.
needs=("setuptools>=77" "cython>=3.2" "cmake>=3.18" ninja "cffi>=1.15" "filelock>=3.12" "numpy>=1.24" "platformdirs>=3"
    "soundfile>=0.12" "soxr>=0.3.7" "tqdm>=4.64" "tomli; python_version < '3.11'")

if [ -n "$pack" ]; then
    step "packing into $pack"
    mkdir -p "$pack/wheels" "$pack/models"
    version=${pack_for:-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
    platforms=()
    for tag in manylinux_2_34 manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux_2_5 manylinux1; do
        platforms+=(--platform "${tag}_$(uname -m)")
    done
    "$python" -m pip download --quiet --only-binary=:all: --python-version "$version" --implementation cp \
        "${platforms[@]}" -d "$pack/wheels" "${needs[@]}" pip
    "$python" - "$pack/wheels" <<'PY'
import shutil, sys, tempfile
from pathlib import Path
from tools.build import vendor
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(vendor.fetch(vendor.read_pin(), Path(folder)), sys.argv[1])
PY
    "$python" - "$pack" $models <<'PY'
import shutil, sys
from pathlib import Path
from whispyx.models import resolve, sample
folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    path = resolve(name)
    shutil.copy(path, folder / "models" / (Path(name).name if Path(name).is_file() else f"{name}.bin"))
shutil.copy(sample("jfk"), folder / "jfk.wav")
PY
    du -sh "$pack"
    echo "On the other machine: tests/device/run.sh --packed DIR (wheels of packages that are installed there may be left out)"
    exit 0
fi

step "looking at the machine"
absent=()
command -v "$python" >/dev/null || missing "$python (Debian: apt-get install python3 python3-venv python3-dev)"
"$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 10))' || absent+=("Python 3.10 or newer: $python is older")
"$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    absent+=("the headers of $python (Debian: apt-get install python3-dev)")
command -v c++ >/dev/null || command -v g++ >/dev/null || absent+=("a C++ compiler (Debian: apt-get install g++)")
uname -srm
grep -m1 'model name' /proc/cpuinfo || true
echo "cores: $(nproc), used to compile: $jobs; $("$python" --version)"
if [ "$backend" = cuda ]; then
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
    if [ -n "$plugin" ]; then
        :
    elif [ -z "$nvcc" ]; then
        absent+=("nvcc: on PATH or in /usr/local/cuda/bin (Debian: nvidia-cuda-toolkit; PyPI: see docs/backends/cuda.md)")
    else
        "$nvcc" --version | tail -2
        export PATH="$(dirname "$nvcc"):$PATH"
    fi
    if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
        nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap --format=csv,noheader
    else
        absent+=("an NVIDIA GPU: nvidia-smi shows none")
    fi
fi
[ ${#absent[@]} = 0 ] || missing "${absent[@]}"

if [ -n "$packed" ]; then
    [ -d "$packed/wheels" ] || missing "$packed/wheels: is $packed what --pack wrote?"
    export PIP_NO_INDEX=1 PIP_FIND_LINKS=$packed/wheels WHISPYX_OFFLINE=1
fi

step "making an environment"
mkdir -p "$out"
venv=$out/venv
py=$python
if [ -n "$own_venv" ]; then
    py=$venv/bin/python
    [ -x "$py" ] || "$python" -m venv --system-site-packages "$venv" || missing "the module venv of $python"
fi
"$py" -m pip install --quiet "${needs[@]}" || missing "Python packages, see above." \
    "If there is no network here: 'tests/device/run.sh --pack DIR' where there is one, copy DIR, give --packed DIR."

if [ "$backend" = cuda ] && [ -z "$plugin" ]; then
    touch "$out/nothing.cu"
    top=$("$nvcc" --dryrun -c "$out/nothing.cu" 2>&1 | sed -n 's/^#\$ TOP=//p')
    top=$(readlink -f "${top:-$(dirname "$nvcc")/..}")
    if ! ls "$top"/lib64/libcublas.so "$top"/lib/libcublas.so /usr/lib/*/libcublas.so 2>/dev/null | head -1; then
        step "the toolkit $top has no cuBLAS: adding that of Python's packages"
        "$py" tools/cuda_toolkit.py "$out/toolkit" --base "$top" ||
            missing "cuBLAS (a complete toolkit, or pip install nvidia-cublas of the CUDA that nvcc has)"
        export PATH=$out/toolkit/bin:$PATH
    fi
fi

step "building whispyx"
if [ "$backend" != cpu ]; then echo "(the plugin follows)"; fi
"$py" setup.py -q build_ext --inplace || missing "whispyx could not be built: the messages are above." \
    "Without a network, ggml's source must be there: --packed DIR, or a checkout that was built once."

step "building the plugin $backend"
folder=$out/plugins
rm -rf "$folder"
mkdir -p "$folder"
if [ -n "$plugin" ]; then
    cp "$plugin" "$folder/"
else
    [ "$backend" != cuda ] || [ ${#options[@]} -gt 0 ] || options=(CMAKE_CUDA_ARCHITECTURES=native)
    sets=()
    for option in "${options[@]}"; do sets+=(--set "$option"); done
    "$py" -m whispyx backends build "$backend" --into "$folder" --jobs "$jobs" "${sets[@]}"
fi
export WHISPYX_BACKEND_PATH=$folder
"$py" -m whispyx.plugins --backend "$backend"

failed=0
step "testing every operation on $backend"
"$py" -m whispyx backends test "$backend" --json >"$out/operations.json" || failed=1
"$py" - "$out/operations.json" <<'PY' || failed=1
import collections, json, sys
devices = json.load(open(sys.argv[1]))["devices"]
for device in devices:
    counts = collections.Counter(result["outcome"] for result in device["results"])
    print(device["device"], device["description"], dict(counts))
    for result in device["results"]:
        if result["outcome"] not in ("ok", "unsupported"):
            print("  ", result["name"], result["outcome"], result["nmse"], "bound", result["bound"], result["reason"])
    if not counts["ok"]:
        sys.exit("nothing was computed on it")
if not devices:
    sys.exit("there is no report of a device")
PY

step "transcribing on $backend and on the CPU"
if [ -n "$packed" ]; then
    audio=${audio:-$packed/jfk.wav}
    chosen=()
    for name in $models; do
        if [ -f "$packed/models/$name.bin" ]; then chosen+=("$packed/models/$name.bin"); else chosen+=("$name"); fi
    done
    models=${chosen[*]}
else
    "$py" -m whispyx fetch $models || missing "models $models: give --models 'FILE ...', or --packed DIR"
fi
audio=${audio:-$("$py" -c 'from whispyx.models import sample; print(sample("jfk"))')}
"$py" tests/device/compare.py "$backend" --models $models --audio "$audio" --seconds "$seconds" \
    --json "$out/transcripts.json" || failed=1

if [ $failed = 0 ]; then step "PROVEN: $backend"; else step "FAILED: $backend"; fi
exit $failed
