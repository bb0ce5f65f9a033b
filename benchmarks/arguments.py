"""The command lines of the benchmarks. Standard library only.

    python arguments.py cpu|gpu ARGUMENT...

checks the arguments and shows the help before any environment is created.
"""

import argparse
import os

from configurations import GATES, GROUPS, KINDS, configurations, gpu_configurations
from peers import BFLOAT16_PEERS, CPU_PEERS, GPU_PEERS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRODUCT_SIZE = 2048

_CPU_HELP = """\
Compares our CPU kernels with other libraries and with the processor's peak.

peers:
  %s

configurations:
  %s
  or patterns of names. --list prints the names; -half marks variable-length sequences.

A peer with a number format rounds the factors of its products to it, and runs only if --peers names
it; the others compute in float32.

docs/benchmarks/README.md describes the peers and the method. The output folder gets results.json
and table.md after each configuration, ratios.png at the end, and the peers' worker-*.log.

examples:
  make bench                                        everything; takes an hour or more
  make bench ARGS="--quick"                         a dry run on tiny models
  make bench ARGS="--configurations gru-* decode"   some models
  make bench ARGS="--peers ours onnxruntime --kinds inference"
  make bench ARGS="--peers ours ours-medium openvino-bf16 onnxruntime-int8 --kinds inference"
                                                    those that round, against ours in float32
  make bench ARGS="--passes 3 --seconds 3"          for a machine whose speed changes for minutes
  make bench ARGS="--dtype bfloat16 --memory"       memory of a training step, against torch
""" % (
    "\n  ".join("%-16s %s" % (name, peer.label) for name, peer in CPU_PEERS.items()),
    "\n  ".join("%-9s %s" % group for group in GROUPS.items()),
)

_GPU_HELP = """\
Compares our kernels with bare cuDNN, torch.nn and TensorFlow's own.

peers:
  core        ours without TensorFlow, one C call per forward or backward pass: with the standard
              algorithm, and with the one that auto chooses
  cudnn       only the calls of cuDNN, with the standard algorithm
  persistent  the same with each persistent algorithm
  torch       torch.nn with the same cuDNN
  tensorflow  session steps with our kernels, and of CudnnRNNV3 with TensorFlow's own

TF32 is disabled everywhere. The peers are measured in turn, as by make bench, and the output folder
gets the same files. Device time is the time between two events on the stream; wall-clock time
includes the call and the wait for its end. The table contains medians.

examples:
  make bench-gpu                                     everything, on the GPU
  make bench-gpu ARGS="--peers core cudnn"           only ours against bare cuDNN
  make bench-gpu ARGS="--device cpu --quick"         a dry run; needs no GPU
"""


# Both benchmarks' Make target, help, and default --rounds, --sample-seconds, --seconds and
# --answer-seconds. The last is for processes that hang; a GPU may be lent for minutes.
_COMMANDS = {
    "cpu": ("bench", _CPU_HELP, 15, 0.05, 90, 1800),
    "gpu": ("bench-gpu", _GPU_HELP, 25, 0.02, None, 45),
}


def _add_cpu_options(add):
    add("--peers", nargs="+", choices=list(CPU_PEERS), help="default: all that do not round")
    add("--configurations", nargs="+", metavar="WHICH", help="groups or names (default: all)")
    add("--kinds", nargs="+", choices=KINDS, default=KINDS, help="default: both")
    add("--threads", type=int, default=2, help="threads per peer (default: 2)")
    text = "default: float; bfloat16 is only for the peers " + " and ".join(BFLOAT16_PEERS)
    add("--dtype", choices=["float", "bfloat16"], default="float", help=text)
    text = "measure all configurations this many times, one after the other (default: 1)"
    add("--passes", type=int, default=1, help=text)
    for name, text in [
        ("--memory", "measure the peak memory of training steps instead of their times"),
        ("--check", "compare results instead of measuring times; the machine need not be idle"),
        ("--record", "also write table and plot to docs/benchmarks"),
        ("--list", "list the configurations and exit"),
        ("--list-environments", "list the peers' environments and exit"),
    ]:
        add(name, action="store_true", help=text)


def _add_gpu_options(add):
    add("--peers", nargs="+", choices=list(GPU_PEERS), help="default: all")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--rnn-modes", nargs="+", choices=list(GATES), default=["lstm"], help="default: lstm")
    text = "seconds after which no further configuration is started; skipped ones are listed"
    add("--time-budget", type=float, help=text)


