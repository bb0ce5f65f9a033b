"""`Layer`, the base class of the layers, for every TensorFlow version.

In TensorFlow 1, `Layer` is `tf.layers.Layer`. TensorFlow 2 has that class only with Keras 2, so
there this module defines a small class with the same names, scopes and attributes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, List, Optional

from cudnn_rnn._compat import IS_TENSORFLOW_1, tf, without_autograph
from cudnn_rnn.graph.arguments import variable_name
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.types import DTypeLike, ScopeLike, ShapeLike, TensorLike
from cudnn_rnn.tf1_layers import keras_guard
from cudnn_rnn.tf1_layers.layer_record import LayerRecord, snake_case


class _FallbackLayer(LayerRecord):
    """A layer that creates its variables once, in `build`, and computes its outputs in `call`.

    The variables are in a variable scope named after the layer, inside the scope in which `build`
    or the layer is first called. The outer scope's prefix, `reuse` and custom getters apply.
    """

    def __init__(
        self,
        trainable: bool = True,
        name: Optional[ScopeLike] = None,
        dtype: Optional[DTypeLike] = None,
        _reuse: Any = None,
    ) -> None:
        class_name = snake_case(type(self).__name__)
        super().__init__(class_name, dtype)  # tf.Module does not accept names with a slash.
        self.trainable = trainable
        self._reuse = _reuse
        self.built = False
        self._name = name if isinstance(name, str) else class_name
        # The scope's name before it is made unique.
        self._base_name = getattr(name, "name", name) or class_name
        self._scope: Any = None
        self._trainable_weights: List[tf.Variable] = []
        self._non_trainable_weights: List[tf.Variable] = []

    def __setattr__(self, name, value):
        # Bypasses tf.Module, which would add attributes to object-based checkpoints.
        object.__setattr__(self, name, value)

    def _copy_trackable_to_cpu(self, object_map):
        """Copies nothing for asynchronous checkpoints: the layer's parts have the values."""

    def build(self, input_shape: ShapeLike) -> None:
        """Creates the variables for inputs of this static shape."""
        self.built = True

    def call(self, inputs: TensorLike, *arguments: Any, **named: Any) -> Any:
        """Computes the outputs."""
        raise NotImplementedError("%s does not define call" % type(self).__name__)

    @without_autograph
    def __call__(self, inputs: TensorLike, *arguments: Any, **named: Any) -> Any:
        """Calls `call`, after `build` if this is the first call.

        Args:
          inputs: the tensor whose static shape is passed to `build`.
          *arguments: further arguments of `call`.
          **named: further arguments of `call`; and `scope`, a variable scope or its name, by
            default the layer's own name. `scope` is ignored once the layer is built.

        Returns:
          The result of `call`.

        Raises:
          TypeError: the inputs cannot be converted to a tensor, or the call is part of a Keras
            model; see `tf1_layers/keras_guard.py`.
        """
        keras_guard.refuse_inside(self, (inputs, arguments, named))
        refuse("inputs", inputs)
        self._set_scope(named.pop("scope", None))
        with self._enter_scope():
            if not self.built:
                tensor = tf.convert_to_tensor(inputs)
                self._dtype = self._dtype or tensor.dtype.base_dtype.name
                self.build(tensor.shape)
            outputs = self.call(inputs, *arguments, **named)
            self._remember_call(inputs, outputs)
            return outputs

    def _set_scope(self, scope=None):
        if self._scope is None:
            if self._reuse and scope is None:
                scope = self._base_name  # exactly; a default name is made unique
            with tf.variable_scope(scope, default_name=self._base_name) as entered:
                self._scope = entered

    @contextlib.contextmanager
    def _enter_scope(self):
        reuse = True if self.built else self._reuse
        with tf.variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as entered:
            with tf.name_scope(entered.original_name_scope):
                yield

    def _scope_of_variables(self):
        self._set_scope()
        return self._enter_scope()

    def _keep_variable(self, variable, is_trainable):
        """Adds a variable, once, to the layer's lists of weights."""
        known = self._trainable_weights if is_trainable else self._non_trainable_weights
        if not any(variable is other for other in known):
            known.append(variable)

    @property
    def name(self) -> str:
        """Name of the layer."""
        return self._name

    @property
    def scope_name(self) -> str:
        """Name of the variable scope; raises `ValueError` before the layer is built."""
        if self._scope is None:
            raise ValueError("%s has no scope_name before it is built." % self.name)
        return self._scope.name

    @property
    def trainable_weights(self) -> List[tf.Variable]:
        """The variables that are trained."""
        return list(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> List[tf.Variable]:
        """The variables that are not trained."""
        rest = [] if self.trainable else self._trainable_weights
        return self._non_trainable_weights + rest

    @property
    def weights(self) -> List[tf.Variable]:
        """All variables."""
        return self.trainable_weights + self.non_trainable_weights

    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights
    variables = weights

    def _trackable_children(self, save_type="checkpoint", **named):
        """Returns the variables for a SavedModel, the tracked dependencies for a checkpoint."""
        if getattr(save_type, "value", save_type) == "savedmodel":  # an Enum in TensorFlow 2.8
            return {variable_name(variable).split("/")[-1]: variable for variable in self.weights}
        return super()._trackable_children(save_type, **named)


if IS_TENSORFLOW_1 and not TYPE_CHECKING:
    Layer = tf.layers.Layer
else:
    Layer = _FallbackLayer
    Layer.__name__ = Layer.__qualname__ = "Layer"
