"""What is wrong with a checkpoint: errors that name the file, the keys and what was expected.

They have the types of TensorFlow's own: `NotFoundError` for a missing key, `InvalidArgumentError`
for a wrong shape or dtype, `DataLossError` for data that cannot be read.
"""

import difflib

from cudnn_rnn._compat import tf
from cudnn_rnn._core.arguments import shape_text

# What a reader of a checkpoint raises, according to TensorFlow's version.
_READ_ERRORS = (tf.errors.OpError, RuntimeError, LookupError, ValueError)

# What TensorFlow raises about the contents of a checkpoint. All others are about the machine, the
# network or the program: they are never explained, as programs recover from some of them.
_ABOUT_CONTENTS = (
    tf.errors.NotFoundError,
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    tf.errors.OutOfRangeError,
)
# What a reader raises where it can say nothing about the contents. TensorFlow 2 has no types for
# most errors of a reader, damage among them.
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

_MOST_LINES = 8  # of keys in one error; a model may have hundreds of them

# The key under which an object-based checkpoint keeps the names of its objects.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def check(path, expected, with_data=False, missing=()):
    """Raises unless the checkpoint has the expected tensors.

    A checkpoint that cannot be opened passes, for TensorFlow to fail on.

    Args:
      path: str, as `tf.train.Saver.restore` takes it.
      expected: list of `restoring.Expected`.
      with_data: whether to read the values as well, which finds those that are damaged.
      missing: list of `restoring.Expected` that the checkpoint is known to lack.
    """
    try:
        reader = tf.train.NewCheckpointReader(path)
    except _READ_ERRORS:
        return
    problems = [_missing(reader, entry, is_shown=True) for entry in missing]
    problems += _misfits(reader, expected)
    if not problems and with_data:
        problems = _damages(reader, expected)
    if problems:
        raise _error(path, problems)


def check_object_graph(path, expected):
    """Raises unless the names of objects can be read from an object-based checkpoint.

    Args:
      path: str, as `tf.train.Checkpoint.restore` takes it. One where no file is passes.
      expected: function that returns a list of `restoring.Expected`, or None to pass everything.
    """
    reader = None
    try:
        reader = tf.train.NewCheckpointReader(path)
        if reader.has_tensor(_OBJECT_GRAPH):
            reader.get_tensor(_OBJECT_GRAPH)
    except _READ_ERRORS as error:
        # TensorFlow fails likewise on what shows no damage, or can read it after all.
        is_data_lost = reader is not None and isinstance(error, tf.errors.NotFoundError)
        entries = expected() if is_data_lost or _shows_damage(error, path) else None
        if entries is not None:
            raise _unreadable(path, entries, error) from error


def is_object_based(path):
    """Whether `tf.train.Checkpoint` wrote the file."""
    try:
        return tf.train.NewCheckpointReader(path).has_tensor(_OBJECT_GRAPH)
    except _READ_ERRORS:
        return False


def explained(error, path, expected):
    """Returns what to raise in place of an `OpError`.

    Returns the error itself if it is not about the contents of a checkpoint, if no damage is found,
    and if this process cannot open the checkpoint, which may be on another machine.

    Args:
      error: the error of TensorFlow.
      path: str, as `tf.train.Saver.restore` takes it.
      expected: list of `restoring.Expected`.
    """
    if getattr(error, "is_explained", False) or not isinstance(error, _ABOUT_CONTENTS):
        return error
    try:
        reader = tf.train.NewCheckpointReader(path)
    except _READ_ERRORS as read_error:
        is_damaged = _shows_damage(read_error, path)
        return _unreadable(path, expected, error) if is_damaged else error
    try:
        problems = _misfits(reader, expected) or _damages(reader, expected)
    except tf.errors.OpError:
        return error
    return _error(path, problems, error) if problems else error


def _shows_damage(error, path):
    """Returns whether the error of opening a checkpoint shows that it is there and is damaged."""
    is_there = any(tf.io.gfile.exists(path + suffix) for suffix in (".index", ""))
    is_about_it = not isinstance(error, _NOT_ABOUT_CONTENTS + (tf.errors.NotFoundError,))
    return is_there and is_about_it


def _unreadable(path, expected, error):
    found = "unknown, as the list of keys cannot be read"
    problems = [(tf.errors.DataLossError, entry.key, found, _words(entry)) for entry in expected]
    return _error(path, problems, error)


def _error(path, problems, original=None):
    """Makes the error.

    Args:
      path: of the checkpoint.
      problems: list of (type of error, key, what was found, what was expected). The error has the
        type of the first, and without any is a `DataLossError`.
      original: TensorFlow's own error, or None.
    """
    lines = ["The checkpoint %s cannot be restored:" % path]
    for _, key, found, expected in problems[:_MOST_LINES]:
        lines.append("  %s: %s; expected %s" % (key, found, expected))
    if len(problems) > _MOST_LINES:
        lines.append("  and %d more" % (len(problems) - _MOST_LINES))
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
        words += " or another with as many elements"
    return "%s, dtype %s" % (words, expected.dtype.name)


def _missing(reader, expected, is_shown):
    """Returns the problem that a key is not there, or cannot be looked up.

    A similar key, which takes long to find, is sought only for what is shown.
    """
    found, kind = "missing", tf.errors.NotFoundError
    try:
        reader.get_tensor(expected.key)
    except tf.errors.NotFoundError:
        if is_shown:
            keys = reader.get_variable_to_shape_map()
            similar = difflib.get_close_matches(expected.key, keys, n=1)
            found += "".join(" (there is %s)" % key for key in similar)
    except _READ_ERRORS as error:
        if isinstance(error, _NOT_ABOUT_CONTENTS):
            raise
        found, kind = str(error), tf.errors.DataLossError
    return kind, expected.key, found, _words(expected)


def _misfits(reader, expected):
    """Returns the problems that the list of keys, dtypes and shapes shows."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    problems = []
    for entry in expected:
        if entry.key not in shapes:
            problems.append(_missing(reader, entry, is_shown=len(problems) < _MOST_LINES))
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


def _damages(reader, expected):
    """Returns the problems that reading the values shows."""
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
