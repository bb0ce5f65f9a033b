"""Hides the differences between TensorFlow versions, and gives access to TensorFlow's internals.

The rest of this package uses `tf` (the 1.x API, which TensorFlow 1.14, 1.15 and 2.x offer as
`tensorflow.compat.v1`) and the names below.
"""
# ruff: noqa: F401 (imports for other modules)

import contextlib
import functools
import inspect
from typing import Any, Callable, TypeVar

import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops.dataset_ops import DatasetV2 as Dataset
from tensorflow.python.eager.context import context as eager_context
from tensorflow.python.eager.context import eager_mode
from tensorflow.python.eager.wrap_function import function_from_graph_def
from tensorflow.python.framework import meta_graph as meta_graph_module
from tensorflow.python.framework import op_def_registry, tensor_util
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tensorflow.python.ops import (
    control_flow_util,
    cudnn_rnn_grad,  # registers the gradients of the forward ops
    gen_cudnn_rnn_ops,
)
from tensorflow.python.ops.resource_variable_ops import ResourceVariable, variable_accessed
from tensorflow.python.ops.variables import PartitionedVariable, Variable
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec

try:
    from tensorflow.python.checkpoint import checkpoint as object_based
    from tensorflow.python.trackable.base import Trackable
except ImportError:  # TensorFlow 1
    from tensorflow.python.training.tracking import util as object_based
    from tensorflow.python.training.tracking.base import Trackable

try:
    from tensorflow.python.eager import record as tapes
except ImportError:  # up to TensorFlow 2.12
    from tensorflow.python.eager import tape as tapes

try:
    from tensorflow.python.ops.handle_data_util import copy_handle_data
except ImportError:  # up to TensorFlow 2.3
    from tensorflow.python.ops.custom_gradient import copy_handle_data

if hasattr(op_def_registry, "get"):
    op_definition = op_def_registry.get  # returns None for an unknown name
else:  # TensorFlow 1

    def op_definition(name):
        return op_def_registry.get_registered_ops().get(name)


IS_TENSORFLOW_1 = tf.__version__.startswith("1.")

# The class that restores for `tf.train.Checkpoint`, and the class that holds the state of one
# restore.
CheckpointRestorer = object_based.TrackableSaver
CheckpointRestoreCoordinator = object_based._CheckpointRestoreCoordinator
# TensorFlow 1.14 restores each object as soon as it finds the object in the checkpoint; later
# versions find all objects first.
RESTORES_ONE_BY_ONE = tf.__version__.startswith("1.14.")
# The class that writes asynchronous checkpoints in TensorFlow 2.12 to 2.14: it copies variables and
# nothing else before its thread writes. None elsewhere: 2.9 to 2.11 copy all tensors, and from 2.15
# on each object copies itself.
if tf.__version__.startswith(("2.12.", "2.13.", "2.14.")):
    from tensorflow.python.checkpoint.async_checkpoint_helper import (
        AsyncCheckpointHelper as WriterOfCopiedVariables,
    )
else:
    WriterOfCopiedVariables = None
# Archives of Keras 2.12 to 2.14 have other groups than those of 2.15; neither reads the other's.
KERAS_READS_ARCHIVES_OF_2_15 = not tf.__version__.startswith(("2.12.", "2.13.", "2.14."))
# In a file of a Keras model, a layer may take the tensor of another layer by name.
KERAS_LOADS_NAMED_TENSORS = not tf.__version__.startswith("1.14.")


_is_in_xla = getattr(control_flow_util, "GraphOrParentsInXlaContext", lambda graph: False)


def is_compiled_by_xla():
    """Returns whether XLA compiles the function that is being built (`jit_compile=True`).

    TensorFlow 1 and early versions of TensorFlow 2 do not tell.
    """
    return not tf.executing_eagerly() and _is_in_xla(tf.get_default_graph())


def allowed_dtypes(op_type, attribute):
    """Returns a tuple of the `tf.DType`s that this TensorFlow allows for an attribute of an op."""
    (found,) = [attr for attr in op_definition(op_type).attr if attr.name == attribute]
    return tuple(tf.as_dtype(dtype) for dtype in found.allowed_values.list.type)


def has_projection():
    """Returns whether this TensorFlow's ops take `num_proj`; those of 1.14 do not."""
    return _has_num_proj("CudnnRNNV3")


def projection_of(operation):
    """Returns the attribute `num_proj` of an operation, 0 if its op has no such attribute."""
    return operation.get_attr("num_proj") if _has_num_proj(operation.type) else 0


def _has_num_proj(op_type):
    return any(attribute.name == "num_proj" for attribute in op_definition(op_type).attr)


def as_tensor(value, dtype):
    """Converts `value` to a tensor of `dtype`, so that feeding a variable has an effect.

    `session.run(outputs, {variable: array})` feeds the tensor that `session.run(variable)` fetches.
    A reference variable converts to a copy of that tensor, so feeding works. A resource variable
    converts to a new read, which a feed does not reach. If nothing orders the two reads (no control
    dependency, no enclosing function, branch or loop), this function returns the fed tensor
    instead, so that feeding works for both kinds of variable. Tapes record this as a new read.
    """
    if isinstance(value, tf.Tensor) and value.dtype == dtype and tf.executing_eagerly():
        return value
    fed = _unordered_read(value)
    if fed is None:
        return tf.convert_to_tensor(value, dtype=dtype)
    tensor = tf.convert_to_tensor(fed, dtype=dtype)
    variable_accessed(value)  # tells tapes, and whoever collects the variables of a function
    if not tapes.could_possibly_record():
        return tensor
    with tapes.stop_recording():
        tensor = tf.identity(tensor)  # a tape takes a tensor as the output of one operation only
    tapes.record_operation("ReadVariableOp", [tensor], [value.handle], lambda *gradients: gradients)
    return tensor


