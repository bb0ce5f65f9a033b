"""`python -m cudnn_rnn run`: runs a program with `tf.contrib.cudnn_rnn` in place."""

import argparse
import builtins
import importlib
import importlib.util
import os
import pkgutil
import re
import runpy
import sys
import types

from cudnn_rnn import _release_numbers

DESCRIPTION = """\
Runs an unmodified Python program that uses tf.contrib.cudnn_rnn.

    python -m cudnn_rnn run train.py --epochs 3
    python -m cudnn_rnn run -m package.train --epochs 3

Put the options of this command before the program. All arguments after the program are passed to
it. The program gets the same sys.argv, sys.path and __main__ as with plain python.

A program for TensorFlow 1 usually needs more of its API than tf.contrib.cudnn_rnn. With TensorFlow
1.15, the whole API is available. With TensorFlow 2, use --tf1: then `import tensorflow` returns
tensorflow.compat.v1, and the behaviors of TensorFlow 2 are disabled. A program that imports
tensorflow.compat.v1 itself does not need --tf1.

With TensorFlow 2, tf.contrib also provides what programs use beside it: the block cells and others
of rnn, seq2seq.sequence_loss, training.HParams, learn.ModeKeys and more (docs/migrating.md lists
all), and layers and slim if the package tf_slim is installed. tf.layers, tf.nn.rnn_cell and the
cells of tf.contrib.rnn that are not block cells need Keras 2. With Keras 3, install the package
tf_keras in TensorFlow's version; --tf1 then sets TF_USE_LEGACY_KERAS=1, unless you have set it.
tf.estimator needs the package tensorflow-estimator 2.15.0 in TensorFlow 2.16 and newer. Not
available is the rest of tf.contrib."""

_HINT = """\
python -m cudnn_rnn run: TensorFlow %s lacks this name of TensorFlow 1. If the program is written \
for TensorFlow 1, run it with
    python -m cudnn_rnn run --tf1 ..."""

_HINT_OF_KERAS = """\
python -m cudnn_rnn run: tf.layers and tf.nn.rnn_cell of TensorFlow %s need Keras 2. %s"""
# What Python says about `tf.estimator` and about imports of its names and submodules.
_LACK_OF_ESTIMATORS = re.compile(
    r"module 'tensorflow\S+' has no attribute 'estimator'|"
    r"cannot import name 'estimator' from 'tensorflow\b|No module named 'tensorflow[._]estimator\b"
)
_IS_MISSING = (AttributeError, ImportError)
_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
_TRUE = ("true", "True", "1")  # for TensorFlow

# The folder of the command line; its parent folder is the package's, with __main__.py.
_FOLDER = os.path.dirname(__file__)

ADVICE = "`python -m cudnn_rnn doctor` reports what is installed and whether it works."


def add_arguments(parser):
    """Adds the command's arguments to its `argparse.ArgumentParser`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.usage = (
        "python -m cudnn_rnn run [--tf-contrib-version 1.15] [--tf1] (SCRIPT | -m MODULE) ..."
    )
    parser.add_argument(
        "--tf-contrib-version",
        default="1.15",
        metavar="1.0 ... 1.15",
        help="the release whose tf.contrib.cudnn_rnn the program is written for (default: 1.15)",
    )
    parser.add_argument(
        "--tf1",
        action="store_true",
        help="make `import tensorflow` return tensorflow.compat.v1 and disable the behaviors of "
        "TensorFlow 2; no effect with TensorFlow 1",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module")
    parser.add_argument("program", metavar="SCRIPT or MODULE", help="the program to run")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="the program's arguments"
    )


def arguments_of_program(all_arguments, parsed):
    """Returns the program's arguments, including a leading `--`, which argparse consumes.

    Args:
      all_arguments: list of str, all arguments of the command.
      parsed: list of str, the program's arguments according to argparse.
    """
    num_others = len(all_arguments) - len(parsed)
    if all_arguments[num_others - 1] == "--":
        num_others -= 1
    return all_arguments[num_others:]


def run(options, parser):
    """Runs the program; returns the exit status.

    Exceptions of the program, including `SystemExit`, propagate.
    """
    try:
        _release_numbers.minor_of(options.tf_contrib_version)
    except ValueError as error:
        parser.error("--tf-contrib-version: %s" % error)
    if not options.is_module and not os.path.exists(options.program):
        parser.error("the program %s does not exist" % options.program)
    if options.tf1:
        _prefer_tf_keras()
    try:
        load_package()
    except ImportError as error:
        print("python -m cudnn_rnn run: %s\n%s" % (error, ADVICE), file=sys.stderr)
        return 1
    importlib.import_module("cudnn_rnn.contrib").install(options.tf_contrib_version)
    if options.tf1:
        use_tensorflow_1_api()
    sys.excepthook = _hook_for_the_program(sys.excepthook)
    if options.is_module:
        _run_module(options.program, options.arguments)
    else:
        _run_path(options.program, options.arguments)
    return 0


def _prefer_tf_keras():
    """Makes TensorFlow 2 take Keras from the package tf_keras, if it is installed.

    Without Keras 2, TensorFlow has no `tf.layers` and no `tf.nn.rnn_cell`. TensorFlow reads the
    variable when it first needs Keras.
    """
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(_LEGACY_KERAS, "1")


def load_package():
    """Completes the import of `cudnn_rnn` that `cli/launch.py` has cut short."""
    package = sys.modules["cudnn_rnn"]
    if not hasattr(package, "CudnnLSTM"):
        importlib.reload(package)


def _hook_for_the_program(excepthook):
    """Returns an `excepthook` that shows the program's exception as python itself would."""

    def hook(kind, error, traceback):
        while traceback is not None and _is_of_this_command(traceback.tb_frame):
            traceback = traceback.tb_next
        excepthook(kind, error.with_traceback(traceback), traceback)
        if _is_lack_of_tensorflow_1(error):
            print(_HINT % _tensorflow_version(), file=sys.stderr)
        elif _is_lack_of_keras_2(error):
            print(_HINT_OF_KERAS % (_tensorflow_version(), _way_to_keras_2()), file=sys.stderr)
        elif _is_lack_of_estimators(error):
            estimators = importlib.import_module("cudnn_rnn.contrib.estimators")
            print("python -m cudnn_rnn run: %s" % estimators.HOW_TO_GET_IT, file=sys.stderr)

    return hook


