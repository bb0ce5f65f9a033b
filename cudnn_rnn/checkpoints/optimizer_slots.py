"""Checkpoints in which an optimizer's slots, too, are those of platform-independent cells.

An optimizer such as Adam keeps slots for every variable, of the variable's shape. Those of an
opaque buffer are in a checkpoint as `<opaque variable>/Adam` and so on, where a program with cells
has `<kernel of a cell>/Adam` and `<bias of a cell>/Adam` in their place. `saved_as_cells` makes the
two programs read each other's checkpoints:

    train = optimizer.minimize(loss)
    saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))

What a slot is for cells: with J the Jacobian of the cells' variables in the opaque buffer (zeros
and ones: it reorders, and adds up the two biases of a gate), the gradient in the buffer is J^T
times that in the cells' variables. So are means of gradients, and of their squares since a row of
J^T has one 1 at most. A bias of a cell therefore gives its slots to both of cuDNN's as they are,
where its value is split into halves.
"""

import collections

from cudnn_rnn._compat import SaveableObject, SaveSpec, tf
from cudnn_rnn._core.arguments import variable_name
from cudnn_rnn.checkpoints import restore_ops
from cudnn_rnn.checkpoints.cell_saveables import CudnnOpaqueParamsSaveable


def saved_as_cells(*optimizers):
    """Returns what a Saver holds to share checkpoints with a program that has cells instead.

    That is every variable and saveable of the graph, as in `tf.train.Saver()`, but in place of the
    opaque variables that have a `CudnnOpaqueParamsSaveable` (those of the layers do), and of their
    slots, the variables of the cells and theirs. So a model can be trained with `CudnnLSTM`, go on
    with `CudnnCompatibleLSTMCell`s under `tf.nn.dynamic_rnn`, and come back. The program with cells
    uses a plain `tf.train.Saver()`, and optimizers of the same class and name.

    What is the same on both sides is the weights, the sum of a gate's two biases, and for each
    variable the slots. Not the path that the biases take from there: the two of cuDNN have equal
    gradients, and each makes the step that a cell's single bias makes, so their sum makes twice
    that step. Where a checkpoint comes back to where it was written, all goes on as it was if the
    two biases and their slots were equal; up to rounding they are if they started equal (the layers
    start them at zero) and nothing but the RNN gives them gradients. Else each value comes back as
    half of the sum, and each slot as the mean.

    Args:
      *optimizers: `tf.train.Optimizer`s that have made their slots: call `saved_as_cells` after
        `minimize`. An optimizer that wraps others (loss scaling, `MovingAverageOptimizer`,
        `SyncReplicasOptimizer`) stands for them. Slots of other optimizers, and moving averages,
        stay as they are, under the names of the opaque variables.

    Returns:
      A list for the argument `var_list` of `tf.train.Saver`.

    Raises:
      RuntimeError: in eager execution.
      TypeError: an optimizer without `get_slot` and `get_slot_names`.
      ValueError: an optimizer that has not made its slots yet, or a slot whose name does not have
        the name of its variable in it.
    """
    if tf.executing_eagerly():
        raise RuntimeError("saved_as_cells is of graphs only, but TensorFlow executes eagerly.")
    optimizers = _unwrapped(optimizers)
    for optimizer in optimizers:
        _require_slots(optimizer)
    saved = tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
    replaced = []
    for saveable in list(saved):
        variable = _opaque_variable(saveable)
        if variable is None:
            continue
        slots = _slots(variable, optimizers)
        conversion = _SlotConversion(saveable.format_converter, variable) if slots else None
        saved += [CudnnSlotSaveable(saveable, variable, slot, conversion) for slot in slots]
        replaced += [variable] + slots
    names = {variable_name(variable) for variable in replaced}
    kept = [v for v in tf.global_variables() if variable_name(v) not in names]
    return kept + saved


def _opaque_variable(saveable):
    """Returns the variable that a saveable saves as cells; None if it saves none so."""
    if not isinstance(saveable, CudnnOpaqueParamsSaveable) or saveable.is_displaced:
        return None
    return restore_ops.as_variable(saveable._variables)


def _unwrapped(optimizers):
    """Returns a list of the optimizers and of all that they wrap, each once."""
    found, waiting = [], list(optimizers)
    for optimizer in waiting:
        if not _has_slots(optimizer):
            raise TypeError(
                "saved_as_cells takes optimizers with get_slot and get_slot_names, such as those "
                "of tf.train, but got %r." % (optimizer,)
            )
    while waiting:
        optimizer = waiting.pop(0)
        if not any(optimizer is other for other in found):
            found.append(optimizer)
            waiting += _wrapped(optimizer)
    return found


def _wrapped(optimizer):
    values = []
    for value in getattr(optimizer, "__dict__", {}).values():
        values += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in values if _has_slots(value)]


def _has_slots(value):
    methods = [getattr(value, name, None) for name in ("get_slot", "get_slot_names")]
    return not isinstance(value, type) and all(callable(method) for method in methods)


