"""The types in annotations of the public functions.

TensorFlow has no type information, so a type checker sees `Any` for each of its classes. The names
say to readers and editors what a function takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, Union

import numpy as np

from cudnn_rnn._compat import tf

# What `tf.convert_to_tensor` takes: a tensor, a variable, an array, a number, or nested lists of
# them. No type describes all of that.
TensorLike = Any

# A tensor, a list or dict of them, and so on, as `tf.nest` takes; or the shapes of such.
Nested = Any

# A tensor in place of an int or a bool is a scalar.
SizeLike = Union[int, np.integer, tf.Tensor]
BoolLike = Union[bool, tf.Tensor]
DTypeLike = Union[tf.DType, np.dtype, type, str]
ShapeLike = Union[tf.TensorShape, Sequence[Optional[int]]]
ScopeLike = Union[str, tf.VariableScope]

# A function of (shape, dtype=), such as the result of `tf.zeros_initializer()`.
Initializer = Callable[..., tf.Tensor]

if TYPE_CHECKING:
    from typing import Protocol

    class LayerCall(Protocol):
        """A call of a layer: the arguments of its method `call`, and a variable scope."""

        def __call__(
            self,
            inputs: TensorLike,
            initial_state: Optional[Tuple[TensorLike, ...]] = None,
            sequence_lengths: Optional[TensorLike] = None,
            time_major: bool = True,
            training: Optional[BoolLike] = True,
            scope: Optional[ScopeLike] = None,
        ) -> Tuple[tf.Tensor, Tuple[tf.Tensor, ...]]: ...
