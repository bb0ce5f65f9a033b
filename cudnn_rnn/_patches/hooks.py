"""Wraps functions of TensorFlow, and removes the wrappers."""

import functools
import types
import warnings
from typing import Any, Callable, NamedTuple

from cudnn_rnn._compat import tf
from cudnn_rnn.checkpoints.restore_ops import SaverRefusal

# The attribute of a wrapped function that holds its hook.
_HOOK = "cudnn_rnn_hook"


class Patch(NamedTuple):
    """One function of TensorFlow that this package wraps."""

    owner: Any  # the class or module that has the function as an attribute
    name: str  # name of the attribute
    wrapper: Callable[..., Any]  # takes the original function and the arguments of a call
    purpose: str  # a description for users

    def __str__(self):
        return "%s.%s: %s" % (self.owner.__name__, self.name, self.purpose)

    def install(self):
        """Wraps the function; repeated calls do not wrap it again.

        If the package is imported again, the new wrapper replaces the old one, even if another
        library has wrapped the function in the meantime.
        """
        original = getattr(self.owner, self.name)
        hook = getattr(original, _HOOK, None)
        if hook is None:
            hook = types.SimpleNamespace(original=original, wrapper=None)
            setattr(self.owner, self.name, _wrapped(hook))
        hook.wrapper = self.wrapper

    def uninstall(self):
        """Restores TensorFlow's function.

        If another library has wrapped the function in the meantime, that wrapper stays, and this
        package's wrapper only calls the original.
        """
        current = getattr(self.owner, self.name)
        hook = getattr(current, _HOOK, None)
        if hook is None:
            return
        hook.wrapper = None
        if current is hook.installed:
            setattr(self.owner, self.name, hook.original)


def _wrapped(hook):
    @functools.wraps(hook.original)
    def installed(*arguments, **named):
        if hook.wrapper is None:
            return hook.original(*arguments, **named)
        return hook.wrapper(hook.original, *arguments, **named)

    setattr(installed, _HOOK, hook)
    hook.installed = installed
    return installed


def guarded(step, *arguments, default=None):
    """Runs a step of a wrapper so that a defect in the step does not break the user's call.

    Args:
      step: function of this package.
      *arguments: arguments of the step.
      default: the result, after a warning, if the step fails unexpectedly.

    Returns:
      The result of the step.

    Raises:
      SaverRefusal, tf.errors.OpError: raised by the step on purpose.
    """
    try:
        return step(*arguments)
    except (SaverRefusal, tf.errors.OpError):
        raise
    except Exception as error:
        warnings.warn(
            "cudnn_rnn skipped its internal step %s, which failed with %s: %s. TensorFlow "
            "continues without this step. Please report this."
            % (step.__name__.strip("_"), type(error).__name__, error),
            RuntimeWarning,
            stacklevel=4,
        )
        return default
