"""`python -m cudnn_rnn convert`: weights from one format to another."""

import importlib
import os

from cudnn_rnn.cli import file_commands
from cudnn_rnn.cli.run import load_package

# As in cudnn_rnn/exchange/conversion.py, whose import would slow down every command.
TARGETS = ("cells", "1.1", "1.3", "1.4", "1.15", "keras", "torch", "onnx", "npz")

_DESCRIPTION = """\
Converts the weights of RNNs between checkpoints, PyTorch, Keras, ONNX and NumPy.

    python -m cudnn_rnn convert model.ckpt lstm.pt --to torch
    python -m cudnn_rnn convert model.ckpt lstm.safetensors --to torch
    python -m cudnn_rnn convert model.ckpt lstm.onnx --to onnx --scope encoder
    python -m cudnn_rnn convert model.ckpt lstm.keras --to keras
    python -m cudnn_rnn convert model_with_cudnnlstm.h5 model.keras --to keras
    python -m cudnn_rnn convert old/model.ckpt new/model.ckpt --to 1.15 --dry-run
    python -m cudnn_rnn convert basic_lstm_cells.ckpt new/model.ckpt --to 1.15 --forget-bias 1.0
    python -m cudnn_rnn convert lstm.pt model.ckpt --to cells --target-scope encoder
    python -m cudnn_rnn convert frozen_graph.pb lstm.pt --to torch

targets:
  cells   a checkpoint for CudnnCompatibleLSTMCell and its siblings under tf.nn.dynamic_rnn
  1.1     a checkpoint with the keys of TensorFlow 1.0 to 1.2
  1.3     a checkpoint with the keys of TensorFlow 1.3
  1.4     a checkpoint with the keys of CudnnLSTMSaveable and its siblings in TensorFlow 1.4
  1.15    a checkpoint with the keys of the layers of TensorFlow 1.5 to 1.15
  torch   the state_dict of torch.nn.LSTM, GRU or RNN: .safetensors, else PyTorch's own format
  keras   a model of Keras's layers: .keras, .h5, or .weights.h5 for the weights alone
  onnx    a model with ONNX's LSTM, GRU or RNN, for ONNX Runtime
  npz     a NumPy archive

The keys of a single RNN are plain (weight_ih_l0 for PyTorch), those of several begin with scopes.
Between checkpoints, all other variables and the optimizer's slots are converted too. A checkpoint
also gets the slots of Adam from .keras, of Adam and SGD from .pt with the optimizer's state_dict.
A whole model of Keras, of any version since 2.0, stays a whole model with --to keras, unless
--scope picks an RNN of it. What is left out is listed. An existing file is never overwritten
without --force."""


def add_arguments(parser):
    """Adds the command's arguments to its `argparse.ArgumentParser`."""
    file_commands.describe_command(
        parser, "python -m cudnn_rnn convert FILE OUT --to TARGET [OPTIONS] [FACTS]", _DESCRIPTION
    )
    parser.add_argument("file", metavar="FILE", help=file_commands.INPUTS)
    parser.add_argument("out", metavar="OUT", help="the new file, or the prefix of a checkpoint")
    parser.add_argument("--to", required=True, choices=TARGETS, metavar="TARGET", help="see above")
    parser.add_argument("--scope", help="convert only the RNN of this scope (inspect lists them)")
    parser.add_argument("--target-scope", help="the scope of the RNN in OUT; default: as in FILE")
    parser.add_argument(
        "--variable",
        metavar="KEY",
        help="the key of the opaque variable in a checkpoint; default: as in FILE, in 1.15 "
        "<scope>/opaque_kernel",
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing, show the result")
    parser.add_argument("--force", action="store_true", help="overwrite OUT")
    parser.add_argument("--allow-nan", action="store_true", help="convert NaN and infinite weights")
    file_commands.add_facts(parser)


def run(options):
    """Runs the command; returns the exit status."""
    return file_commands.reporting_errors("convert", _convert, options)


def _convert(exchange, options):
    if options.to == "keras" and not options.scope and os.path.isfile(options.file):
        keras_files = importlib.import_module("cudnn_rnn.exchange.keras_files")
        if keras_files.is_keras(options.file) and keras_files.has_config(options.file):
            return _convert_model(exchange, options)
    done = exchange.convert(
        options.file,
        options.out,
        options.to,
        scope=options.scope,
        target_scope=options.target_scope,
        variable=options.variable,
        force=options.force,
        dry_run=options.dry_run,
        allow_nan=options.allow_nan,
        **file_commands.facts_of(options),
    )
    for rnn in done.source.rnns:
        print(exchange.describe(rnn))
    for key in done.keys if options.dry_run else ():
        print("  " + key)
    print("%s %s (%s)" % ("Would write" if options.dry_run else "Wrote", options.out, options.to))
    file_commands.print_notes(done.notes)
    return 0


def _convert_model(exchange, options):
    """Writes a whole model of Keras as a file of today's Keras."""
    given = [name for name in ("target_scope", "variable") if getattr(options, name)]
    if given:
        raise exchange.ExchangeError(
            "--%s is for weights, but %s is a whole model of Keras. Pick an RNN with --scope, or "
            "leave it out." % (given[0].replace("_", "-"), options.file)
        )
    if options.out.endswith(".weights.h5"):
        raise exchange.ExchangeError(
            "%s is for the weights of RNNs alone, but %s is a whole model of Keras. Pick an RNN "
            "with --scope; or convert the model to another name, load it in Keras, and call "
            "model.save_weights." % (options.out, options.file)
        )
    conversion = importlib.import_module("cudnn_rnn.exchange.conversion")
    conversion.refuse_to_overwrite(options.out, options.force)
    load_package()
    models = importlib.import_module("cudnn_rnn.keras._conversion")
    notes = models.convert_model(options.file, options.out, options.dry_run)
    wrote = "Would write" if options.dry_run else "Wrote"
    print("%s %s (the whole model, of layers of Keras)" % (wrote, options.out))
    file_commands.print_notes(notes)
    return 0
