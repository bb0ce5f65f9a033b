#!/bin/bash
# make cudnn-host-test: compares the mock of cuDNN, and the calls of the cuDNN plan, with the real
# cuDNN, on a machine without a GPU: in those functions that take no handle (tests/cudnn/host).
#
#   run_host_cudnn_tests.sh [--sanitize] [VERSION...]
#
# VERSION: that of a wheel nvidia-cudnn-cu12, 8.9 or newer, such as 9.1.0.70. Default: those of CI.
# Downloads each wheel (0.7 GB) once and keeps the libraries that RNNs need, 0.4 GB, in .build/cudnn.
# --sanitize: with the address and undefined behaviour sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

CI_VERSIONS=(8.9.7.29 9.28.0.42)

preset=release
if [ "${1:-}" = --sanitize ]; then
    preset=sanitized
    shift
fi
versions=("$@")
[ "${#versions[@]}" -gt 0 ] || versions=("${CI_VERSIONS[@]}")

# Prints a Python that has pip.
make_python() {
    local folder=.venv/download python
    if [ ! -x "$folder/bin/pip" ]; then
        python="$(find_python "3.7 3.8 3.9 3.10 3.11 3.12 3.13 3.14")" || fail "no Python 3.7 to 3.14 was found"
        rm -rf "$folder"
        "$python" -m venv "$folder" || fail "cannot make a virtual environment with $python" \
            "(on Debian and Ubuntu: apt-get install python3-venv)"
    fi
    echo "$folder/bin/python"
}

# Makes .build/cudnn/VERSION, which has the wheel's libcudnn.so.* and the parts for RNNs.
download() { # VERSION
    local folder=".build/cudnn/$1" package="nvidia-cudnn-cu12==$1" python
    [ ! -d "$folder" ] || return 0
    say "Downloading cuDNN $1 (0.7 GB)"
    python="$(make_python)"
    rm -rf "$folder.partial"
    mkdir -p "$folder.partial"
    if ! "$python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
        --dest "$folder.partial" "$package"; then
        rm -rf "$folder.partial"
        fail "pip cannot download $package; its message is above."
    fi
    "$python" - "$folder.partial" <<'END'
import glob, os, re, shutil, sys, zipfile
folder = sys.argv[1]
(wheel,) = glob.glob(os.path.join(folder, "*.whl"))
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if re.search(r"/lib/libcudnn(_adv\w*|_ops\w*|_graph)?\.so\.\d+$", name):
            with files.open(name) as source:
                with open(os.path.join(folder, os.path.basename(name)), "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
os.remove(wheel)
END
    mv "$folder.partial" "$folder"
}

for version in "${versions[@]}"; do download "$version"; done

failed=()
for version in "${versions[@]}"; do
    say "cuDNN $version"
    CUDNN_RNN_REAL_CUDNN="$(echo "$PWD/.build/cudnn/$version"/libcudnn.so.*)"
    export CUDNN_RNN_REAL_CUDNN
    bash scripts/cpp.sh test "$preset" host_cudnn_test || failed+=("$version")
done
[ "${#failed[@]}" -eq 0 ] || fail "cuDNN ${failed[*]} failed, see above."