def _is_of_this_command(frame):
    """Tells whether the frame belongs to this command or to runpy, not to the program."""
    file_name = frame.f_code.co_filename
    return (
        os.path.dirname(file_name) in (_FOLDER, os.path.dirname(_FOLDER))
        or file_name == "<frozen runpy>"
        or file_name == runpy.__file__
    )


def use_tensorflow_1_api():
    """Makes `import tensorflow` return `tensorflow.compat.v1`; disables TensorFlow 2's behaviors.

    Modules that imported TensorFlow earlier are not affected. With TensorFlow 1, this is a no-op.
    """
    import tensorflow

    if hasattr(tensorflow, "Session"):  # this is the API of TensorFlow 1
        return
    # Keras loads lazily and needs TensorFlow 2's `tensorflow`, so it is imported before the switch.
    # If Keras is broken, a program that needs it will fail on its own.
    for name in ["keras"] + ["tf_keras"] * (os.environ.get(_LEGACY_KERAS) in _TRUE):
        try:
            importlib.import_module(name)
        except Exception:
            pass
    tensorflow_1 = tensorflow.compat.v1
    tensorflow_1.disable_v2_behavior()
    sys.modules["tensorflow"] = tensorflow_1
    _complete_as_package(tensorflow_1, tensorflow.__path__)


def _complete_as_package(tensorflow_1, path):
    """Gives the new `tensorflow` the submodules, such as `tensorflow.python`, that it lacks.

    `import tensorflow.python as p` reads the attribute `python` of `tensorflow`. Python sets such
    attributes only for modules that it imports after the switch.
    """
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if parent == "tensorflow" and not hasattr(tensorflow_1, child):
            setattr(tensorflow_1, child, module)
    known = tensorflow_1.__path__
    tensorflow_1.__path__ = [*known, *(folder for folder in path if folder not in known)]


def _run_path(path, arguments):
    sys.argv[:] = [path] + arguments
    has_main_inside = pkgutil.get_importer(path) is not None  # a folder or an archive
    if _has_script_folder():
        # runpy puts a folder or archive itself there.
        sys.path[:1] = [] if has_main_inside else [os.path.dirname(os.path.realpath(path))]
    if has_main_inside or _is_compiled(path):
        runpy.run_path(path, run_name="__main__")
        return
    main = types.ModuleType("__main__")
    main.__file__ = os.path.abspath(path) if sys.version_info >= (3, 9) else path
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    main.__annotations__ = {}
    # `main` stays in sys.modules, for pickle and for functions that run at exit.
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        code = compile(file.read(), main.__file__, "exec", dont_inherit=True)
    exec(code, vars(main))


def _run_module(name, arguments):
    # runpy replaces the first element by the module's file.
    sys.argv[:] = ["-m"] + arguments
    if _has_script_folder():
        sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _is_compiled(path):
    with open(path, "rb") as file:
        return file.read(4) == importlib.util.MAGIC_NUMBER


def _has_script_folder():
    """Tells whether Python puts a script's folder first on sys.path (not with `-P` or `-I`)."""
    return not sys.flags.isolated and not getattr(sys.flags, "safe_path", False)


def _is_lack_of_tensorflow_1(error):
    """Tells whether the program asked TensorFlow 2 for a name that only TensorFlow 1 has."""
    # With --tf1, the message names tensorflow.compat.v1 instead.
    lacks_a_name = str(error).startswith("module 'tensorflow' has no attribute")
    return isinstance(error, AttributeError) and lacks_a_name and _tensorflow_version() >= "2"


def _is_lack_of_keras_2(error):
    """Tells whether the program asked TensorFlow for what it has only with Keras 2."""
    return isinstance(error, _IS_MISSING) and str(error).endswith("is not available with Keras 3.")


def _is_lack_of_estimators(error):
    """Tells whether the program asked TensorFlow for `tf.estimator`, which it lacks."""
    return isinstance(error, _IS_MISSING) and bool(_LACK_OF_ESTIMATORS.search(str(error)))


def _way_to_keras_2():
    """Returns what to do to get Keras 2."""
    if importlib.util.find_spec("tf_keras") is None:
        parts = importlib.import_module("cudnn_rnn.contrib.other_packages")
        return "%s Then run the program with --tf1." % parts.how_to_get_tf_keras()
    setting = os.environ.get(_LEGACY_KERAS)
    if setting is None:
        return "The package tf_keras provides Keras 2: run the program with --tf1."
    return "The package tf_keras provides Keras 2, but %s is %r: set it to 1." % (
        _LEGACY_KERAS,
        setting,
    )


def _tensorflow_version():
    import tensorflow

    return tensorflow.version.VERSION
