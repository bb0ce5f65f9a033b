"""`read`, `write` and `convert` files of any format."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from cudnn_rnn.exchange import (
    checkpoint_format,
    frozen_graphs,
    keras_format,
    npz_format,
    onnx_format,
    torch_format,
)
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    check_scopes,
    contradiction,
    name_of,
    notes_on_folder,
    require_file_or_nothing,
    sentence,
    target_or_trial,
)
from cudnn_rnn.exchange.meta_graphs import SAVED_MODEL
from cudnn_rnn.model.spec import DIRECTIONS, GATES, checked_choice, checked_size
from cudnn_rnn.model.weights import SIMPLE_MODES, UNKNOWN_ACTIVATION, RnnWeights

# A file is of the first format that has its suffix, else of the first that recognizes it.
_FORMATS = {
    module.FORMAT.target: module.FORMAT
    for module in (keras_format, torch_format, onnx_format, npz_format, frozen_graphs)
}
_WRITERS = {target: known.write for target, known in _FORMATS.items() if known.write is not None}
_END_OF_TABLES = bytes.fromhex("57fb808b247547db")
TARGETS = tuple(checkpoint_format.TARGETS) + tuple(_WRITERS)


class Conversion(NamedTuple):
    """What `convert` did, or would do.

    Attributes:
      source: the `Contents` of the source, with the RNNs that were converted.
      keys: list of str, the keys of a new checkpoint; empty for other formats.
      notes: list of str, what a user should know, such as what was left out.
    """

    source: Contents
    keys: List[str]
    notes: List[str]


def read(
    path: Union[str, os.PathLike],
    rnn_mode: Optional[str] = None,
    num_layers: Optional[int] = None,
    num_units: Optional[int] = None,
    direction: Optional[str] = None,
    num_proj: Optional[int] = None,
    forget_bias: Optional[float] = None,
) -> Contents:
    """Reads the RNNs in a file; recognizes its format.

    Args:
      path: a checkpoint (prefix, folder, or one of its files; also a SavedModel), a state_dict of
        PyTorch (`.pt`, `.safetensors`), a Keras model (`.keras`, `.h5`), an ONNX model, a NumPy
        archive (`.npz`), or a frozen graph (`.pb`, `.pbtxt`).
      rnn_mode, num_layers, num_units, direction, num_proj: the model, if the file does not tell:
        `rnn_mode` chooses between "rnn_tanh" and "rnn_relu"; without it and if nothing tells, an
        RNN has the `rnn_mode` "rnn_tanh or rnn_relu". An opaque vector without other keys needs at
        least `rnn_mode` and `num_units`. For Keras's weights alone, "lstm" or "gru" states that
        such layers have the activations tanh and sigmoid.
      forget_bias: what plain LSTM cells of TensorFlow 1 (`BasicLSTMCell`, `LSTMCell` and so on) add
        in every step, if no graph beside the checkpoint tells; 1.0 by default in those classes.

    Raises:
      ExchangeError: the file is missing, damaged or of no known format; or several RNNs are
        possible, or none that agrees with the arguments; or the file tells another activation.
      TypeError, ValueError: no RNN has such a mode, size or direction.
    """
    if num_layers is not None:
        num_layers = checked_size("num_layers", num_layers)
    if num_units is not None:
        num_units = checked_size("num_units", num_units)
    if num_proj:
        num_proj = checked_size("num_proj", num_proj)
    if forget_bias is not None:
        forget_bias = _checked_forget_bias(forget_bias)
    facts = Facts(rnn_mode, num_layers, num_units, direction, num_proj, forget_bias)
    if rnn_mode is not None:
        checked_choice("rnn_mode", rnn_mode, tuple(GATES))
    if direction is not None:
        checked_choice("direction", direction, DIRECTIONS)
    path = os.fspath(path)
    contents = _read(path, facts)
    if contents.rnns and not any(_agrees(rnn, facts) for rnn in contents.rnns):
        raise ExchangeError(
            "No RNN in %s has %s. Found: %s."
            % (
                path,
                ", ".join(
                    "%s %r" % item for item in facts._asdict().items() if item[1] is not None
                ),
                ", ".join(map(repr, contents.rnns)),
            )
        )
    if forget_bias is not None and not contents.plain:
        raise ExchangeError(
            "forget_bias (--forget-bias) is %g, but %s has no LSTM cells of TensorFlow 1 that can "
            "be read, such as those of BasicLSTMCell. Leave the option out." % (forget_bias, path)
        )
    for rnn in contents.rnns:
        if {rnn.rnn_mode, rnn_mode} == set(SIMPLE_MODES):
            raise contradiction(name_of(rnn.scope), rnn.rnn_mode, rnn_mode, path)
    return contents._replace(notes=contents.notes + _unknown_activations(contents.rnns))


def _checked_forget_bias(forget_bias):
    """Returns the forget bias as a float; raises if it is no finite number."""
    if isinstance(forget_bias, bool) or not isinstance(forget_bias, numbers.Real):
        raise TypeError(
            "forget_bias must be a number, but is %r of type %s."
            % (forget_bias, type(forget_bias).__name__)
        )
    if not math.isfinite(forget_bias):
        raise ValueError("forget_bias must be finite, but is %r." % (forget_bias,))
    return float(forget_bias)


def _read(path, facts):
    """Returns the contents; whatever fails in a reader becomes an `ExchangeError`."""
    title = "a file of a known format"
    try:
        file_format = _format_of(path)
        title = "a checkpoint" if file_format is None else file_format.title
        contents = file_format.read(path, facts) if file_format else _read_checkpoint(path, facts)
        check_scopes(contents.rnns)
        return contents
    except ExchangeError as error:
        if path in str(error) or isinstance(error.__cause__, ImportError):
            raise
        raise ExchangeError("%s: %s" % (path, error)) from error
    except ImportError:  # of TensorFlow, which only checkpoints need
        raise
    except MemoryError as error:
        raise ExchangeError(
            "%s cannot be read as %s: it needs more memory than there is." % (path, title)
        ) from error
    except Exception as error:  # the libraries that read formats raise errors of any class
        reason = str(error).strip().rstrip(".") or "no reason is given"
        raise ExchangeError(
            "%s cannot be read as %s: %s (%s). It may be damaged: get it from its source again."
            % (path, title, reason, type(error).__name__)
        ) from error


def _agrees(rnn, facts):
    found = dict(rnn.layout._asdict(), rnn_mode=rnn.rnn_mode, forget_bias=facts.forget_bias)
    return all(fact in (None, found[name]) for name, fact in facts._asdict().items())


def _unknown_activations(rnns):
    """Returns a note on every RNN whose activation is unknown."""
    return [
        "%s may be %s: nothing tells the activation. Formats that contain it need rnn_mode= "
        "(--rnn-mode)." % (sentence(name_of(rnn.scope)), UNKNOWN_ACTIVATION)
        for rnn in rnns
        if rnn.rnn_mode == UNKNOWN_ACTIVATION
    ]


def _format_of(path):
    """Returns the `Format` of a file; None for checkpoints and if there is no file."""
    is_part = path.endswith((".index", ".meta", *SAVED_MODEL))
    if not os.path.isfile(path) or is_part:
        return None
    named = _format_of_suffix(path)
    return named or next((known for known in _FORMATS.values() if known.recognizes(path)), None)


def _format_of_suffix(path):
    """Returns the `Format` whose suffix a path has, or None; the file need not exist."""
    return next((known for known in _FORMATS.values() if path.endswith(known.suffixes)), None)


def _is_table(path):
    """Returns whether a file ends as checkpoints of TensorFlow 0.x do, tables of strings."""
    length = len(_END_OF_TABLES)
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - length))
        return file.read(length) == _END_OF_TABLES


def _described(known):
    return "%s (%s)" % (known.title, ", ".join(known.suffixes))


def _read_checkpoint(path, facts):
    """Reads a checkpoint or a SavedModel."""
    if os.path.basename(path) in SAVED_MODEL:
        path = os.path.dirname(os.path.abspath(path))
    prefix = checkpoint_format.prefix_of(path)
    if prefix is not None:
        if not checkpoint_format.exists(prefix) and not _is_table(prefix):
            raise ExchangeError(
                "%s is of no known format, or truncated. Known are checkpoints of TensorFlow, %s."
                % (path, ", ".join(_described(known) for known in _FORMATS.values()))
            )
        return _or_constants(checkpoint_format.read(prefix, facts), path, facts)
    if os.path.isdir(path):
        contents = frozen_graphs.read_saved_model(path, facts)
        if contents is not None:
            return contents
        raise ExchangeError(
            "The folder %s has neither a checkpoint (a file named checkpoint) nor a SavedModel "
            "(saved_model.pb). Give one of its files, or the prefix of a checkpoint in it." % path
        )
    if os.path.lexists(path):
        raise ExchangeError(
            "%s is a device, a FIFO, a socket or a link to nothing; expected a file, a folder or "
            "the prefix of a checkpoint." % path
        )
    if _format_of_suffix(path) is not None:  # the user means a file, not the prefix of a checkpoint
        raise ExchangeError(
            "%s does not exist. Check the name and the folder: paths are relative to %s."
            % (path, os.getcwd())
        )
    raise ExchangeError(
        "%s does not exist, and neither does %s.index. Give the prefix of a checkpoint (model.ckpt "
        "for model.ckpt.index), its folder, or a file." % (path, path)
    )


def _or_constants(contents, path, facts):
    """Returns the contents; if they have no RNN, those of the constants of a SavedModel."""
    if contents.rnns or contents.problems:
        return contents
    try:
        frozen = frozen_graphs.read_saved_model(path, facts)
    except ExchangeError:  # the RNNs of the graph have variables
        return contents
    if frozen is None or not frozen.rnns:
        return contents
    return frozen._replace(others=sorted({*frozen.others, *contents.others}))


def write(
    path: Union[str, os.PathLike],
    rnns: Union[Contents, Sequence[RnnWeights]],
    to: str,
    force: bool = False,
    variable: Optional[str] = None,
) -> List[str]:
    """Writes RNNs to a file; returns notes on what a user should know.

    The file is complete before it gets its name; if writing fails, an old file stays as it was.

    Args:
      path: the file, or the prefix of a checkpoint. The suffix selects between `.pt` and
        `.safetensors`, and between `.keras`, `.h5` and `.weights.h5`.
      rnns: list of `RnnWeights`; or the `Contents` of a file: a checkpoint gets their slots too,
        and the other variables if the file is a checkpoint.
      to: "cells", "1.1", "1.3", "1.4", "1.15", "keras", "torch", "onnx" or "npz".
      force: whether to overwrite an existing file.
      variable: the key of the opaque variable in a checkpoint; see `checkpoint_format.plan`.

    Raises:
      ExchangeError: the file exists, the format cannot hold an RNN, or a library is missing.
    """
    checked_choice("to", to, TARGETS)
    path = os.fspath(path)
    _check_suffix(path, to)
    _check_variable(variable, to)
    contents = rnns if isinstance(rnns, Contents) else Contents("", "", list(rnns))
    if not contents.rnns:
        raise ExchangeError("There is no RNN to write to %s." % path)
    refuse_to_overwrite(path, force)
    if to in checkpoint_format.TARGETS:
        return checkpoint_format.write(path, contents, to, variable)
    _WRITERS[to](path, contents.rnns)
    return _notes_on(contents, to)


def _check_suffix(path: str, to: str) -> None:
    """Raises `ExchangeError` if the name of a file to write is one of another format."""
    for target, other in _FORMATS.items():
        if target != to and path.endswith(other.suffixes):
            instead = ", or write to=%r (--to %s)" % (target, target) if target in _WRITERS else ""
            raise ExchangeError(
                "%s has the name of %s. Choose another name for to=%r (--to %s)%s."
                % (path, other.title, to, to, instead)
            )


def _check_variable(variable: Optional[str], to: str) -> None:
    """Raises `ExchangeError` if a target without opaque variables gets the key of one."""
    if variable is not None and (to == "cells" or to not in checkpoint_format.TARGETS):
        raise ExchangeError(
            "variable=%r (--variable) is the key of the opaque variable, which to=%r (--to %s) "
            "does not write. Leave it out." % (variable, to, to)
        )


def refuse_to_overwrite(path: str, force: bool) -> None:
    """Raises `ExchangeError` if there is a file or checkpoint at `path`, unless `force`.

    Also raises, even with `force`, if there is something at `path` that is no file, or no name.
    """
    for place in (path, path + ".index"):
        require_file_or_nothing(place)
    if not os.path.basename(path):
        raise ExchangeError(
            "%r has no name of a file; expected the path of a file, or the prefix of a checkpoint."
            % path
        )
    if not force and (os.path.exists(path) or checkpoint_format.exists(path)):
        raise ExchangeError(
            "%s exists. Choose another name, or overwrite it with force=True (--force)." % path
        )


def _notes_on(contents, to):
    """Returns notes on a file of a format other than a checkpoint."""
    return _left_out(contents) + [
        "%s is of float64, which ONNX has, but ONNX Runtime (1.32) does not run. For it, convert "
        "a model of float32." % sentence(name_of(rnn.scope))
        for rnn in contents.rnns
        if to == "onnx" and rnn.dtype == np.float64
    ]


def _left_out(contents):
    """Returns notes on what formats other than checkpoints do not hold."""
    slots = {
        "%s of %s" % (after, name_of(scope))
        for scope, of_rnn in contents.slots.items()
        for _, after in of_rnn
    }
    notes = []
    if slots:
        notes.append("Left out: the slots %s." % ", ".join(sorted(slots)))
    if contents.optimizer:
        notes.append("Left out with the slots: %s." % ", ".join(sorted(contents.optimizer)))
    if contents.others:
        notes.append("Left out, as no part of an RNN: %s." % ", ".join(contents.others))
    return notes


def convert(
    source: Union[str, os.PathLike],
    target: Union[str, os.PathLike],
    to: str,
    scope: Optional[str] = None,
    target_scope: Optional[str] = None,
    variable: Optional[str] = None,
    force: bool = False,
    dry_run: bool = False,
    allow_nan: bool = False,
    **facts: Any,
) -> Conversion:
    """Converts a file to another format; the same as `python -m cudnn_rnn convert`.

    Args:
      source: as in `read`.
      target, to, force, variable: as in `write`.
      scope: converts only the RNN of this scope. A new checkpoint keeps plain LSTM cells of other
        scopes as they are.
      target_scope: the scope of the RNN in the target, if there is one; by default that in the
        source.
      dry_run: whether to write nothing.
      allow_nan: whether to convert weights that are NaN or infinite.
      **facts: `rnn_mode`, `num_layers`, `num_units`, `direction`, `num_proj`, `forget_bias` of
        `read`.

    Raises:
      ExchangeError: as `read` and `write`; the file has no RNN, none with this scope, or one with
        weights that are not finite.
    """
    checked_choice("to", to, TARGETS)
    target = os.fspath(target)
    _check_suffix(target, to)
    _check_variable(variable, to)
    contents = read(source, **facts)
    if not contents.rnns:
        hint = " ".join(contents.notes)
        raise ExchangeError(
            "%s, a %s, has no RNN. %sIts keys: %s."
            % (
                source,
                contents.format,
                hint and hint + " ",
                ", ".join(contents.others[:20]) or "none",
            )
        )
    if contents.problems and scope is None:
        raise ExchangeError(
            "%s has RNNs that cannot be read. Pick another one of it (--scope).\n%s"
            % (source, "\n".join(contents.problems))
        )
    notes = contents.notes + contents.problems
    if scope is not None:
        contents, dropped = _only(contents, scope)
        left_out = [other for other in dropped if other not in contents.plain]
        if left_out:
            notes.append("Left out: the RNNs %s." % ", ".join(map(repr, left_out)))
    if target_scope is not None:
        contents = _renamed(contents, target_scope)
    if not allow_nan:
        _require_finite(contents.rnns)
    refuse_to_overwrite(target, force)
    keys: List[str] = []
    notes += notes_on_folder(target, dry_run)
    if to in checkpoint_format.TARGETS:
        planned = checkpoint_format.plan(contents, to, variable)
        keys, notes = sorted(planned.arrays), notes + planned.notes
        if not dry_run:
            notes += checkpoint_format.save(target, planned.arrays)
    else:
        notes += _notes_on(contents, to)
        with target_or_trial(target, dry_run) as path:
            _WRITERS[to](path, contents.rnns)
    return Conversion(contents, keys, notes)


def _only(contents, scope):
    """Returns the contents with only one RNN, and the scopes of the others."""
    scopes = [rnn.scope for rnn in contents.rnns]
    if scope not in scopes:
        raise ExchangeError(
            "There is no RNN with the scope %r in %s that can be read; expected one of %s.%s"
            % (
                scope,
                contents.path,
                ", ".join(map(repr, scopes)),
                "".join("\n" + problem for problem in contents.problems),
            )
        )
    rnns = [rnn for rnn in contents.rnns if rnn.scope == scope]
    dropped = [other for other in scopes if other != scope]
    plain = [key for other in dropped for key in contents.plain.get(other, ())]
    others = sorted({*contents.others, *plain})
    return contents._replace(rnns=rnns, others=others), dropped


def _renamed(contents, scope):
    if len(contents.rnns) != 1:
        raise ExchangeError(
            "target_scope=%r (--target-scope) needs one RNN, but there are %d. Pick one (--scope)."
            % (scope, len(contents.rnns))
        )
    (rnn,) = contents.rnns
    slots = {scope: contents.slots[rnn.scope]} if rnn.scope in contents.slots else {}
    # The key of the opaque variable follows the scope.
    return contents._replace(rnns=[rnn.with_scope(scope)], variables={}, slots=slots)


def _require_finite(rnns):
    wrong = [
        "%s: %s" % (sentence(name_of(rnn.scope)), place)
        for rnn in rnns
        for place in rnn.not_finite()
    ]
    if wrong:
        raise ExchangeError(
            "Some weights are NaN or infinite (number of elements):\n  %s\nIf that is intended, "
            "use allow_nan=True (--allow-nan)." % "\n  ".join(wrong[:20])
        )
