"""`python -m cudnn_rnn export`: models that run without this package, in TensorFlow or ONNX."""

import argparse
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading

from cudnn_rnn._disk import moved_away
from cudnn_rnn.cli import file_commands

# Watchdogs: a healthy SavedModel takes a small part of these.
_BASE_MEMORY, _MEMORY_PER_BYTE = 12 * 2**30, 64
_SECONDS = 1800

# Ends without destructors: where TensorFlow ran out of memory, these may wait for a lock for ever.
# What libraries write to the descriptor of stderr is not shown.
_CHILD = """
import argparse, json, os, sys
request = argparse.Namespace(**json.loads(sys.argv[1]))
if not request.verbose:
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
sys.path[:] = request.path
from cudnn_rnn.cli.export import run_in_child
status = run_in_child(request)
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""

DESCRIPTION = """\
Writes a copy of a model that runs without this package: in TensorFlow, or in ONNX.

    python -m cudnn_rnn export saved_model plain_model
    python -m cudnn_rnn export saved_model model.onnx

A folder as OUT is a SavedModel in which TensorFlow's standard ops replace all CudnnRNN* nodes. IN
is a SavedModel written by TensorFlow 1 or 2. The copy has the same signatures, variables and
results, for any batch size and number of time steps. Any TensorFlow 2 loads it; XLA and the TFLite
converter accept it. It is slower than with this package: docs/plain_graphs.md has numbers.

A file OUT.onnx is the whole model in ONNX, with one LSTM, GRU or RNN node for each layer. IN is a
SavedModel, a frozen graph (.pb), a MetaGraph (.meta) with its checkpoint beside it, or a Keras
model (.keras, .h5; also with CuDNNLSTM and CuDNNGRU). This needs TensorFlow 2 and
pip install 'cudnn_rnn[onnx]'. If ONNX Runtime is installed, the original and the result run with
one random input, and the largest difference is printed: docs/onnx.md.

OUT is complete or not written at all."""

_ONNX = ".onnx"
_ONLY_ONNX = ("signature", "inputs", "outputs", "opset", "no_check", "sample")


def add_arguments(parser):
    """Adds the command's arguments to its `argparse.ArgumentParser`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.usage = "python -m cudnn_rnn export IN OUT [options]"
    parser.add_argument("model", metavar="IN", help="the model to read")
    parser.add_argument("output", metavar="OUT", help="the folder or .onnx file to write")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    file_commands.add_messages(parser)
    parser.add_argument_group("for a SavedModel as OUT").add_argument(
        "--training",
        action="store_true",
        help="also rewrite gradient nodes (CudnnRNNBackprop*), which a model saved by a training "
        "program may have",
    )
    group = parser.add_argument_group("for OUT.onnx")
    group.add_argument(
        "--signature", metavar="KEY", help="which signature; default: serving_default, or the only"
    )
    group.add_argument(
        "--inputs",
        metavar="NAME,...",
        help="tensors of a graph without signatures; default: the placeholders that OUT's "
        "outputs depend on",
    )
    group.add_argument(
        "--outputs",
        metavar="NAME,...",
        help="likewise, without a default; or some of a signature's",
    )
    group.add_argument("--opset", type=int, metavar="N", help="ONNX's operators; default: 17")
    group.add_argument("--no-check", action="store_true", help="do not compare the results")
    group.add_argument(
        "--sample", metavar="FILE.npz", help="arrays by names of inputs, to compare with these"
    )


def run(options):
    """Runs the command in a child process; returns the exit status.

    TensorFlow imports the graph. A damaged one can end the process, or take any memory and time.
    """
    if not _is_for_onnx(options):
        given = [name for name in _ONLY_ONNX if getattr(options, name)]
        if given:
            option = "--" + given[0].replace("_", "-")
            return _failed(options, "%s is only for an OUT that ends with .onnx" % option)
    elif options.training:
        return _failed(options, "--training is not for ONNX, whose models do not train")
    path = [os.path.abspath(folder) for folder in sys.path]
    request = dict(vars(options), path=path, memory=_memory_for(options))
    command = [sys.executable, "-I", "-c", _CHILD, json.dumps(request)]
    # The limit is of addresses: drivers of GPUs, and linear algebra for each core, reserve many.
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1", OPENBLAS_NUM_THREADS="1")
    # The child reads the end of its stdin when this process ends, in whatever way.
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        try:
            status = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            reason = "TensorFlow did not end within %d seconds" % _SECONDS
            return _failed(options, "%s: %s. It may be damaged" % (options.model, reason))
        finally:
            process.kill()
    if status < 0:
        name = signal.Signals(-status).name
        reason = "TensorFlow ended with %s while it worked on the graph" % name
        why = "It may be damaged"
        if status == -signal.SIGKILL:
            why = "Something killed the process, such as a lack of memory, or the model is damaged"
        return _failed(options, "%s: %s. %s" % (options.model, reason, why))
    return status


def _is_for_onnx(options):
    return options.output.lower().endswith(_ONNX)


def _memory_for(options):
    """Returns the limit of the child's memory, in proportion to what it reads."""
    if not _is_for_onnx(options):
        paths = [
            os.path.join(options.model, name) for name in ("saved_model.pb", "saved_model.pbtxt")
        ]
    elif os.path.isdir(options.model):
        found = os.walk(options.model)
        paths = [os.path.join(folder, name) for folder, _, names in found for name in names]
    else:
        paths = glob.glob(glob.escape(re.sub(r"\.meta$", "", options.model)) + "*")
    size = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    return _BASE_MEMORY + _MEMORY_PER_BYTE * size


def _failed(options, reason):
    found = "".join(" The old folder is now %s." % old for old in moved_away(options.output))
    print(
        "python -m cudnn_rnn export: %s. %s was not written.%s" % (reason, options.output, found),
        file=sys.stderr,
    )
    return 1


def run_in_child(options):
    """Runs the command in this process, with limits; returns the exit status."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limit, (_, hard) = options.memory, resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _is_for_onnx(options):
        return file_commands.reporting_errors("export", _to_onnx, options, module="cudnn_rnn.onnx")
    return file_commands.reporting_errors(
        "export", _to_saved_model, options, module="cudnn_rnn.plain._saved_models"
    )


def _end_with_parent():
    """Ends this process once the other end of its stdin is closed."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _to_saved_model(saved_models, options):
    changes = saved_models.export(options.model, options.output, options.training, options.force)
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
            "choose on a GPU." % options.model
        )
    return 0


def _to_onnx(onnx, options):
    sample = None
    if options.sample:
        import numpy

        with numpy.load(options.sample, allow_pickle=False) as arrays:
            sample = dict(arrays)
    done = onnx.export_onnx(
        options.model,
        options.output,
        signature=options.signature,
        inputs=options.inputs.split(",") if options.inputs else None,
        outputs=options.outputs.split(",") if options.outputs else None,
        **({"opset": options.opset} if options.opset else {}),
        overwrite=options.force,
        check=not options.no_check,
        sample=sample,
    )
    print("Inputs %s; outputs %s." % (", ".join(done.inputs), ", ".join(done.outputs)))
    file_commands.print_notes(done.loops)
    if done.not_compared is None:
        print(
            "The largest difference between TensorFlow's and ONNX Runtime's outputs, with one "
            "random input: %.2g." % done.largest_difference
        )
    else:
        file_commands.print_notes(["Results were not compared: %s." % done.not_compared])
    print("%d LSTM, GRU and RNN nodes; wrote %s." % (done.nodes, options.output))
    return 0
