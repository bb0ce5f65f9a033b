"""Errors about checkpoints that name the file, the keys, and the expected shapes and dtypes.

The errors have TensorFlow's types: `NotFoundError` for a missing key, `InvalidArgumentError` for a
wrong shape or dtype, `DataLossError` for data that cannot be read.
"""

import difflib

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.texts import shape_text
from cudnn_rnn.model.keys import OBJECT_GRAPH, is_of_own_cell, is_opaque

# Errors that a checkpoint reader raises, depending on the TensorFlow version.
_READ_ERRORS = (tf.errors.OpError, RuntimeError, LookupError, ValueError)

# TensorFlow's errors about the contents of a checkpoint. All other errors are about the machine,
# the network or the program. They are never explained, because programs recover from some of them.
_ABOUT_CONTENTS = (
    tf.errors.NotFoundError,
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    tf.errors.OutOfRangeError,
)
# Errors of a reader that say nothing about the contents. A list of errors that do is not possible:
# TensorFlow 2 has no types for most errors of a reader, including damage.
_NOT_ABOUT_CONTENTS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)

_MAX_LINES = 8  # maximum number of keys in one error; a model may have hundreds


def is_of_layer_or_cell(key):
    """Returns whether a key is that of a variable of this package's layers or cells."""
    return is_opaque(key) or is_of_own_cell(key)


def check(path, expected, with_data=False, missing=()):
    """Raises unless the checkpoint has the expected tensors.

    A checkpoint that cannot be opened passes; TensorFlow will report the error.

    Args:
      path: str, as `tf.train.Saver.restore` takes it.
      expected: list of `restore_ops.Expected`.
      with_data: whether to read the values as well, which detects damaged ones.
      missing: list of `restore_ops.Expected` that the checkpoint is known to lack.
    """
    try:
        reader = tf.train.NewCheckpointReader(path)
    except _READ_ERRORS:
        return
    problems = [_missing(reader, entry, is_shown=True) for entry in missing]
    if problems or _refused(reader, expected):
        problems += _mismatches(reader, expected)
    if not problems and with_data:
        problems = _damaged(reader, expected)
    if problems:
        raise _error(path, problems, advice=_advice(reader, problems))


def check_object_graph(path, expected):
    """Raises unless the names of objects can be read from an object-based checkpoint.

    A path without a file passes. `expected` is a function that returns a list of
    `restore_ops.Expected`, or None to raise nothing.
    """
    reader = None
    try:
        reader = tf.train.NewCheckpointReader(path)
        if reader.has_tensor(OBJECT_GRAPH):
            reader.get_tensor(OBJECT_GRAPH)
    except _READ_ERRORS as error:
        # Without signs of damage, TensorFlow fails as well or can read the file after all.
        is_data_lost = reader is not None and isinstance(error, tf.errors.NotFoundError)
        entries = expected() if is_data_lost or _shows_damage(error, path) else None
        if entries is not None:
            raise _unreadable(path, entries, error) from error


def is_object_based(path):
    """Returns whether `tf.train.Checkpoint` wrote the file."""
    try:
        return tf.train.NewCheckpointReader(path).has_tensor(OBJECT_GRAPH)
    except _READ_ERRORS:
        return False


def explained(error, path, expected):
    """Returns the error to raise in place of an `OpError`; arguments as in `check`.

    Returns the error itself if it is not about the contents of a checkpoint, if no problem is
    found, or if this process cannot open the checkpoint, which may be on another machine.
    """
    if getattr(error, "is_explained", False) or not isinstance(error, _ABOUT_CONTENTS):
        return error
    try:
        reader = tf.train.NewCheckpointReader(path)
    except _READ_ERRORS as read_error:
        is_damaged = _shows_damage(read_error, path)
        return _unreadable(path, expected, error) if is_damaged else error
    try:
        damaged = [] if _refused(reader, expected) else _damaged(reader, expected)
        problems = damaged or _mismatches(reader, expected)
    except tf.errors.OpError:
        return error
    return _error(path, problems, error, _advice(reader, problems)) if problems else error


def _shows_damage(error, path):
    """Returns whether an error on opening a checkpoint shows that it exists and is damaged."""
    is_there = any(tf.io.gfile.exists(path + suffix) for suffix in (".index", ""))
    is_about_it = not isinstance(error, _NOT_ABOUT_CONTENTS + (tf.errors.NotFoundError,))
    return is_there and is_about_it


def _unreadable(path, expected, error):
    found = "unknown, because the list of keys cannot be read"
    problems = [(tf.errors.DataLossError, entry.key, found, _words(entry)) for entry in expected]
    return _error(path, problems, error)


