"""Defines the measured configurations. Standard library only."""

import itertools
import re
from collections import namedtuple
from fnmatch import fnmatch

# Gates per mode: each needs one product with an input matrix and one with a recurrent matrix.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
KINDS = ("inference", "training")


class Configuration(
    namedtuple(
        "Configuration",
        "group rnn_mode num_layers num_units input_size direction batch steps has_lengths"
        " is_training dtype",
        defaults=["float"],
    )
):
    """One model with one shape of data, for inference or training.

    `dtype` is "float", "half" (only on a GPU) or "bfloat16" (only on a CPU).
    With `has_lengths`, the sequences have lengths from 1 to `steps` whose mean is half of `steps`.
    In the group "decode", a run is `steps` calls of one step, and the caller carries the state.
    """

    __slots__ = ()

    @property
    def kind(self):
        return KINDS[self.is_training]

    @property
    def name(self):
        """The name of the model and the shape, such as lstm-2x650-b20-t35."""
        name = "%s-%dx%d" % (self.rnn_mode, self.num_layers, self.num_units)
        if self.input_size != self.num_units:
            name += "-i%d" % self.input_size
        name += "-bi" * (self.num_directions - 1) + "-b%d-t%d" % (self.batch, self.steps)
        return name + "-half" * self.has_lengths + "-decode" * self.is_decode

    @property
    def key(self):
        """The name, the dtype unless it is float, and the kind of run."""
        dtype = "" if self.dtype == "float" else ", " + self.dtype
        return "%s%s, %s" % (self.name, dtype, self.kind)

    @property
    def is_decode(self):
        return self.group == "decode"

    @property
    def num_directions(self):
        return 2 if self.direction == "bidirectional" else 1

    @property
    def states(self):
        return ["h", "c"] if self.rnn_mode == "lstm" else ["h"]

    @property
    def stacks(self):
        """All pairs (layer, direction)."""
        return list(itertools.product(range(self.num_layers), range(self.num_directions)))

    def layer_input_size(self, layer):
        return self.input_size if layer == 0 else self.num_directions * self.num_units

    @property
    def lengths(self):
        """The lengths of the sequences as a list, or None if all are full."""
        if not self.has_lengths:
            return None
        # Unsorted, like real data.
        order = sorted(range(self.batch), key=lambda b: (b * 7919 + 31) % 101)
        shares = [(b + 0.5) / self.batch for b in order]
        return [max(1, int(share * self.steps + 0.5)) for share in shares]

    @property
    def num_rows(self):
        """The total number of steps of all sequences, without padding."""
        return sum(self.lengths or [self.steps] * self.batch)

    @property
    def operations(self):
        """Floating-point operations of a run's matrix products; all others are negligible."""
        width = GATES[self.rnn_mode] * self.num_units
        depths = [self.layer_input_size(layer) + self.num_units for layer, _ in self.stacks]
        # Backward computes the gradients of both factors of every product.
        return 2 * width * sum(depths) * self.num_rows * (3 if self.is_training else 1)


_NAME = re.compile(r"(\w+)-(\d+)x(\d+)(?:-i(\d+))?(-bi)?-b(\d+)-t(\d+)(-half)?(-decode)?")


def parse(group, name):
    """Returns the float configuration for inference that has the name."""
    mode, layers, units, width, is_bi, batch, steps, is_half, _ = _NAME.fullmatch(name).groups()
    direction = "bidirectional" if is_bi else "unidirectional"
    numbers = [int(number) for number in (layers, units, width or units)]
    shape = [int(batch), int(steps), bool(is_half), False]
    return Configuration(group, mode, *numbers, direction, *shape)


GROUPS = {
    "table": "common models",
    "original": "further models from the benchmark of tf.contrib.cudnn_rnn",
    "decode": "one time step per call, with the state carried by the caller; inference only",
    "lengths": "variable-length sequences, on average half as long",
    "scaling": "longer sequences and larger batches; only against torch, onnxruntime and openvino",
}

