"""The version of this package and the supported TensorFlow versions, defined only here.

The build runs this file before the package can be imported, so this file may use only the standard
library.
"""

import re

__version__ = "0.3.0"

# Older releases lack classes and functions that the package uses.
OLDEST_TENSORFLOW = "1.14"
# Newer releases are not refused; docs/tensorflow_versions.md lists the tested ones.
NEWEST_TENSORFLOW_TRIED = "2.21"


def tensorflow_problem(version):
    """Returns an error message for an unsupported TensorFlow version, None for any other.

    A version that is not a number, such as that of a build from source, is accepted.
    """
    found = _major_and_minor(version)
    if found is None or found >= _major_and_minor(OLDEST_TENSORFLOW):
        return None
    return (
        "cudnn_rnn works with TensorFlow %s to %s, but this environment has TensorFlow %s. Install "
        "a supported version first, for example with `pip install tensorflow==2.21.0`."
        % (OLDEST_TENSORFLOW, NEWEST_TENSORFLOW_TRIED, version)
    )


def _major_and_minor(version):
    match = re.match(r"(\d+)\.(\d+)", str(version))
    return match and tuple(int(number) for number in match.groups())
