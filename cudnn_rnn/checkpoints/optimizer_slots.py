"""Checkpoints in which the optimizer's slots are also those of platform-independent cells.

An optimizer such as Adam keeps slots for every variable, with the variable's shape. For an opaque
buffer, a checkpoint has `<opaque variable>/Adam` and so on; a program with cells has
`<kernel of a cell>/Adam` and `<bias of a cell>/Adam` instead. With `saved_as_cells`, the two
programs can read each other's checkpoints:

    train = optimizer.minimize(loss)
    saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))

Conversion of slots: J is the Jacobian of the cells' variables with respect to the opaque buffer. It
consists of zeros and ones, because it reorders elements and adds up the two biases of a gate. The
gradient with respect to the buffer is J^T times the gradient with respect to the cells' variables.
The same holds for means of gradients, and for means of their squares, because a row of J^T has at
most one 1. So both of cuDNN's biases get the slots of the cell's bias unchanged, whereas each gets
half of its value.
"""

from __future__ import annotations

import collections
from typing import Any, List

from cudnn_rnn._compat import SaveableObject, SaveSpec, tf
from cudnn_rnn.checkpoints import restore_ops
from cudnn_rnn.checkpoints.cell_saveables import CudnnOpaqueParamsSaveable
from cudnn_rnn.graph import nodes
from cudnn_rnn.graph.arguments import variable_name


def saved_as_cells(*optimizers: Any) -> List[Any]:
    """Returns a `var_list` for checkpoints that are shared with a program that uses cells.

    The list has every variable and saveable of the graph, as in `tf.train.Saver()`, with one
    exception: the variables and slots of cells replace the opaque variables that have a
    `CudnnOpaqueParamsSaveable` (those of the layers do), and their slots. So a model can be trained
    with `CudnnLSTM`, then with `CudnnCompatibleLSTMCell`s under `tf.nn.dynamic_rnn`, and then with
    `CudnnLSTM` again. The program with cells uses a plain `tf.train.Saver()`, and optimizers of the
    same class and name.

    Both programs have the same weights, the same sum of a gate's two biases, and the same slots.
    From there, the biases train differently: cuDNN's two biases have equal gradients, and each
    takes the step that a cell's single bias takes, so their sum takes twice that step.

    A program that restores its own checkpoint continues from the same state if the two biases and
    their slots were equal. They are equal up to rounding if they started equal (the layers start
    them at zero) and only the RNN gives them gradients. Otherwise each bias is restored as half of
    the sum, and each slot as the mean.

    Args:
      *optimizers: `tf.train.Optimizer`s that have created their slots: call `saved_as_cells` after
        `minimize`. An optimizer that wraps others (loss scaling, `MovingAverageOptimizer`,
        `SyncReplicasOptimizer`) stands for them. Slots of other optimizers, and moving averages,
        are saved unchanged, under the names of the opaque variables.

    Returns:
      A list for the argument `var_list` of `tf.train.Saver`.

    Raises:
      RuntimeError: in eager execution.
      TypeError: an optimizer has no `get_slot` or `get_slot_names`.
      ValueError: an optimizer has not created its slots yet, or the name of a slot does not contain
        the name of its variable.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "saved_as_cells is available only in graph mode, but TensorFlow executes eagerly."
        )
    unwrapped = _unwrapped(optimizers)
    for optimizer in unwrapped:
        _require_slots(optimizer)
    saved = tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
    # Reads the names of all slots first, so that an error leaves nothing in the graph.
    found = []
    for saveable in saved:
        variable = _opaque_variable(saveable)
        if variable is not None:
            slots = _slots(variable, unwrapped)
            found.append((saveable, variable, [(s, _affixes(variable, s)) for s in slots]))
    replaced = []
    for saveable, variable, slots in found:
        conversion = _SlotConversion(saveable.format_converter, variable) if slots else None
        saved += [CudnnSlotSaveable(saveable, *slot, conversion) for slot in slots]
        replaced += [variable] + [slot for slot, _ in slots]
    names = {variable_name(variable) for variable in replaced}
    kept = [v for v in tf.global_variables() if variable_name(v) not in names]
    return kept + saved


def _opaque_variable(saveable):
    """Returns the variable that a saveable saves as cells, or None."""
    if not isinstance(saveable, CudnnOpaqueParamsSaveable) or saveable.is_displaced:
        return None
    return restore_ops.as_variable(saveable._variables)


def _unwrapped(optimizers):
    """Returns a list of the optimizers and all optimizers that they wrap, without duplicates."""
    found: List[Any] = []
    waiting = list(optimizers)
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
    values: List[Any] = []
    for value in getattr(optimizer, "__dict__", {}).values():
        values += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in values if _has_slots(value)]


def _has_slots(value):
    methods = [getattr(value, name, None) for name in ("get_slot", "get_slot_names")]
    return not isinstance(value, type) and all(callable(method) for method in methods)


def _require_slots(optimizer):
    """Raises if an optimizer whose class creates slots has not created any variables yet."""
    base = tf.train.Optimizer
    if not isinstance(optimizer, base) or type(optimizer)._create_slots is base._create_slots:
        return  # such as GradientDescentOptimizer, and wrappers
    if not optimizer.variables():
        raise ValueError(
            "The %s %r has created no slots in this graph. Call saved_as_cells after minimize or "
            "apply_gradients, or without this optimizer if it never creates slots."
            % (type(optimizer).__name__, optimizer.get_name())
        )


def _slots(variable, optimizers):
    """Returns the variable's slots without duplicates: a wrapper may return the wrapped slots."""
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
    """Converts between slots of an opaque variable and those of the cells' variables."""

    def __init__(self, converter, variable):
        with tf.name_scope("slots_of_cells"):
            self._opaque = tf.zeros(variable.shape, variable.dtype.base_dtype)
            weights, biases = converter.opaque_to_tf_canonical(self._opaque)
            self._converted = list(weights) + list(biases)
            self._cells = [tf.zeros_like(part) for part in self._converted]
            self._transposed = self.from_cells(self._cells)
            # The diagonal of J J^T, which is a diagonal matrix. It is 0 for cells' tensors that the
            # RNN does not have, such as the input weights with skip_input.
            ones = [tf.ones_like(part) for part in self._converted]
            self._counts = self._times_jacobian(self.from_cells(ones))

    def from_cells(self, tensors):
        """Returns J^T times the cells' tensors, an opaque buffer."""
        return _gradients(self._converted, [self._opaque], tensors)[0]

    def to_cells(self, opaque):
        """Returns the cells' tensors x with J^T x = opaque; averages elements that are merged."""
        sums = self._times_jacobian(opaque)
        return [tf.math.divide_no_nan(*pair) for pair in zip(sums, self._counts)]

    def _times_jacobian(self, opaque):
        # The gradient of J^T x with respect to x, which is the same for every x. Calling the
        # converter instead would be wrong: it may add constants, such as a forget bias.
        return _gradients([self._transposed], self._cells, [opaque])


