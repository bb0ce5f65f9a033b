"""Writes the versions that the results of a GPU run depend on to a JSON file, and prints them.

    python gpu_versions.py FILE

The file is written again after each step, because importing a module may end or hang the process.
"""

import functools
import json
import os
import platform
import subprocess
import sys
import time


def find_gpu():
    """Returns what nvidia-smi says of the first GPU, or why it cannot be asked."""
    query = "name,driver_version,memory.total,compute_cap"
    try:
        printed = subprocess.check_output(
            ["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"],
            universal_newlines=True,
            timeout=10,
        )
        values = printed.splitlines()[0].split(", ")
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        return {"nvidia_smi_missing": str(error)[:200]}
    return dict(zip(("gpu", "driver", "gpu_memory", "compute_capability"), values))


def find_processor():
    """Returns the processor's name and how many of its threads this process may use."""
    found = {"processor_threads": str(len(os.sched_getaffinity(0)))}
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return dict(found, processor=names[0]) if names else found


def find_version(module):
    """Returns the module's version and, of PyTorch, those of CUDA and cuDNN."""
    try:
        imported = __import__(module)
        found = {module: str(imported.__version__)}
        if module == "torch":
            found["cuda_of_torch"] = str(imported.version.cuda)
            found["cudnn_of_torch"] = str(imported.backends.cudnn.version())
        return found
    except Exception as error:  # not installed, or not for this Python
        return {module + "_missing": "%s: %s" % (type(error).__name__, str(error)[:200])}


def write_versions(path):
    """Writes a dict of texts by name; `<name>_missing` says why a version was not found."""
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "platform": " ".join((platform.machine(),) + platform.libc_ver()),
    }
    packed = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "PACKED")
    if os.path.exists(packed):
        with open(packed) as file:
            found["cudnn_rnn_commit"] = file.readline().strip()
    steps = [find_gpu, find_processor] + [
        functools.partial(find_version, module)
        for module in ("numpy", "torch", "tensorflow", "cudnn_rnn")
    ]
    for step in steps:
        found.update(step())
        with open(path, "w") as file:
            json.dump(found, file, indent=1)
            file.write("\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    write_versions(sys.argv[1])
