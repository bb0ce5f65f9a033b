"""Writes the versions that the results of a GPU run depend on to a JSON file, and prints them.

python gpu_versions.py FILE
"""

import json
import os
import platform
import subprocess
import sys
import time


def find_versions():
    """Returns a dict of texts by name; `<name>_missing` says why a version was not found."""
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    packed = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "PACKED")
    if os.path.exists(packed):
        with open(packed) as file:
            found["cudnn_rnn_commit"] = file.readline().strip()
    for module in ("numpy", "torch", "tensorflow", "cudnn_rnn"):
        try:
            found[module] = str(__import__(module).__version__)
        except Exception as error:  # not installed, or not for this Python
            found[module + "_missing"] = "%s: %s" % (type(error).__name__, str(error)[:200])
    if "torch" in found:
        import torch

        found["cuda_of_torch"] = str(torch.version.cuda)
        found["cudnn_of_torch"] = str(torch.backends.cudnn.version())
    query = "name,driver_version,memory.total,compute_cap"
    try:
        printed = subprocess.check_output(
            ["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"],
            universal_newlines=True,
            timeout=30,
        )
        values = printed.splitlines()[0].split(", ")
        found.update(zip(("gpu", "driver", "gpu_memory", "compute_capability"), values))
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        found["nvidia_smi_missing"] = str(error)[:200]
    return found


if __name__ == "__main__":
    versions = find_versions()
    with open(sys.argv[1], "w") as file:
        json.dump(versions, file, indent=1)
        file.write("\n")
    print(json.dumps(versions, indent=1))
