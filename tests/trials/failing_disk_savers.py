"""The part of the trial `failing_disk` that runs in TensorFlow, under failing_disk.c.

Each saver saves weights 1. Then it saves weights 2 while calls fail, which must raise an error and
leave weights 1 as they were; and weights 3 when no call fails any more. Prints the numbers of
savers and of failures.
"""

import argparse
import contextlib
import ctypes
import errno
import functools
import importlib.util
import io
import os
import random
import shutil
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import cudnn_rnn  # noqa: E402
from cudnn_rnn import exchange  # noqa: E402
from cudnn_rnn.cli.main import main as run_command  # noqa: E402
from helpers.exchange_models import random_rnn  # noqa: E402
from helpers.paths import GOLDEN  # noqa: E402

SHIM = ctypes.CDLL(None)
WRITES, READS, LOST_WRITES = b"w", b"r", b"l"
IS_TENSORFLOW_1 = tf.__version__.startswith("1.")
OLD, NEW, LATER = 1, 2, 3


class Saver:
    """Saves numbered weights to a folder, and loads them.

    `save(number)` saves; `load(number)` returns the number of the weights that it finds where those
    of the number are. `replaces`: all have the same place, and this package writes the files.
    """

    replaces = False

    def __init__(self, folder):
        self.folder = folder
        self.sources = os.path.join(os.path.dirname(folder), "sources")  # no call fails there

    def path(self, number):
        return os.path.join(self.folder, "model" if self.replaces else "model-%d" % number)

    def read_paths(self):
        """Returns the beginning of the paths whose reads may fail.

        TensorFlow ends the process if it can open the index of a checkpoint, but not read it. So
        only reads of a checkpoint's data fail.
        """
        return self.path(OLD) + ".data"


class Graph(Saver):
    """A saver of a graph; a subclass builds the graph and returns the variable."""

    def __init__(self, folder):
        super().__init__(folder)
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._variable = self.build()
            self._session = tf.Session()
            self._session.run(tf.global_variables_initializer())

    def set_number(self, number):
        value = np.full(self._session.run(self._variable).shape, number, np.float32)
        with self._graph.as_default():
            self._variable.load(value, self._session)

    def found_number(self):
        (found,) = np.unique(self._session.run(self._variable))  # fails if values are mixed
        return found

    def save(self, number):
        self.set_number(number)
        with self._graph.as_default():
            self._saver.save(self._session, os.path.join(self.folder, "model"), global_step=number)

    def load(self, number):
        self.set_number(99)
        with self._graph.as_default():
            self._saver.restore(self._session, self.path(number))
        return self.found_number()


class LayerSaver(Graph):
    """`tf.train.Saver` with a layer's saveable."""

    def build(self):
        layer = cudnn_rnn.layers.CudnnLSTM(1, 3, direction="bidirectional", name="lstm")
        layer.build([None, None, 2])
        self._saver = tf.train.Saver()
        return layer.kernel


class ParamsSaver(Graph):
    """`tf.train.Saver` with the `RNNParamsSaveable` of an op-level class."""

    def build(self):
        model = cudnn_rnn.CudnnGRU(2, 3, 2)
        params = tf.Variable(tf.random_uniform([model.params_size()]), use_resource=False)
        conversions = model.params_to_canonical, model.canonical_to_params
        self._saver = tf.train.Saver([cudnn_rnn.RNNParamsSaveable(model, *conversions, [params])])
        return params


class ObjectSaver(Graph):
    """`tf.train.Checkpoint` of a layer."""

    def build(self):
        layer = cudnn_rnn.layers.CudnnLSTM(1, 3, name="lstm")
        layer.build([None, None, 2])
        self._layer = layer
        self._checkpoint = tf.train.Checkpoint(encoder=layer)
        return layer.kernel

    def save(self, number):
        self.set_number(number)
        with self._graph.as_default(), self._session.as_default():
            self._checkpoint.write(self.path(number), session=self._session)

    def load(self, number):
        self.set_number(99)
        with self._graph.as_default(), self._session.as_default():
            status = tf.train.Checkpoint(encoder=self._layer).restore(self.path(number))
            status.run_restore_ops(self._session)
        return self.found_number()


class KerasSaver(Saver):
    """`model.save` of a model with a layer of this package, to a `.keras` file."""

    def __init__(self, folder):
        super().__init__(folder)
        import cudnn_rnn.keras

        keras = tf.keras
        self._model = keras.Sequential([keras.Input([None, 2]), cudnn_rnn.keras.GRU(3)])

    def path(self, number):
        return super().path(number) + ".keras"

    def read_paths(self):
        return self.folder

    def save(self, number):
        weights = [np.full_like(one, number) for one in self._model.get_weights()]
        self._model.set_weights(weights)
        self._model.save(self.path(number))

    def load(self, number):
        model = tf.keras.models.load_model(self.path(number))
        (found,) = np.unique(np.concatenate([one.ravel() for one in model.get_weights()]))
        return found


