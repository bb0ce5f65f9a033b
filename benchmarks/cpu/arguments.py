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
  ours         the op in TensorFlow 2.21, in a session
  torch        torch.nn; with lengths, packed sequences
  onnxruntime  its LSTM, GRU and RNN operators; inference alone
  keras        the layers of Keras 3 in a tf.function; no lengths
  tf1-cell     TensorFlow 1.15: the cells that share cuDNN's checkpoints, under dynamic_rnn
  tf1-fused    TensorFlow 1.15: LSTMBlockFusedCell; LSTM alone

configurations:
  {groups}
  or patterns of names: --list shows them. A name ends in -half where the sequences have lengths.

how it measures:
  Each peer is a process in an environment of its own, with as many threads as --threads says, on
  as many cores, and no other process works meanwhile. All get the same weights and inputs; one
  whose results or gradients differ from ours is reported and has no time. Then all are measured
  in turn, in another order each round, and with them a {size} x {size} x {size} float matrix
  product of the library that does it fastest: the peak. The table has medians.

writes to the output folder, after each configuration: results.json (every sample), table.md; at
the end ratios.png; what the peers print goes to worker-*.log

examples:
  make bench                                        everything; most of an hour
  make bench ARGS="--quick"                         tries the program on tiny models
  make bench ARGS="--check"                         only whether all compute the same
  make bench ARGS="--configurations gru-* decode"   some models
  make bench ARGS="--peers ours onnxruntime --kinds inference"
  make bench ARGS="--memory"                        memory of a training step, against torch
  make bench ARGS="--record"                        keeps the results under docs/benchmarks
"""

PRODUCT_SIZE = 2048


def parse_arguments(arguments=None):
    """Parses the command line; exits with a message if it is wrong."""
    groups = "\n  ".join("%-9s %s" % group for group in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Measures our CPU kernels against their peers, and against the processor.",
        epilog=EPILOG.format(groups=groups, size=PRODUCT_SIZE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="tiny models, few samples")
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
    parser.add_argument("--threads", type=int, default=2, help="of each peer (default: 2)")
    parser.add_argument("--rounds", type=int, help="samples of each peer (default 15, quick 3)")
    parser.add_argument(
        "--sample-seconds", type=float, help="length of a sample (default 0.05, quick 0.002)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=90,
        help="for one configuration; after that only as many rounds as make three (default 90)",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="measures no time, but how a training step raises the peak of resident memory",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="measures no time: only whether all compute the same; other work may go on meanwhile",
    )
    parser.add_argument("--output", default=os.path.join(ROOT, ".build", "bench"), help="a folder")
    parser.add_argument(
        "--record", action="store_true", help="also keeps table and picture in docs/benchmarks"
    )
    parser.add_argument("--list", action="store_true", help="lists configurations, measures none")
    parser.add_argument(
        "--list-environments", action="store_true", help="lists what the peers need to run in"
    )
    chosen = parser.parse_args(arguments)
    if chosen.threads < 1:
        parser.error("--threads must be at least 1, but is %d" % chosen.threads)
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 15)
    chosen.sample_seconds = chosen.sample_seconds or (0.002 if chosen.quick else 0.05)
    if chosen.check and (chosen.memory or chosen.record):
        parser.error("--check measures nothing, so it goes with neither --memory nor --record")
    if chosen.memory:
        chosen.kinds = ["training"]
        if chosen.peers == list(PEERS):
            chosen.peers = [OURS, "torch"]
    try:
        chosen.todo = configurations(chosen.quick, chosen.configurations, chosen.kinds)
    except ValueError as error:
        parser.error("--configurations: %s" % error)
    if not chosen.todo:
        parser.error("no configuration is left: decoding is inference")
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