def _gradients(results, sources, gradients):
    return [
        tf.zeros_like(source) if gradient is None else gradient
        for source, gradient in zip(sources, tf.gradients(results, sources, gradients))
    ]


def _affixes(variable, slot):
    """Returns what precedes the variable's name in the slot's name, and what follows it and "/".

    Raises `ValueError` if the name of the slot does not contain the name of the variable.
    """
    own, opaque = variable_name(slot), variable_name(variable)
    before, found, after = own.rpartition(opaque + "/")
    if not found or (before and not before.endswith("/")):
        raise ValueError(
            "The slot %s of the variable %s cannot be saved as slots of cells: its name must "
            "end with the name of the variable, / and the name of the slot." % (own, opaque)
        )
    return before, after


class CudnnSlotSaveable(SaveableObject):
    """Saves one slot of an opaque variable as the slots of the cells' variables."""

    def __init__(self, saveable, slot, affixes, conversion):
        """Takes a variable's `CudnnOpaqueParamsSaveable`, a slot, `_affixes`, `_SlotConversion`."""
        before, after = affixes
        self._conversion = conversion
        self._slot = slot
        tensors = conversion.to_cells(tf.convert_to_tensor(slot))
        keys = [before + spec.name + "/" + after for spec in saveable.specs]
        device = nodes.device_of_specs()
        specs = [SaveSpec(tensor, "", key, device=device) for tensor, key in zip(tensors, keys)]
        name = restore_ops.unique_name(saveable.name + "/" + after)
        super().__init__(tf.identity(slot), specs, name)
        restore_ops.saveables_of_graph().append(self)

    def restore(self, restored_tensors, restored_shapes):
        """Returns an op that assigns the slot; see `CudnnOpaqueParamsSaveable.restore`."""
        del restored_shapes
        keys = [spec.name for spec in self.specs]
        shapes = [spec.tensor.shape for spec in self.specs]
        tensors = restore_ops.with_checked_shapes(restored_tensors, keys, shapes)
        value = self._conversion.from_cells(tensors)
        return restore_ops.assign(self._slot, value, restore_ops.SUMS_SCOPE)
