"""What all formats share: `Contents` of a file, `Facts` that a file does not have, safe writing."""

from __future__ import annotations

import collections
import contextlib
import importlib
import os
import reprlib
import shutil
import tempfile
import unicodedata
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn._disk import failed_write, synchronize
from cudnn_rnn.model.spec import GATES, RnnConfig
from cudnn_rnn.model.weights import SIMPLE_MODES, UNKNOWN_ACTIVATION, RnnWeights

# Characters of a scope: more than any program has, and few enough for the keys of every format.
LONGEST_SCOPE = 1000


class ExchangeError(ValueError):
    """A file that cannot be read or written; the message says why and what to do."""


class Facts(NamedTuple):
    """What is known of an RNN beyond its file; None for what is not.

    Attributes:
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh".
      num_layers, num_units: int.
      direction: "unidirectional" or "bidirectional".
      num_proj: int, 0 without a projection.
      forget_bias: float, what plain LSTM cells of TensorFlow 1 add in every step.
    """

    rnn_mode: Optional[str] = None
    num_layers: Optional[int] = None
    num_units: Optional[int] = None
    direction: Optional[str] = None
    num_proj: Optional[int] = None
    forget_bias: Optional[float] = None


class ToldMode(NamedTuple):
    """A mode that a file tells.

    Attributes:
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh".
      source: str, what tells it, for messages.
    """

    rnn_mode: str
    source: str


class StoredRnn(NamedTuple):
    """The keys and sizes of an RNN in a checkpoint, known before its tensors are read.

    Attributes:
      scope: str.
      generation: one of the generations of `model/keys`.
      config: the `RnnConfig` of its buffer. The mode of a simple RNN has the right activation only
        if `generation` is `OPAQUE`; `checkpoint_read` finds the activation of the others.
      keys: list of str, in the order of the specs of the generation's saveable.
      is_plain: whether it consists of plain LSTM cells of TensorFlow 1.
      forget_biases: of plain cells what each adds to its bias, in the order of their keys.
      notes: what a user should know.
    """

    scope: str
    generation: str
    config: RnnConfig
    keys: List[str]
    is_plain: bool = False
    forget_biases: Tuple[float, ...] = ()
    notes: Tuple[str, ...] = ()


class Contents(NamedTuple):
    """What `read` finds in a file.

    Attributes:
      path: str, the file.
      format: str for people, such as "checkpoint of TensorFlow 1.3".
      rnns: list of `RnnWeights`, whose scopes differ.
      notes: list of str, what a user should know about the reading.
      others: list of str, the keys of all that belongs to no RNN.
      variables: the key of the opaque variable by the scope of its RNN (only checkpoints).
      slots: by the scope of an RNN, a dict from (text before, text after the name of a variable),
        such as ("", "Adam"), to the slot as an opaque vector.
      problems: list of str, one for each RNN that was found, but cannot be read (only checkpoints,
        frozen graphs, Keras's files and ONNX models).
      optimizer: what belongs to the slots, by its key in a checkpoint, such as "beta1_power" (not
        of checkpoints, where it is one of the others).
      plain: by the scope of an RNN that consists of plain LSTM cells of TensorFlow 1, the keys of
        their variables and slots (only checkpoints).
    """

    path: str
    format: str
    rnns: List[RnnWeights]
    notes: List[str] = []
    others: List[str] = []
    variables: Dict[str, str] = {}
    slots: Dict[str, Dict[Tuple[str, str], np.ndarray]] = {}
    problems: List[str] = []
    optimizer: Dict[str, np.ndarray] = {}
    plain: Dict[str, List[str]] = {}

    @property
    def is_checkpoint(self) -> bool:
        """Whether `path` is a checkpoint, whose other variables a new one can have, too."""
        return self.format.startswith("checkpoint")


class Format(NamedTuple):
    """A file format other than checkpoints; its module ends with one, and `conversion` lists them.

    Attributes:
      target: what `to` calls it; "" if such files are only read.
      title: what messages call a file of it, "a Keras model".
      suffixes: of the files that are certainly of this format.
      recognizes: returns whether a file is of this format, whatever its name is.
      read: returns the `Contents` of a file, given its path and `Facts`.
      write: writes a list of `RnnWeights` to a path; None if such files are only read.
    """

    target: str
    title: str
    suffixes: Tuple[str, ...]
    recognizes: Callable[[str], bool]
    read: Callable[[str, Facts], Contents]
    write: Optional[Callable[[str, Sequence[RnnWeights]], None]] = None