def _unordered_read(value):
    """Returns the tensor that is fed for a resource variable if no new read may differ, or None."""
    if not isinstance(value, ResourceVariable) or tf.executing_eagerly():
        return None
    # A variable with a `caching_device` has a copy of its first read, which a feed reaches.
    cached: Any = getattr(value, "_cached_value", None)
    read: Any = getattr(value, "_graph_element", None) if cached is None else cached
    graph = tf.get_default_graph()
    is_read_here = tf.is_tensor(read) and read.graph is graph and not graph.building_function
    is_ordered = graph._current_control_dependencies() or graph._get_control_flow_context()
    return read if is_read_here and not is_ordered else None


def is_variable(value):
    """Returns whether a value is a variable; the parts of a partitioned one are, it is not."""
    # In TensorFlow 1, the variables of Keras's mixed precision have a class of their own.
    return isinstance(value, Variable) or hasattr(value, "_should_act_as_resource_variable")


# Returns the NumPy value of a tensor, or None if it is known only at run time.
static_value = tensor_util.constant_value


def assertion_op(condition, *data, **named):
    """Returns an op that fails with `data` (strings and tensors) unless `condition` is true.

    The error shows the first three elements of each tensor. `name=` names the op.

    Unlike `tf.Assert`, this function creates only one node, and raises nothing before it runs.
    """
    return tf.raw_ops.Assert(
        condition=condition, data=[tf.convert_to_tensor(part) for part in data], **named
    )


def objects_to_restore(restorer):
    """Returns a list of (object, path) for everything reachable from the root of the restorer.

    `restorer` is a `CheckpointRestorer`. A path is a list of names from the root to the object.
    """
    objects, paths = restorer._graph_view._breadth_first_traversal()
    return [(found, [reference.name for reference in paths[found]]) for found in objects]


def native_rnn_cell_module():
    """Returns `tf.nn.rnn_cell` if it is usable, else None; may import Keras.

    With Keras 3 the module exists, but accessing its members raises `AttributeError`. TensorFlow 2
    takes the members from Keras, so a missing or broken Keras may raise any error.
    """
    try:
        tf.nn.rnn_cell.RNNCell  # noqa: B018
    except Exception:
        return None
    return tf.nn.rnn_cell


def register_gradient(op_type):
    """Registers the decorated gradient function of `op_type`, unless `op_type` already has one."""

    def register(function):
        try:
            tf.RegisterGradient(op_type)(function)
        except KeyError:  # registered already
            pass
        return function

    return register


def register_flops(op_type):
    """Registers the decorated function of (graph, node) as the FLOPs of `op_type` for profilers.

    An op type that has one already, of TensorFlow or another package, keeps that.
    """

    def register(function):
        def statistics(graph, node):
            return framework_ops.OpStats("flops", function(graph, node))

        try:
            framework_ops.RegisterStatistics(op_type, "flops")(statistics)
        except KeyError:  # registered already
            pass
        return function

    return register


def wrap_gradient(op_type, wrapper):
    """Replaces the gradient function of `op_type` with `wrapper(function)`, once per process.

    An attribute `_gradient_op_type` on each node would not do: `tf.GradientTape` ignores it, and
    `tf.saved_model.save` takes it for a custom gradient.
    """
    newer = getattr(framework_ops, "gradient_registry", None)
    entry = (newer or framework_ops._gradient_registry)._registry[op_type]
    # After a new import of the package, the entry has the wrapper of the old one.
    original = getattr(entry["type"], "__wrapped__", entry["type"])
    entry["type"] = functools.wraps(original)(wrapper(original))


@contextlib.contextmanager
def kernel_label(label, op_types):
    """Restricts nodes of `op_types` that are created in this context to kernels with this label.

    Eagerly executed ops are not affected.
    """
    with tf.get_default_graph()._kernel_label_map(dict.fromkeys(op_types, label)):
        yield


def kernel_label_of(op):
    """Returns the kernel label of the argument of a gradient function; "" if it has none."""
    # A `tf.GradientTape` passes a stand-in, which has the node's outputs but not all attributes.
    try:
        return tf.compat.as_str(op.outputs[0].op.get_attr("_kernel"))
    except (AttributeError, ValueError):  # an eagerly executed op; a node without a label
        return ""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def without_autograph(function: _Function) -> _Function:
    """Decorates a function so that AutoGraph does not convert it."""
    if IS_TENSORFLOW_1:
        # TensorFlow 1's decorator hides the names of the arguments, which Keras inspects.
        function.__dict__["__ag_compiled"] = True
        return function
    return with_signature_of(function, tf.autograph.experimental.do_not_convert(function))


def with_signature_of(function: _Function, wrapper: Any) -> _Function:
    """Returns the wrapper, which `inspect.getfullargspec` then describes as it does the function.

    It ignores the function that `functools.wraps` notes in the wrapper.
    """
    wrapper.__signature__ = inspect.signature(function)
    return wrapper