def parse_arguments(arguments=None):
    """Parses the command line, "cpu" or "gpu" and its options; exits if it is wrong."""
    everything = argparse.ArgumentParser()
    commands = everything.add_subparsers(dest="processor", metavar="cpu|gpu", required=True)
    parsers = {}
    for processor, (target, text, rounds, seconds, limit, answer) in _COMMANDS.items():
        form = argparse.RawDescriptionHelpFormatter
        parser = commands.add_parser(processor, prog=target, epilog=text, formatter_class=form)
        parsers[processor] = parser
        add, output = parser.add_argument, os.path.join(ROOT, ".build", target)
        add("--quick", action="store_true", help="use tiny models and few samples")
        add("--rounds", type=int, help="samples per peer (default: %d, quick: 3)" % rounds)
        text = "length of a sample (default: %g, quick: 0.002)" % seconds
        add("--sample-seconds", type=float, help=text)
        text = "time limit per configuration, not applied to the first three rounds (default: %s)"
        add("--seconds", type=float, default=limit, help=text % limit)
        add("--output", default=output, help="output folder")
        add("--logs", help="folder of the peers' logs (default: the output folder)")
        text = "time after which a peer that does not answer is killed (default: %s)"
        add("--answer-seconds", type=float, default=answer, help=text % answer)
    _add_cpu_options(parsers["cpu"].add_argument)
    parsers["cpu"].set_defaults(device="cpu", time_budget=None)
    _add_gpu_options(parsers["gpu"].add_argument)
    only_cpu = dict.fromkeys(("threads", "dtype", "check", "memory", "record"))
    parsers["gpu"].set_defaults(passes=1, **only_cpu)
    chosen = everything.parse_args(arguments)
    target, _, rounds, seconds, *_ = _COMMANDS[chosen.processor]
    chosen.command = "make " + target
    chosen.names_peers = chosen.peers is not None
    chosen.logs = chosen.logs or chosen.output
    is_gpu = chosen.processor == "gpu"
    chosen.is_dry_run = chosen.device == "cpu" if is_gpu else chosen.quick
    chosen.rounds = chosen.rounds or (3 if chosen.quick else rounds)
    chosen.sample_seconds = chosen.sample_seconds or (0.002 if chosen.quick else seconds)
    if is_gpu:
        chosen.peers = chosen.peers or list(GPU_PEERS)
        chosen.todo = gpu_configurations(chosen.quick, chosen.rnn_modes)
    else:
        _check_cpu_arguments(chosen, parsers["cpu"].error)
    return chosen


def _check_cpu_arguments(chosen, error):
    """Chooses peers and configurations; calls `error` with a text if the arguments are wrong."""
    if chosen.threads < 1:
        error("--threads must be at least 1, but is %d" % chosen.threads)
    if chosen.check and (chosen.memory or chosen.record):
        error("--check measures nothing and cannot be combined with --memory or --record")
    if chosen.passes < 1:
        error("--passes must be at least 1, but is %d" % chosen.passes)
    if chosen.passes > 1 and (chosen.check or chosen.memory):
        text = "--passes repeats measurements of times and cannot be combined with "
        error(text + "--check or --memory")
    is_bfloat16 = chosen.dtype == "bfloat16"
    if not chosen.peers:
        usual = [name for name, peer in CPU_PEERS.items() if not peer.rounds]
        chosen.peers = list(BFLOAT16_PEERS if chosen.memory or is_bfloat16 else usual)
    others = [name for name in chosen.peers if name not in BFLOAT16_PEERS]
    if is_bfloat16 and others:
        text = "--dtype bfloat16 is only for the peers %s, but --peers has %s"
        error(text % (" and ".join(BFLOAT16_PEERS), ", ".join(others)))
    if chosen.memory:
        chosen.kinds = ["training"]
    try:
        kinds, dtype = chosen.kinds, chosen.dtype
        chosen.todo = configurations(chosen.quick, chosen.configurations, kinds, dtype)
    except ValueError as wrong:
        error("--configurations: %s" % wrong)
    if not chosen.todo:
        error("no configuration is left, because the group decode has only inference")


def main():
    """Checks the command line; prints the requested lists."""
    chosen = parse_arguments()
    if chosen.processor == "gpu":
        return
    if chosen.list_environments:
        print("\n".join(sorted({CPU_PEERS[name].environment for name in chosen.peers})))
    elif chosen.list:
        for one in chosen.todo:
            print("%-9s %s" % (one.group, one.key))


if __name__ == "__main__":
    main()