def library(name: str, extra: str) -> Any:
    """Imports a library of another project; the error names the extra that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ExchangeError(
            "This needs the package %s, which cannot be imported (%s). Install it: pip install "
            "'cudnn_rnn[%s]', or pip install %s." % (package, error, extra, package)
        ) from error


def mode_of(num_gates: float, facts: Facts, name: str, told: Optional[ToldMode] = None) -> str:
    """Returns the mode of an RNN with this number of gates.

    The weights of a simple RNN are the same with ReLU and tanh. What the file tells beyond them or
    `facts` decide; if neither does, the mode is `UNKNOWN_ACTIVATION`.

    Raises:
      ExchangeError: no mode has this number of gates, or `facts` contradict what the file tells.
    """
    modes = [mode for mode, gates in GATES.items() if len(gates) == num_gates]
    if not modes:
        raise ExchangeError(
            "%s has %s gates; expected 4 (LSTM), 3 (GRU) or 1 (simple RNN)." % (name, num_gates)
        )
    if len(modes) == 1:
        return modes[0]
    given = facts.rnn_mode if facts.rnn_mode in modes else None
    if told is None or told.rnn_mode not in modes:
        return given or UNKNOWN_ACTIVATION
    if given not in (None, told.rnn_mode):
        raise contradiction(name, told.rnn_mode, given, told.source)
    return told.rnn_mode


def contradiction(name: str, told: str, given: Optional[str], source: str) -> ExchangeError:
    """Returns the error for an option that contradicts what the file tells of an RNN."""
    return ExchangeError(
        "%s is %s according to %s, but rnn_mode (--rnn-mode) is %s. Leave the option out. If the "
        "file is wrong, read it so and correct it with RnnWeights.with_rnn_mode."
        % (sentence(name), told, source, given)
    )


def require_activation(rnn: RnnWeights, target: str) -> None:
    """Raises `ExchangeError` if the activation is unknown, which the format `target` contains."""
    if rnn.rnn_mode == UNKNOWN_ACTIVATION:
        raise ExchangeError(
            "%s may be %s: nothing in its file tells the activation, which %s contains. Give "
            "rnn_mode= (--rnn-mode %s or --rnn-mode %s), in a program RnnWeights.with_rnn_mode."
            % (sentence(name_of(rnn.scope)), UNKNOWN_ACTIVATION, target, *SIMPLE_MODES)
        )


def zero_bias(matrix: np.ndarray) -> np.ndarray:
    """Returns a bias of 0 for the rows of a matrix.

    Raises:
      ExchangeError: the matrix has no elements. A file of a few bytes can have one of 2^60 rows.
    """
    if not matrix.size:
        raise ExchangeError("A matrix of weights has shape %s, no element." % list(matrix.shape))
    return np.zeros(len(matrix), matrix.dtype)


def adam_powers(step: float, betas: Sequence[Any]) -> Optional[Dict[str, np.ndarray]]:
    """Returns what `tf.train.AdamOptimizer` keeps beside its slots after `step` steps, by key.

    The result is None if `step` is no number of steps, or `betas` are not two decay rates.
    """
    is_step = 0 <= step < 2**63 and step == int(step)
    are_rates = all(isinstance(beta, float) and 0 <= beta < 1 for beta in betas)
    if len(betas) != 2 or not is_step or not are_rates:
        return None
    return {
        "beta%d_power" % number: np.array(beta ** (int(step) + 1), np.float32)
        for number, beta in enumerate(betas, 1)
    }


def check_slots(slots: Dict[Tuple[str, str], np.ndarray], opaque: np.ndarray, scope: str) -> None:
    """Raises `ExchangeError` if a slot differs in dtype or shape from the RNN's `opaque` vector."""
    for (before, after), slot in slots.items():
        if np.shape(slot) != opaque.shape or np.asarray(slot).dtype != opaque.dtype:
            raise ExchangeError(
                "The slot %s of %s must be an opaque vector like its weights, %s of shape %s, but "
                "is %s of shape %s. RnnWeights.to_opaque() returns such a vector."
                % (
                    before + after,
                    name_of(scope),
                    opaque.dtype.name,
                    list(opaque.shape),
                    np.asarray(slot).dtype.name,
                    list(np.shape(slot)),
                )
            )