def _require_slots(optimizer):
    """Raises if an optimizer of a class that makes slots has made nothing yet."""
    base = tf.train.Optimizer
    if not isinstance(optimizer, base) or type(optimizer)._create_slots is base._create_slots:
        return  # such as GradientDescentOptimizer, and wrappers
    if not optimizer.variables():
        raise ValueError(
            "The %s %r has made no slots in this graph. Call saved_as_cells after minimize or "
            "apply_gradients, or without this optimizer if it never makes slots."
            % (type(optimizer).__name__, optimizer.get_name())
        )


def _slots(variable, optimizers):
    """Returns a list of the variable's slots, each once: a wrapper may answer for what it wraps."""
    slots = collections.OrderedDict()
    for optimizer in optimizers:
        for name in _slot_names(optimizer):
            slot = optimizer.get_slot(variable, name)
            if slot is not None:
                slots[variable_name(slot)] = slot
    return list(slots.values())


def _slot_names(optimizer):
    try:
        return optimizer.get_slot_names()
    except AttributeError:
        # MovingAverageOptimizer of TensorFlow 1 never calls the constructor of its base class.
        if not _wrapped(optimizer):
            raise
        return []


class _SlotConversion:
    """Between slots of an opaque variable and those of the cells' variables: J^T, and back."""

    def __init__(self, converter, variable):
        with tf.name_scope("slots_of_cells"):
            self._opaque = tf.zeros(variable.shape, variable.dtype.base_dtype)
            weights, biases = converter.opaque_to_tf_canonical(self._opaque)
            self._converted = list(weights) + list(biases)
            self._cells = [tf.zeros_like(part) for part in self._converted]
            self._transposed = self.from_cells(self._cells)
            # J J^T is diagonal; this is that diagonal. It is 0 for what the RNN does not have, such
            # as the input weights with skip_input.
            ones = [tf.ones_like(part) for part in self._converted]
            self._counts = self._times_jacobian(self.from_cells(ones))

    def from_cells(self, tensors):
        """Returns J^T times the cells' tensors, an opaque buffer."""
        return _gradients(self._converted, [self._opaque], tensors)[0]

    def to_cells(self, opaque):
        """Returns the cells' tensors x with J^T x = opaque: where several become one, the mean."""
        sums = self._times_jacobian(opaque)
        return [tf.math.divide_no_nan(*pair) for pair in zip(sums, self._counts)]

    def _times_jacobian(self, opaque):
        # The gradient of J^T x in x, wherever it is taken. Not the conversion itself: to that, a
        # converter may add constants, such as a forget bias.
        return _gradients([self._transposed], self._cells, [opaque])


def _gradients(results, sources, gradients):
    return [
        tf.zeros_like(source) if gradient is None else gradient
        for source, gradient in zip(sources, tf.gradients(results, sources, gradients))
    ]


class CudnnSlotSaveable(SaveableObject):
    """Saves one slot of an opaque variable as the slots of the cells' variables."""

    def __init__(self, saveable, variable, slot, conversion):
        """Makes a saveable.

        Args:
          saveable: the `CudnnOpaqueParamsSaveable` of the variable.
          variable: the opaque variable, `[params_size]`.
          slot: a variable of the same shape.
          conversion: the `_SlotConversion` of the variable.

        Raises:
          ValueError: the name of the slot does not have that of the variable in it.
        """
        own, opaque = variable_name(slot), variable_name(variable)
        before, found, after = own.rpartition(opaque + "/")
        if not found or (before and not before.endswith("/")):
            raise ValueError(
                "The slot %s of the variable %s cannot be saved as slots of cells: its name would "
                "have to be that of the variable, with the name of the slot after it."
                % (own, opaque)
            )
        self._conversion = conversion
        self._slot = slot
        tensors = conversion.to_cells(tf.convert_to_tensor(slot))
        keys = [before + spec.name + "/" + after for spec in saveable.specs]
        specs = [SaveSpec(tensor, "", key) for tensor, key in zip(tensors, keys)]
        super().__init__(
            tf.identity(slot), specs, restore_ops.unique_name(saveable.name + "/" + after)
        )
        restore_ops.saveables_of_graph().append(self)

    def restore(self, restored_tensors, restored_shapes):
        """Returns an op that gives the slot the values read from a checkpoint.

        Args:
          restored_tensors: list of tensors, one for each of `specs`.
          restored_shapes: ignored.

        Raises:
          InvalidArgumentError: when run, if a tensor has another shape; it names the key.
        """
        del restored_shapes
        keys = [spec.name for spec in self.specs]
        shapes = [spec.tensor.shape for spec in self.specs]
        tensors = restore_ops.in_exact_shapes(restored_tensors, keys, shapes)
        value = self._conversion.from_cells(tensors)
        return restore_ops.assign(self._slot, value, restore_ops.SUMS_SCOPE)
