"""Describes the (Linux) machine that the benchmark runs on, and chooses its CPUs."""

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
    cpu = dict(re.findall(r"^(\w.*?)\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE))
    flags = cpu.get("flags", "").split()
    found = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpu": cpu.get("model name"),
        "flags": " ".join(flag for flag in flags if _FLAGS.match(flag)),
        "family_and_model": ", ".join(cpu[key] for key in ("cpu family", "model") if key in cpu),
        "logical_cpus": len(available_cpus()),
        "cores": len(_cores()),
        "caches": ", ".join(_caches()),
        "memory": "%.0f GiB" % (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "virtual": "yes" if "hypervisor" in flags else None,
    }
    return {key: value for key, value in found.items() if value}


def _caches():
    for folder in sorted(glob.glob(_CPUS + "/cpu0/cache/index*")):
        level, kind, size, cpus = [
            _read("%s/%s" % (folder, name)) for name in ("level", "type", "size", "shared_cpu_list")
        ]
        kind = {"Data": "d", "Instruction": "i"}.get(kind, "")
        yield "L%s%s %s (of CPUs %s)" % (level, kind, size, cpus)


def available_cpus():
    """Returns the numbers of the CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


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