class ExchangeSaver(Saver):
    """`exchange.write` in a format."""

    replaces = True

    def __init__(self, folder, target, suffix=""):
        super().__init__(folder)
        self._target, self._suffix = target, suffix
        numbers = (OLD, NEW, LATER)
        self._rnns = {n: random_rnn("gru", equal_biases=True, scope="rnn", seed=n) for n in numbers}

    def path(self, number):
        return super().path(number) + self._suffix

    def read_paths(self):
        return self.folder if self._suffix else super().read_paths()

    def save(self, number):
        exchange.write(self.path(number), [self._rnns[number]], self._target, force=True)

    def load(self, number):
        (found,) = exchange.read(self.path(number)).rnns
        opaque = found.to_opaque()
        same = [n for n, one in self._rnns.items() if np.array_equal(one.to_opaque(), opaque)]
        return same[0]


class CommandSaver(ExchangeSaver):
    """`python -m cudnn_rnn convert` of files elsewhere."""

    def __init__(self, folder, target, suffix=""):
        super().__init__(folder, target, suffix)
        os.makedirs(self.sources)
        for number, rnn in self._rnns.items():
            exchange.write(self.source(number), [rnn], "npz")

    def source(self, number):
        return os.path.join(self.sources, "%d.npz" % number)

    def save(self, number):
        arguments = ["convert", self.source(number), self.path(number), "--to", self._target]
        run_or_raise(arguments + ["--force"])


def run_or_raise(arguments):
    """Runs a command of this package; raises `OSError` with its text if it fails."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(io.StringIO()):
        status = run_command(arguments)
    if status:
        raise OSError(text.getvalue())


class ExportSaver(Saver):
    """`export_plain` of SavedModels whose assets have a number."""

    replaces = True

    def __init__(self, folder):
        super().__init__(folder)
        for number in (OLD, NEW, LATER):
            original = os.path.join(GOLDEN, "graphs", "layer_v1_lstm", "saved_model")
            shutil.copytree(original, self.source(number))
            os.makedirs(os.path.join(self.source(number), "assets"))
            with open(os.path.join(self.source(number), "assets", "number"), "w") as file:
                file.write(str(number))

    def source(self, number):
        return os.path.join(self.sources, str(number))

    def save(self, number):
        # The command does this in a child process, in which no call fails.
        options = dict(training=True, overwrite=True)
        cudnn_rnn.export_plain(self.source(number), self.path(number), **options)

    def load(self, number):
        reader = tf.train.load_checkpoint(self._variables(number))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
        with open(os.path.join(self.path(number), "assets", "number")) as file:
            return int(file.read())

    def read_paths(self):
        return self._variables(OLD) + ".data"

    def _variables(self, number):
        return os.path.join(self.path(number), "variables", "variables")


def makers():
    """Returns functions of a folder, which make a saver; by name."""
    found = {
        "Saver of a layer": LayerSaver,
        "Saver with RNNParamsSaveable": ParamsSaver,
        "Checkpoint": ObjectSaver,
        "convert to npz": lambda folder: CommandSaver(folder, "npz", ".npz"),
        "convert to 1.15": lambda folder: CommandSaver(folder, "1.15"),
        "export": ExportSaver,
    }
    formats = [("npz", ".npz"), ("cells", ""), ("1.1", ""), ("keras", ".h5")]
    if not IS_TENSORFLOW_1:
        found["Keras .keras"] = KerasSaver
        formats.append(("keras", ".keras"))
    if importlib.util.find_spec("torch"):
        formats.append(("torch", ".pt"))
    if importlib.util.find_spec("safetensors"):
        formats.append(("torch", ".safetensors"))
    if importlib.util.find_spec("onnx"):
        formats.append(("onnx", ".onnx"))
    for target, suffix in formats:
        found["write %s %s" % (target, suffix)] = lambda folder, of=(target, suffix): ExchangeSaver(
            folder, *of
        )
    return found


def contents_of(folder):
    """Returns the bytes of all files by path."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                found[os.path.join(parent, name)] = file.read()
    return found


class Failure(Exception):
    """What a saver did that it must not do."""


def require(condition, text):
    if not condition:
        raise Failure(text)


class Disk:
    """The files whose calls fail: all paths that begin with `start`."""

    def __init__(self, start):
        self._start = start.encode()

    def run(self, function, kind, n, error, all_follow):
        """Runs a function while call `n` fails; returns its error, if any, and its calls."""
        caught = None
        SHIM.fail_disk(self._start, ctypes.c_char(kind), ctypes.c_long(n), error, int(all_follow))
        try:
            function()
        except Exception as raised:  # of any kind: the caller looks at it
            caught = raised
        finally:
            calls = SHIM.stop_failing_disk()
        return caught, calls


