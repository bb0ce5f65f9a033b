"""`python -m cudnn_rnn export`: a SavedModel that runs without this package."""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys

from cudnn_rnn.cli import file_commands

# Watchdogs: a healthy SavedModel takes a small part of these.
_BASE_MEMORY, _MEMORY_PER_BYTE = 12 * 2**30, 64
_SECONDS = 1800

# Ends without destructors: where TensorFlow ran out of memory, these may wait for a lock for ever.
_CHILD = """
import argparse, json, os, sys
request = argparse.Namespace(**json.loads(sys.argv[1]))
sys.path[:] = request.path
from cudnn_rnn.cli.export import run_in_child
status = run_in_child(request)
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""

DESCRIPTION = """\
Writes a copy of a SavedModel in which TensorFlow's standard ops replace all CudnnRNN* nodes.

    python -m cudnn_rnn export saved_model plain_model

The copy has the same signatures, variables and results, for any batch size and number of time
steps. Any TensorFlow 2 loads it without this package; XLA and the TFLite
converter accept it. It is slower than with this package: docs/plain_graphs.md has numbers.

IN is a SavedModel written by TensorFlow 1 or 2. OUT is complete or not written at all."""


def add_arguments(parser):
    """Adds the command's arguments to its `argparse.ArgumentParser`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.usage = "python -m cudnn_rnn export IN OUT [--training] [--force] [--traceback]"
    parser.add_argument("saved_model", metavar="IN", help="the folder of a SavedModel")
    parser.add_argument("output", metavar="OUT", help="the folder to write")
    parser.add_argument(
        "--training",
        action="store_true",
        help="also rewrite gradient nodes (CudnnRNNBackprop*), which a model saved by a training "
        "program may have",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    file_commands.add_traceback(parser)


def run(options):
    """Runs the command in a child process; returns the exit status.

    TensorFlow imports the graph. A damaged one can end the process, or take any memory and time.
    """
    path = [os.path.abspath(folder) for folder in sys.path]
    request = dict(vars(options), path=path, memory=_memory_for(options))
    command = [sys.executable, "-I", "-c", _CHILD, json.dumps(request)]
    # The limit is of addresses: drivers of GPUs, and linear algebra for each core, reserve many.
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1", OPENBLAS_NUM_THREADS="1")
    process = subprocess.Popen(command, env=environment)
    try:
        status = process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        return _failed(options, "TensorFlow did not end within %d seconds" % _SECONDS)
    finally:
        process.kill()
        process.wait()
    if status < 0:
        name = signal.Signals(-status).name
        return _failed(options, "TensorFlow ended with %s while it imported the graph" % name)
    return status


def _memory_for(options):
    """Returns the limit of the child's memory, in proportion to the graph."""
    size = 0
    for name in ("saved_model.pb", "saved_model.pbtxt"):
        path = os.path.join(options.saved_model, name)
        size += os.path.getsize(path) if os.path.isfile(path) else 0
    return _BASE_MEMORY + _MEMORY_PER_BYTE * size


def _failed(options, reason):
    print(
        "python -m cudnn_rnn export: %s: %s. It may be damaged; %s was not written."
        % (options.saved_model, reason, options.output),
        file=sys.stderr,
    )
    return 1


def run_in_child(options):
    """Runs the command in this process, with limits; returns the exit status."""
    limit, (_, hard) = options.memory, resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return file_commands.reporting_errors(
        "export", _export, options, module="cudnn_rnn.plain._saved_models"
    )


def _export(saved_models, options):
    changes = saved_models.export(
        options.saved_model, options.output, options.training, options.force
    )
    left_out = ""
    if changes.removed_functions:
        left_out = ", left out %d functions that nothing calls" % changes.removed_functions
    print(
        "Replaced %d CudnnRNN* nodes%s; wrote %s."
        % (changes.replaced_nodes, left_out, options.output)
    )
    if not changes.replaced_nodes:
        print(
            "%s runs on a CPU as it is: nothing calls its CudnnRNN* nodes, which TensorFlow may "
            "choose on a GPU." % options.saved_model
        )
    return 0