def _advice(reader, problems):
    """Returns what to write if a checkpoint has only the other form of a layer, or None."""
    missing = [key for kind, key, *_ in problems if kind is tf.errors.NotFoundError]
    found = reader.get_variable_to_shape_map()
    lacks_opaque, lacks_cells = any(map(is_opaque, missing)), any(map(is_of_own_cell, missing))
    opaque, cells = (
        [key for key in sorted(found) if test(key)] for test in (is_opaque, is_of_own_cell)
    )
    if lacks_cells and opaque and not cells and not lacks_opaque:
        return (
            "It has the opaque variable itself, %s. Restore that with "
            "tf.train.Saver([layer.kernel])." % opaque[0]
        )
    if lacks_opaque and cells and not opaque and not lacks_cells:
        return (
            "It has the variables of cells instead, such as %s. Restore these with "
            "tf.train.Saver([layer.saveable])." % cells[0]
        )
    return None


def _error(path, problems, original=None, advice=None):
    """Creates the error for a list of problems, possibly with TensorFlow's own error `original`.

    A problem is (error type, key, text on what was found, text on what was expected). `advice` is a
    line of text. The error has the type of the first problem; without problems, it is a
    `DataLossError`.
    """
    lines = ["The checkpoint %s cannot be restored:" % path]
    for _, key, found, expected in problems[:_MAX_LINES]:
        lines.append("  %s: %s; expected %s" % (key, found, expected))
    if len(problems) > _MAX_LINES:
        lines.append("  and %d more" % (len(problems) - _MAX_LINES))
    if advice is not None:
        lines.append(advice)
    if original is not None:
        lines.append("TensorFlow says: %s" % getattr(original, "message", original))
    kind = problems[0][0] if problems else tf.errors.DataLossError
    error = kind(None, None, "\n".join(lines))
    error.is_explained = True
    return error


def _words(expected):
    if expected.shape is None:
        return "dtype %s" % expected.dtype.name
    words = "shape %s" % shape_text(expected.shape)
    if expected.any_shape:
        words += " or any shape with as many elements"
    return "%s, dtype %s" % (words, expected.dtype.name)


def _missing(reader, expected, is_shown):
    """Returns the problem that a key is missing, or cannot be looked up.

    Searches for a similar key, which is slow, only if the problem will be shown.
    """
    found, kind = "missing", tf.errors.NotFoundError
    try:
        reader.get_tensor(expected.key)
    except tf.errors.NotFoundError:
        if is_shown:
            keys = reader.get_variable_to_shape_map()
            similar = difflib.get_close_matches(expected.key, keys, n=1)
            found += "".join(" (similar key: %s)" % key for key in similar)
    except _READ_ERRORS as error:
        if isinstance(error, _NOT_ABOUT_CONTENTS):
            raise
        found, kind = str(error), tf.errors.DataLossError
    return kind, expected.key, found, _words(expected)


def _refused(reader, expected):
    """Returns those of `_mismatches` with which no restore succeeds."""
    return _mismatches(
        reader,
        [entry if entry.refuses_shapes else entry._replace(shape=None) for entry in expected],
    )


def _mismatches(reader, expected):
    """Returns the problems visible from the list of keys, dtypes and shapes."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    problems: list = []
    for entry in expected:
        if entry.key not in shapes:
            problems.append(_missing(reader, entry, is_shown=len(problems) < _MAX_LINES))
            continue
        shape, dtype = tf.TensorShape(shapes[entry.key]), tf.as_dtype(dtypes[entry.key])
        fits = entry.shape is None or (
            shape.num_elements() == tf.TensorShape(entry.shape).num_elements()
            if entry.any_shape
            else shape.as_list() == entry.shape
        )
        if not fits or dtype != entry.dtype:
            found = "has shape %s, dtype %s" % (shape_text(shape), dtype.name)
            problems.append((tf.errors.InvalidArgumentError, entry.key, found, _words(entry)))
    return sorted(problems, key=lambda problem: problem[0] is not tf.errors.NotFoundError)


def _damaged(reader, expected):
    """Returns the problems found by reading the values."""
    problems = []
    for entry in expected:
        try:
            reader.get_tensor(entry.key)
        except _READ_ERRORS as error:
            if isinstance(error, _NOT_ABOUT_CONTENTS):
                raise
            found = "cannot be read (%s)" % getattr(error, "message", error)
            problems.append((tf.errors.DataLossError, entry.key, found, _words(entry)))
    return problems
