"""Measures the memory that a training step needs beyond weights and inputs: ours and the peers'.

Each peer and configuration gets its own process. A tiny model first triggers the libraries' lazy
loading; then the network is created. The result is by how much a few training steps raise the peak
resident memory: activations, workspace, results and gradients.
"""

from configurations import configurations
from peers import CPU_PEERS, OURS
from processes import PeerFailure
from tables import could_not_run, markdown_table, peer_columns, show

_STEPS = 3
# The glibc settings return freed blocks of at least 64 KiB to the system, so that no step reuses
# leftover memory. TensorFlow's allocator
# with oneDNN, which our kernels do not use, keeps freed memory and would hide what a step needs.
_ALLOCATION = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def measure(benchmark, configuration, _=None):
    """Returns the result of one configuration; a peer's entry has "bytes" or a reason."""
    found = {}
    for name in benchmark.chosen.peers:
        if "training" in CPU_PEERS[name].kinds:
            benchmark.say(name)
            found[name] = _measure_peer(benchmark, name, configuration)
    return {"configuration": configuration, "peers": found}


def _measure_peer(benchmark, name, configuration):
    """Returns {"bytes": rise of the peak}, or {"reason": text, "is_error": bool} on failure."""
    peer = benchmark.make_process(name, CPU_PEERS[name], **_ALLOCATION)
    pattern, dtype = configuration.rnn_mode + "-*", configuration.dtype
    models = configurations(True, [pattern], ["training"], dtype)
    tiny = next(one for one in models if not one.has_lengths)
    try:
        for one in (tiny, configuration):
            peer.prepare(one)
            answer = peer.ask("memory", num_steps=_STEPS)
        return answer
    except PeerFailure as failure:
        return failure.result()
    finally:
        peer.close()


def _bytes_of(result, name):
    return result["peers"].get(name, {}).get("bytes")


def _of_torch(result):
    ours, torch = _bytes_of(result, OURS), _bytes_of(result, "torch")
    return ours / torch if ours is not None and torch else None


def describe(results, *_):
    """Returns the table, and how often ours needs no more memory than torch, as Markdown."""
    columns = [("configuration", lambda result: result["configuration"].key)]
    columns += peer_columns(
        results, lambda result, name: show(_bytes_of(result, name), "%.1f", 2**-20), "%s, MiB"
    )
    columns.append(("ours / torch", lambda result: show(_of_torch(result))))
    parts = [
        "The increase of the peak resident memory by training steps. Weights, inputs and output"
        " gradients are allocated before and do not count.",
        markdown_table(columns, results),
    ]
    ratios = [ratio for ratio in map(_of_torch, results) if ratio is not None]
    if ratios:
        fewer = sum(ratio <= 1 for ratio in ratios)
        parts.append("Ours needs at most as much as PyTorch in %d of %d." % (fewer, len(ratios)))
    return "\n\n".join(filter(None, parts + [could_not_run(results)])) + "\n"
