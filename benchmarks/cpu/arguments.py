"""The command line of the CPU benchmark. Standard library only.

Run as a program, it checks the arguments and shows the help before any environment is created.
"""

import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "benchmarks", "common"))

from configurations import GROUPS, configurations  # noqa: E402
from peers import OURS, PEERS  # noqa: E402

EPILOG = """\
peers:
  ours         the op of this package in a session of TensorFlow 2.21
  torch        torch.nn, with packed sequences for variable lengths
  onnxruntime  the operators LSTM, GRU and RNN of ONNX Runtime; inference only
  keras        the layers of Keras 3 in a tf.function; no variable lengths
  tf1-cell     TensorFlow 1.15: cuDNN-compatible cells in dynamic_rnn
  tf1-fused    TensorFlow 1.15: LSTMBlockFusedCell; LSTM only

configurations:
  {groups}
  or patterns of names. --list prints the names; -half marks variable-length sequences.

method:
  Each peer runs in its own process and environment, with --threads threads on as many cores.
  Only one process works at a time. All peers get the same weights and inputs; a peer whose
  results or gradients differ from ours is reported and not measured. The peers are measured in
  turn, in a different order each round, together with a {size} x {size} x {size} float matrix
  product of the fastest library, which defines the peak. The table contains medians.

output folder:
  results.json  every sample; written after each configuration
  table.md      the tables; written after each configuration
  ratios.png    a plot; written at the end
  worker-*.log  output of the peers

examples:
  make bench                                        everything; takes up to an hour
  make bench ARGS="--quick"                         a dry run on tiny models
  make bench ARGS="--check"                         compares results, measures no time
  make bench ARGS="--configurations gru-* decode"   some models
  make bench ARGS="--peers ours onnxruntime --kinds inference"
  make bench ARGS="--memory"                        memory of a training step, against torch
  make bench ARGS="--record"                        also writes the results to docs/benchmarks
"""

PRODUCT_SIZE = 2048


def parse_arguments(arguments=None):
    """Parses the command line; exits with a message if it is wrong."""
    groups = "\n  ".join("%-9s %s" % group for group in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Compares our CPU kernels with other libraries and with the processor's peak.",
        epilog=EPILOG.format(groups=groups, size=PRODUCT_SIZE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="use tiny models and few samples")
    parser.add_argument(
        "--configurations", nargs="+", metavar="WHICH", help="groups or names (default: all)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=["inference", "training"],
        default=["inference", "training"],
        help="default: both",
    )
    parser.add_argument(
        "--peers", nargs="+", choices=list(PEERS), default=list(PEERS), help="default: all"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads per peer (default: 2)")
    parser.add_argument("--rounds", type=int, help="samples per peer (default: 15, quick: 3)")
    parser.add_argument(
        "--sample-seconds", type=float, help="length of a sample (default: 0.05, quick: 0.002)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=90,
        help="time limit per configuration, not applied to the first three rounds (default: 90)",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="measure the peak memory of training steps instead of their times",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare results instead of measuring times; the machine need not be idle",
    )
    parser.add_argument(
        "--output", default=os.path.join(ROOT, ".build", "bench"), help="output folder"
    )
    parser.add_argument(
        "--record", action="store_true", help="also write table and plot to docs/benchmarks"
    )
    parser.add_argument("--list", action="store_true", help="list the configurations and exit")
    parser.add_argument(
        "--list-environments", action="store_true", help="list the peers' environments and exit"
    )
    chosen = parser.parse_args(arguments)
    if chosen.threads < 1:
        parser.error("--threads must be at least 1, but is %d" % chosen.threads)
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 15)
    chosen.sample_seconds = chosen.sample_seconds or (0.002 if chosen.quick else 0.05)
    if chosen.check and (chosen.memory or chosen.record):
        parser.error("--check measures nothing and cannot be combined with --memory or --record")
    if chosen.memory:
        chosen.kinds = ["training"]
        if chosen.peers == list(PEERS):
            chosen.peers = [OURS, "torch"]
    try:
        chosen.todo = configurations(chosen.quick, chosen.configurations, chosen.kinds)
    except ValueError as error:
        parser.error("--configurations: %s" % error)
    if not chosen.todo:
        parser.error("no configuration is left, because the group decode has only inference")
    return chosen


def main():
    """Checks the command line; prints the requested lists."""
    chosen = parse_arguments()
    if chosen.list_environments:
        print("\n".join(sorted({PEERS[name].environment for name in chosen.peers})))
    elif chosen.list:
        for one in chosen.todo:
            print("%-9s %s" % (one.group, one.key))


if __name__ == "__main__":
    main()
