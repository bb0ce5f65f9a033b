"""Measures the memory that a training step needs beyond weights and inputs: ours and the peers'.

Each peer and configuration gets its own process. A tiny model first triggers the libraries' lazy
loading; then the network is created, with its weights, inputs and output gradients. The result is
by how much a few training steps raise the peak resident memory: activations, workspace, results
and gradients. Freed blocks return to the system at once, so that no step reuses leftover memory.
"""

import os

from configurations import Configuration, configurations
from peers import CPU_PEERS, OURS
from processes import PeerFailure
from record import write_json, write_whole
from tables import could_not_run, markdown_table, show

_STEPS = 3
# The glibc settings return freed blocks of at least 64 KiB to the system. TensorFlow's allocator
# with oneDNN, which our kernels do not use, keeps freed memory and would hide what a step needs.
_ALLOCATION = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def measure_memory(benchmark, circumstances):
    """Measures, writes memory.json and memory.md, prints the table; returns the results."""
    results, chosen = [], benchmark.chosen
    for configuration in benchmark.configurations():
        found = {}
        for name in chosen.peers:
            if "training" in CPU_PEERS[name].kinds:
                benchmark.say(name)
                found[name] = _measure(benchmark, name, configuration)
        results.append({"configuration": configuration._asdict(), "peers": found})
        text = describe_memory(results)
        everything = dict(circumstances, results=results)
        write_json(os.path.join(chosen.output, "memory.json"), everything)
        write_whole(os.path.join(chosen.output, "memory.md"), text)
    print("\n" + text)
    return results


def _measure(benchmark, name, configuration):
    """Returns {"bytes": rise of the peak}, or {"reason": text, "is_error": bool} on failure."""
    peer = benchmark.make_cpu_process(name, **_ALLOCATION)
    tiny = next(
        one
        for one in configurations(quick=True, kinds=["training"])
        if one.rnn_mode == configuration.rnn_mode and not one.has_lengths
    )
    try:
        benchmark.prepare(peer, tiny, with_results=True)
        peer.ask("memory", num_steps=_STEPS)
        benchmark.prepare(peer, configuration, with_results=False)
        answer = peer.ask("memory", num_steps=_STEPS)
        return {"bytes": answer["peak"] - answer["before"]}
    except PeerFailure as failure:
        return failure.result()
    finally:
        peer.close()


def describe_memory(results):
    """Returns the table, and how often ours needs no more memory than torch, as Markdown."""

    def mebibytes(result, name):
        found = result["peers"].get(name, {}).get("bytes")
        return found and found / 2**20

    def text_of(result, name):
        return show(mebibytes(result, name), "%.1f")

    def of_torch(result):
        ours, torch = mebibytes(result, OURS), mebibytes(result, "torch")
        return ours / torch if ours is not None and torch else None

    columns = [("configuration", lambda one: Configuration(**one["configuration"]).key)]
    for name, peer in CPU_PEERS.items():
        if any(name in one["peers"] for one in results):
            columns.append((peer.title + ", MiB", lambda one, name=name: text_of(one, name)))
    columns.append(("ours / torch", lambda one: show(of_torch(one))))
    parts = [
        "The increase of the peak resident memory by training steps. Weights, inputs and output"
        " gradients are allocated before and do not count.",
        markdown_table(columns, results),
    ]
    ratios = [ratio for ratio in map(of_torch, results) if ratio is not None]
    if ratios:
        fewer = sum(ratio <= 1 for ratio in ratios)
        parts.append("Ours needs at most as much as PyTorch in %d of %d." % (fewer, len(ratios)))
    entries = [(Configuration(**one["configuration"]), one["peers"]) for one in results]
    reasons = could_not_run(entries, lambda configuration: configuration.key)
    if reasons:
        parts.append(reasons)
    return "\n\n".join(parts) + "\n"
