"""The command line of the GPU benchmark. Standard library only.

Run as a program, it checks the arguments and shows the help before any environment is created.
"""

import argparse
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PEERS = {
    "core": "core_peer",
    "cudnn": "cudnn_peer",
    "torch": "torch_peer",
    "tensorflow": "tensorflow_peer",
}

EPILOG = """\
peers:
  core        ours without TensorFlow: one C call per forward or backward pass
  cudnn       only the calls of cuDNN, with each of its algorithms; the fastest one counts
  torch       torch.nn with the same cuDNN, TF32 disabled
  tensorflow  session steps with our kernels, and with TensorFlow's own CudnnRNN and CudnnRNNV3

method:
  For each configuration, all peers are set up and then measured in turn, in a different order
  each round. Device time is the time between two events on the stream; wall-clock time includes
  the call and the wait for its end. The table contains medians.

output folder:
  results.json  every sample; written after each configuration
  table.md      the table; written after each configuration
  ratios.png    a plot; written at the end

examples:
  make bench-gpu                                     everything, on the GPU
  make bench-gpu ARGS="--peers core cudnn"           only ours against bare cuDNN
  make bench-gpu ARGS="--device cpu --quick"         a dry run; needs no GPU
"""


def parse_arguments(arguments=None):
    """Parses the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="bench-gpu",
        description="Compares our kernels with bare cuDNN, torch.nn and TensorFlow's own.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="use two tiny models and few samples")
    parser.add_argument(
        "--peers", nargs="+", choices=list(PEERS), default=list(PEERS), help="default: all"
    )
    parser.add_argument(
        "--rnn-modes",
        nargs="+",
        choices=["lstm", "gru", "rnn_relu", "rnn_tanh"],
        default=["lstm"],
        help="default: lstm",
    )
    parser.add_argument("--rounds", type=int, help="samples per peer (default: 25, quick: 3)")
    parser.add_argument(
        "--sample-seconds", type=float, help="length of a sample (default: 0.02, quick: 0.002)"
    )
    parser.add_argument(
        "--time-budget",
        type=float,
        help="seconds after which no further configuration is started; skipped ones are listed",
    )
    parser.add_argument(
        "--output", default=os.path.join(ROOT, ".build", "gpu-benchmark"), help="output folder"
    )
    chosen = parser.parse_args(arguments)
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 25)
    chosen.sample_seconds = chosen.sample_seconds or (0.002 if chosen.quick else 0.02)
    return chosen


if __name__ == "__main__":
    parse_arguments()
