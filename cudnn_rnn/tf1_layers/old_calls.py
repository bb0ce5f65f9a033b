"""Advice for programs that call a layer as the class of the same name in TensorFlow 1.0 to 1.4."""

from __future__ import annotations

import functools
import numbers
from typing import Any, Callable, TypeVar

from cudnn_rnn._compat import with_signature_of

_Constructor = TypeVar("_Constructor", bound=Callable[..., Any])

_ADVICE = """\
%s got the input size, %r%s. A layer reads it from its inputs: this call is of TensorFlow 1.3 or \
1.4, or older, whose %s is another class. If the program imports tf.contrib, say for which release \
it was written: `python -m cudnn_rnn run --tf-contrib-version 1.3 ...`, or \
cudnn_rnn.contrib.install("1.3") before its imports. If it imports cudnn_rnn, that class is \
cudnn_rnn.%s."""


def refuse_input_size(constructor: _Constructor) -> _Constructor:
    """Decorates `__init__(self, num_layers, num_units, input_mode, ...)` of a layer.

    The op-level class has `input_size` in place of `input_mode`, which is a text. The errors are
    those of a call without this decorator.
    """

    @functools.wraps(constructor)
    def checked(self, *arguments, **named):
        name = type(self).__name__
        if "input_size" in named:
            raise TypeError(_ADVICE % (name, named["input_size"], "", name, name))
        third = arguments[2] if len(arguments) > 2 else None
        if isinstance(third, numbers.Integral):
            raise ValueError(_ADVICE % (name, third, " in place of input_mode", name, name))
        constructor(self, *arguments, **named)

    return with_signature_of(constructor, checked)