def name_of(scope: str) -> str:
    """Returns a name of an RNN for messages."""
    return "the RNN %r" % scope if scope else "the RNN"


def sentence(text: str) -> str:
    """Returns the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def prefixes(rnns: Sequence[RnnWeights], separator: str) -> List[str]:
    """Returns a prefix for the keys of every RNN: none if there is only one, else its scope.

    Raises:
      ExchangeError: two RNNs would have the same prefix.
    """
    check_scopes(rnns)
    if len(rnns) == 1:
        return [""]
    scopes = [rnn.scope.replace("/", separator) for rnn in rnns]
    counts = collections.Counter(scopes)
    for scope in scopes:
        if counts[scope] > 1:
            raise ExchangeError(
                "%d RNNs have the scope %r, so their keys would be the same. Give each its own "
                "with RnnWeights.with_scope, or write one at a time (--scope)."
                % (counts[scope], scope)
            )
    return [scope + separator if scope else "" for scope in scopes]


def check_scopes(rnns: Sequence[RnnWeights]) -> None:
    """Raises `ExchangeError` if a scope cannot be part of a key: too long, or no text of a line."""
    for rnn in rnns:
        scope = rnn.scope
        wrong = [char for char in scope if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
        if wrong or len(scope) > LONGEST_SCOPE:
            raise ExchangeError(
                "The scope %s of an RNN has %s; expected at most %d characters without line ends "
                "and control characters. The file may be damaged; otherwise rename it "
                "(RnnWeights.with_scope)."
                % (
                    reprlib.repr(scope),
                    "%r" % wrong[0] if wrong else "%d characters" % len(scope),
                    LONGEST_SCOPE,
                )
            )


def require_file_or_nothing(path: str) -> None:
    """Raises `ExchangeError` if a file written to `path` would replace more than another file."""
    if os.path.isdir(path):
        raise ExchangeError("%s is a folder; expected the name of a file." % path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ExchangeError(
            "%s is a device, a FIFO, a socket or a link to nothing, which no file replaces. Remove "
            "it, or choose another name." % path
        )


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary path in the folder of `path`, and renames that file to `path` at the end.

    If the block fails, the file at `path` stays as it was, and the temporary one is removed. The
    temporary name has the suffixes of `path`.

    Raises:
      ExchangeError: the file cannot be written, or there is something at `path` that is no file.
    """
    require_file_or_nothing(path)
    with temporary_folder_beside(path) as temporary:
        written = os.path.join(temporary, os.path.basename(path))
        yield written
        synchronize(written)
        os.replace(written, path)


@contextlib.contextmanager
def target_or_trial(path: str, dry_run: bool) -> Iterator[str]:
    """Yields `path`; in a dry run, one of this name in a temporary folder, so errors are found."""
    if not dry_run:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, os.path.basename(path))


def notes_on_folder(path: str, dry_run: bool) -> List[str]:
    """Returns a note if writing `path` will create its folder."""
    folder = os.path.dirname(path)
    is_new = folder and not os.path.exists(folder) and not dry_run
    return ["The folder %s is new." % folder] if is_new else []


@contextlib.contextmanager
def temporary_folder_beside(path: str) -> Iterator[str]:
    """Yields a new folder in the folder of `path`, and removes it at the end.

    Raises:
      ExchangeError: the block fails because the disk is full, read-only or broken.
    """
    folder = os.path.dirname(os.path.abspath(path))
    make_folder(folder)
    try:
        temporary = tempfile.mkdtemp(prefix=".cudnn_rnn_", dir=folder)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, RuntimeError) as error:  # HDF5's and PyTorch's errors may be RuntimeErrors
        raise ExchangeError(failed_write(path, error)) from error


def make_folder(folder: str) -> None:
    """Creates the folder; raises `ExchangeError` if that is not possible."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ExchangeError("The folder %s cannot be created: %s." % (folder, error)) from error
