"""Parses versions of TensorFlow releases with `tf.contrib.cudnn_rnn`; imports no TensorFlow."""

import re

LAST_MINOR = 15


def minor_of(version):
    """Returns the minor number of a release from "1.0" to "1.15", ignoring a patch number.

    Raises `TypeError` if `version` is not a string, `ValueError` if it is no such release.
    """
    if not isinstance(version, str):
        raise TypeError(
            'version must be a string like "1.15", but is %r of type %s.'
            % (version, type(version).__name__)
        )
    match = re.match(r"1\.(\d{1,2})(\.\w+|-\w+|rc\d+)*$", version)
    if not match or int(match.group(1)) > LAST_MINOR:
        raise ValueError(
            'version must be a release of TensorFlow from "1.0" to "1.%d", but is %r.'
            % (LAST_MINOR, version)
        )
    return int(match.group(1))
