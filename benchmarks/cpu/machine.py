"""Describes the machine that the benchmark runs on. Standard library only."""

import glob
import os
import platform
import re

# The processor flags that matter for the kernels.
_FLAGS = re.compile(r"^(avx\w*|fma|f16c|amx\w*)$")
_CPUS = "/sys/devices/system/cpu"


def _read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def describe_machine():
    """Returns a dict of texts and numbers; unknown properties are omitted."""
    found = {"machine": platform.machine(), "kernel": platform.release()}
    text = _read("/proc/cpuinfo")
    for name, key in [("cpu", "model name"), ("flags", "flags")]:
        match = re.search(r"^%s\s*:\s*(.*)$" % key, text, re.MULTILINE)
        if match:
            found[name] = match.group(1)
    family = [
        re.search(r"^%s\s*:\s*(\d+)$" % key, text, re.MULTILINE) for key in ("cpu family", "model")
    ]
    if all(family):
        found["family_and_model"] = "%s, %s" % tuple(match.group(1) for match in family)
    found["flags"] = " ".join(flag for flag in found.get("flags", "").split() if _FLAGS.match(flag))
    found["logical_cpus"] = len(available_cpus())
    found["cores"] = len(_cores())
    found["caches"] = ", ".join(_caches())
    match = re.search(r"MemTotal:\s*(\d+) kB", _read("/proc/meminfo"))
    if match:
        found["memory"] = "%.0f GiB" % (int(match.group(1)) / 2**20)
    if "hypervisor" in text:
        found["virtual"] = "yes"
    return {key: value for key, value in found.items() if value}


def _caches():
    for folder in sorted(glob.glob(_CPUS + "/cpu0/cache/index*")):
        kind = {"Data": "d", "Instruction": "i"}.get(_read(folder + "/type"), "")
        shared = _read(folder + "/shared_cpu_list")
        yield "L%s%s %s (of CPUs %s)" % (
            _read(folder + "/level"),
            kind,
            _read(folder + "/size"),
            shared,
        )


def available_cpus():
    """Returns the numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _cores():
    """Returns a list of cores; each is the list of its CPUs that this process may use."""
    by_core = {}
    for cpu in available_cpus():
        topology = "%s/cpu%d/topology/" % (_CPUS, cpu)
        core = _read(topology + "physical_package_id"), _read(topology + "core_id") or str(cpu)
        by_core.setdefault(core, []).append(cpu)
    return list(by_core.values())


def choose_cpus(threads):
    """Returns `threads` CPUs, on different cores where possible, or None if there are too few."""
    cores = _cores()
    ordered = [core[i] for i in range(max(map(len, cores))) for core in cores if i < len(core)]
    return ordered[:threads] if len(ordered) >= threads else None


def load_average():
    """Returns the load average of the last minute."""
    return os.getloadavg()[0]
