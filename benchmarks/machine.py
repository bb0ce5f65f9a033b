"""Describes the (Linux) machine that the benchmark runs on, and chooses its CPUs."""

import os
import platform
import re
import subprocess

# The processor flags that matter for the kernels.
_FLAGS = re.compile(r"^(avx\w*|fma|f16c|amx\w*)$")


def _lscpu(*options):
    """Returns the lines that lscpu prints."""
    command = ("env", "LC_ALL=C", "lscpu") + options
    return subprocess.check_output(command, universal_newlines=True).splitlines()


def describe_machine():
    """Returns a dict of texts and numbers; unknown properties are omitted."""
    cpu = dict(re.split(r":\s*", line, maxsplit=1) for line in _lscpu() if ":" in line)
    flags = cpu.get("Flags", "").split()
    caches = [(key, value) for key, value in cpu.items() if re.match(r"L\d\w? cache$", key)]
    found = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpu": cpu.get("Model name"),
        "flags": " ".join(flag for flag in flags if _FLAGS.match(flag)),
        "family_and_model": ", ".join(cpu[key] for key in ("CPU family", "Model") if key in cpu),
        "logical_cpus": len(os.sched_getaffinity(0)),
        "cores": len(_cores()),
        "caches": ", ".join("%s %s" % (key.split()[0], value) for key, value in caches),
        "memory": "%.0f GiB" % (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "virtual": "yes" if "hypervisor" in flags else None,
    }
    return {key: value for key, value in found.items() if value}


def _cores():
    """Returns a list of cores; each is the list of its CPUs that this process may use."""
    by_core, available = {}, os.sched_getaffinity(0)
    for line in _lscpu("--parse=CPU,CORE,SOCKET"):
        cpu, _, core = line.partition(",")
        if cpu.isdigit() and int(cpu) in available:
            by_core.setdefault(core, []).append(int(cpu))
    return list(by_core.values())


def choose_cpus(threads):
    """Returns `threads` CPUs, on different cores where possible, or None if there are too few."""
    cores = _cores()
    ordered = [core[i] for i in range(max(map(len, cores))) for core in cores if i < len(core)]
    return ordered[:threads] if len(ordered) >= threads else None