def try_write(disk, saver, kind, n, error, all_follow):
    """Saves while call `n` fails; returns whether the saver made call `n`."""
    saver.save(OLD)
    before = contents_of(saver.folder)
    caught, calls = disk.run(lambda: saver.save(NEW), kind, n, error, all_follow)
    if caught is None:
        require(saver.load(NEW) == NEW, "saving raised no error, but did not save")
    elif saver.replaces:
        require(contents_of(saver.folder) == before, "the folder changed: %s" % caught)
        text = str(caught)
        for part in (saver.path(NEW), os.strerror(error), "Free space on the disk"):
            require(part in text, "%r is not in the error: %s" % (part, text))
        require(saver.load(OLD) == OLD, "the old weights changed")
    else:
        require(saver.load(OLD) == OLD, "the old weights changed: %s" % caught)
        latest = tf.train.latest_checkpoint(saver.folder)
        if latest is not None:
            number = int(latest.rpartition("-")[2])
            require(saver.load(number) == number, "the latest checkpoint is wrong")
        try:
            found = saver.load(NEW)
        except Exception:  # as it should: the file is missing or damaged
            found = NEW
        require(found == NEW, "an incomplete file was loaded")
    saver.save(LATER)
    require(saver.load(LATER) == LATER, "saving does not work again")
    return calls >= n


def try_read(disk, saver, n):
    """Loads while call `n` fails; returns whether the saver made call `n`."""
    found = []
    caught, calls = disk.run(lambda: found.append(saver.load(OLD)), READS, n, errno.EIO, False)
    require(caught is not None or found == [OLD], "wrong weights were loaded: %s" % found)
    require(saver.load(OLD) == OLD, "loading does not work again")
    return calls >= n


def try_calls(name, calls, most, choose, attempt):
    """Calls `attempt` with at most `most` of the numbers of calls; returns how many calls failed.

    `attempt` returns whether the call of that number was made.
    """
    num_failed = 0
    for n in sorted(choose.sample(range(1, calls + 1), min(most, calls))):
        try:
            num_failed += attempt(n)
        except Failure as failure:
            sys.exit("FAILED: %s, call %d of %d: %s" % (name, n, calls, failure))
    # Later calls may be missing, as their number can change; the first may not.
    if num_failed == 0 and calls <= 1:
        sys.exit("FAILED: %s: there is no call to fail" % name)
    print("%s: %d of %d calls" % (name, num_failed, calls), file=sys.stderr)
    return num_failed


def try_writes(name, disk, saver, most, choose):
    """Lets calls fail while a saver saves; returns how many failed."""
    kinds = [
        ("full disk", WRITES, errno.ENOSPC, True),
        ("input/output error", WRITES, errno.EIO, False),
        ("lost server", WRITES, errno.EIO, True),
        ("read-only", WRITES, errno.EROFS, True),
        ("not permitted", WRITES, errno.EACCES, True),
    ]
    if saver.replaces:
        kinds.append(("lost writes", LOST_WRITES, errno.EIO, True))
    saver.save(OLD)
    saver.save(LATER)
    failures = 0
    for text, kind, error, all_follow in kinds:
        # Of the others, synchronizing may not be reached without an error.
        only_first = error in (errno.EROFS, errno.EACCES) or kind == LOST_WRITES
        calls = 1 if only_first else disk.run(lambda: saver.save(NEW), kind, 0, error, True)[1]
        attempt = functools.partial(
            try_write, disk, saver, kind, error=error, all_follow=all_follow
        )
        failures += try_calls("%s, %s" % (name, text), calls, most, choose, attempt)
    return failures


def try_reads(name, saver, most, choose):
    """Lets calls fail while a saver loads; returns how many failed."""
    saver.save(OLD)
    disk = Disk(saver.read_paths())
    calls = disk.run(lambda: saver.load(OLD), READS, 0, errno.EIO, False)[1]
    attempt = functools.partial(try_read, disk, saver)
    return try_calls(name + ", reading", calls, most, choose, attempt)


def try_saver(name, make, most, seed):
    """Lets calls of a saver fail, at most `most` of each kind; returns how many failed."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(os.path.realpath(parent), "saved")
        os.mkdir(folder)
        saver = make(folder)
        failures = try_writes(name, Disk(folder), saver, most, choose)
        return failures + try_reads(name, saver, most, choose)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=1000)
    make_savers = makers()
    names = sorted(make_savers)
    parser.add_argument("--savers", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    SHIM.stop_failing_disk.restype = ctypes.c_long
    failures = 0
    for name in arguments.savers:
        failures += try_saver(name, make_savers[name], arguments.most, arguments.seed)
    print("%d %d" % (len(arguments.savers), failures))


if __name__ == "__main__":
    main()
