"""Measures the memory that a training step needs beyond weights and inputs: ours and the peers'.

Each peer and configuration gets its own process. A tiny model first triggers the libraries' lazy
loading; then the network is created, with its weights, inputs and output gradients. The result is
by how much a few training steps raise the peak resident memory: activations, workspace, results
and gradients. Freed blocks return to the system at once, so that no step reuses leftover memory.
"""

import json
import os

from configurations import Configuration, configurations
from files import write_whole
from measuring import Unsupported
from peers import OURS, PEERS, PeerProcess, Refusal
from run import rounded
from tables import could_not_run, markdown_table

_STEPS = 3
# The glibc settings return freed blocks of at least 64 KiB to the system. TensorFlow's allocator
# with oneDNN, which our kernels do not use, keeps freed memory and would hide what a step needs.
_ALLOCATION = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def measure_memory(benchmark, chosen, circumstances, progress):
    """Measures, writes memory.json and memory.md, prints the table; returns the exit status."""
    results = []
    for configuration in progress:
        found = {}
        for name in chosen.peers:
            if "training" in PEERS[name].kinds:
                progress.say(name)
                found[name] = _measure(benchmark, chosen, name, configuration)
        results.append({"configuration": configuration._asdict(), "peers": found})
        text = describe_memory(results)
        everything = rounded(dict(circumstances, results=results))
        write_whole(os.path.join(chosen.output, "memory.json"), json.dumps(everything) + "\n")
        write_whole(os.path.join(chosen.output, "memory.md"), text)
    print("\n" + text)
    print("written to " + chosen.output)
    return 1 if any(one.get("is_error") for r in results for one in r["peers"].values()) else 0


def _measure(benchmark, chosen, name, configuration):
    """Returns {"bytes": rise of the peak}, or {"reason": text, "is_error": bool} on failure."""
    peer = PeerProcess(name, chosen.threads, benchmark.cpus, chosen.output, _ALLOCATION)
    tiny = next(
        one
        for one in configurations(quick=True, kinds=["training"])
        if one.rnn_mode == configuration.rnn_mode and not one.has_lengths
    )
    try:
        benchmark.prepare(peer, tiny)
        peer.ask({"request": "memory", "num_steps": _STEPS})
        benchmark.prepare(peer, configuration, with_results=False)
        answer = peer.ask({"request": "memory", "num_steps": _STEPS})
        return {"bytes": answer["peak"] - answer["before"]}
    except Refusal as refusal:
        return {"reason": str(refusal), "is_error": False}
    except Unsupported as failure:
        return {"reason": str(failure), "is_error": True}
    finally:
        peer.close()


def describe_memory(results):
    """Returns the table, and how often ours needs no more memory than torch, as Markdown."""
    names = [name for name in PEERS if any(name in one["peers"] for one in results)]

    def megabytes(name):
        def show(result):
            found = result["peers"].get(name, {}).get("bytes")
            return "-" if found is None else "%.1f" % (found / 2**20)

        return show

    def of_torch(result):
        ours, torch = (result["peers"].get(name, {}).get("bytes") for name in (OURS, "torch"))
        return "-" if ours is None or not torch else "%.2f" % (ours / torch)

    columns = [("configuration", lambda one: Configuration(**one["configuration"]).key)]
    columns += [(PEERS[name].title + ", MiB", megabytes(name)) for name in names]
    columns.append(("ours / torch", of_torch))
    parts = [
        "The increase of the peak resident memory by training steps. Weights, inputs and output"
        " gradients are allocated before and do not count.",
        markdown_table(columns, results),
    ]
    pairs = [
        [one["peers"].get(name, {}).get("bytes") for name in (OURS, "torch")] for one in results
    ]
    pairs = [pair for pair in pairs if None not in pair]
    if pairs:
        met = sum(ours <= torch for ours, torch in pairs)
        parts.append("Ours needs at most as much as PyTorch in %d of %d." % (met, len(pairs)))
    flat = [
        dict(found, peer=name, key=Configuration(**one["configuration"]).key)
        for one in results
        for name, found in one["peers"].items()
    ]
    reasons = could_not_run(flat)
    if reasons:
        parts.append(reasons)
    return "\n\n".join(parts) + "\n"