_NAMES = {
    # Includes two models, 4x128 and 4x512, of the benchmark that the original came with.
    "table": "lstm-2x200-b20-t20 lstm-2x650-b20-t35 lstm-2x1500-b20-t35 lstm-4x512-b64-t50"
    " lstm-4x128-b64-t50 lstm-2x256-bi-b32-t100 lstm-1x512-b1-t50 lstm-3x320-i80-b12-t150"
    " gru-2x650-b20-t35 gru-1x128-b1-t100 gru-2x76-i300-bi-b32-t60 rnn_tanh-2x400-b32-t50",
    "original": "lstm-4x1024-b64-t50",
    "decode": "lstm-1x512-b1-t100-decode lstm-2x650-b20-t100-decode gru-1x128-b1-t100-decode",
    "lengths": "lstm-2x650-b20-t35-half lstm-4x512-b64-t50-half lstm-2x256-bi-b32-t100-half"
    " gru-2x650-b20-t35-half",
    # Show how time grows with the number of steps and with the batch size.
    "scaling": "lstm-1x256-b16-t100 lstm-1x256-b16-t1000 lstm-1x256-b16-t10000 lstm-1x512-b64-t20"
    " lstm-1x512-b256-t20 lstm-1x512-b512-t20 lstm-2x650-b64-t35 gru-2x650-b64-t35",
}
# A smoke test that covers most groups and cells and takes seconds.
_QUICK_NAMES = {
    "table": "lstm-2x24-i10-b4-t8 lstm-2x24-bi-b4-t8 gru-2x24-i10-bi-b3-t6 gru-2x16-b3-t6"
    " rnn_tanh-2x16-b3-t6 rnn_tanh-1x16-bi-b3-t6",
    "decode": "lstm-2x16-b2-t5-decode gru-1x16-b1-t5-decode",
    "lengths": "lstm-2x24-i10-b4-t8-half gru-1x24-bi-b4-t8-half",
}
# Three models of the original's benchmark, a word language model, one sequence at a time, small
# models on long sequences, speech.
_GPU_NAMES = (
    "lstm-4x128-b64-t50 lstm-4x512-b64-t50 lstm-4x1024-b64-t50 lstm-2x650-b20-t35"
    " lstm-1x512-b1-t100 lstm-1x64-b64-t200 lstm-1x128-b64-t200 lstm-5x1024-bi-b32-t200"
)
_QUICK_GPU_NAMES = "lstm-2x32-b4-t10 lstm-1x64-bi-b1-t20"


def configurations(quick=False, patterns=None, kinds=KINDS, dtype="float"):
    """Returns the chosen configurations of the CPU benchmark, tiny ones if `quick`.

    `patterns` are names of groups, or patterns of names such as "gru-*"; None for all. Raises
    `ValueError` if a pattern matches no configuration.
    """
    names = _QUICK_NAMES if quick else _NAMES
    models = [parse(group, name) for group in names for name in names[group].split()]
    chosen = models if patterns is None else []
    for pattern in patterns or []:
        found = [one for one in models if pattern == one.group or fnmatch(one.name, pattern)]
        if not found:
            text = "%r is neither a group (%s) nor a pattern that matches a name (%s)"
            known = ", ".join(one.name for one in models)
            raise ValueError(text % (pattern, ", ".join(GROUPS), known))
        chosen = chosen + found
    return [
        one._replace(is_training=kind == "training", dtype=dtype)
        for one in models
        for kind in kinds
        if one in chosen and (kind == "inference" or not one.is_decode)
    ]


def gpu_configurations(quick=False, rnn_modes=("lstm",)):
    """Returns every size, mode, dtype and kind of the GPU benchmark, the most telling first.

    Time may end before the last: all sizes but the largest, which takes as long as the others
    together, are trained in float before anything else.
    """
    names = (_QUICK_GPU_NAMES if quick else _GPU_NAMES).split()
    models = [parse("gpu", name) for name in names]
    *sizes, largest = sorted(models, key=lambda one: one.operations)
    rows = list(itertools.product((True, False), ("float", "half"), rnn_modes))
    choices = list(itertools.product(rows, sizes)) + [(row, largest) for row in rows]
    return [
        size._replace(rnn_mode=mode, dtype=dtype, is_training=is_training)
        for (is_training, dtype, mode), size in choices
    ]
