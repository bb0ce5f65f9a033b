"""A naive NumPy reference of what the cuDNN recurrent ops compute.

It follows the formulas and favors readability over speed: everything is float64 and loops over
layers, directions and time steps. It shares no code with the library under test.

Shapes:
    input      [steps, batch, input_size]
    input_h    [layers * directions, batch, output_size]
    input_c    [layers * directions, batch, num_units] (LSTM only; None for other modes)
    output     [steps, batch, directions * output_size]
    params     [number of parameters]
output_size is num_proj for an LSTM with a projection, and num_units otherwise.

The parameter buffer is one vector. It starts with all matrices, for each layer and each direction
(forward, backward): W of gate 0..G-1, each [num_units, width] row-major; R of gate 0..G-1, each
[num_units, output_size]; and, with a projection, the matrix P [num_proj, num_units]. All biases
follow, for each layer and direction: bW of gate 0..G-1, then bR of gate 0..G-1. `width` is
input_size in the first layer and directions * output_size in the others; a first layer that skips
its input matrix (skip_input) stores no W.

Gates, with W on the layer's input x and R on the previous output h':
    lstm      i, f, g, o:  c = sigmoid(f) c' + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)
    gru       r, u, n:     n = tanh(W_n x + bW_n + r (R_n h' + bR_n));  h = (1 - u) n + u h'
    rnn_relu  h = relu(W x + bW + R h' + bR)       rnn_tanh  the same with tanh
With a projection, h is P times the h of these formulas.
"""

import collections

import numpy as np

GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


class Configuration(
    collections.namedtuple(
        "Configuration",
        "rnn_mode input_mode direction num_layers num_units input_size num_proj",
        defaults=[0],
    )
):
    """The model as given by the op's attributes and shapes."""

    __slots__ = ()

    @property
    def gates(self):
        """Number of gates of one cell."""
        return GATES[self.rnn_mode]

    @property
    def directions(self):
        """1 or 2."""
        return {"unidirectional": 1, "bidirectional": 2}[self.direction]

    @property
    def skips_input(self):
        """Whether the first layer has no W."""
        if self.input_mode == "auto_select":
            return self.input_size == self.num_units
        return {"linear_input": False, "skip_input": True}[self.input_mode]

    @property
    def output_size(self):
        """Width of h and of one direction's output; num_proj is 0 without a projection."""
        return self.num_proj or self.num_units

    def width(self, layer):
        """Returns the width of the input of `layer`."""
        return self.input_size if layer == 0 else self.directions * self.output_size


# One tensor of the buffer: kind is "W", "R", "P", "bW" or "bR".
Region = collections.namedtuple("Region", "kind layer direction gate shape offset")

# The parameters of one layer in one direction. W, R, bW and bR are lists with one element per gate;
# W's elements are None if the input is skipped. P has one element, or none without a projection.
CellParameters = collections.namedtuple("CellParameters", "W R P bW bR")


def regions(configuration):
    """Returns all tensors of the buffer in buffer order, as a list of Region."""
    units, gates = configuration.num_units, configuration.gates
    shapes = []
    for layer in range(configuration.num_layers):
        for direction in range(configuration.directions):
            input_shape = (units, configuration.width(layer))
            if layer == 0 and configuration.skips_input:
                input_shape = (units, 0)
            shapes += [("W", layer, direction, gate, input_shape) for gate in range(gates)]
            state_shape = (units, configuration.output_size)
            shapes += [("R", layer, direction, gate, state_shape) for gate in range(gates)]
            if configuration.num_proj:
                shapes.append(("P", layer, direction, 0, (configuration.num_proj, units)))
    for layer in range(configuration.num_layers):
        for direction in range(configuration.directions):
            shapes += [("bW", layer, direction, gate, (units,)) for gate in range(gates)]
            shapes += [("bR", layer, direction, gate, (units,)) for gate in range(gates)]
    result, offset = [], 0
    for kind, layer, direction, gate, shape in shapes:
        result.append(Region(kind, layer, direction, gate, shape, offset))
        offset += int(np.prod(shape, dtype=np.int64))
    return result


def params_size(configuration):
    """Returns the number of elements of the buffer by formula, without adding up `regions`."""
    units, gates = configuration.num_units, configuration.gates
    cells = configuration.num_layers * configuration.directions
    first_width = 0 if configuration.skips_input else configuration.input_size
    upper_width = configuration.directions * configuration.output_size
    input_matrices = configuration.directions * gates * units * first_width
    input_matrices += (cells - configuration.directions) * gates * units * upper_width
    state_matrices = cells * gates * units * configuration.output_size
    projections = cells * configuration.num_proj * units
    return input_matrices + state_matrices + projections + cells * 2 * gates * units


def view(params, region):
    """Returns the region of the buffer `params` as a view."""
    size = int(np.prod(region.shape, dtype=np.int64))
    return params[region.offset : region.offset + size].reshape(region.shape)


def params_to_canonical(configuration, params):
    """Returns the list of matrices and the list of biases in the buffer `params`, as views."""
    weights, biases = [], []
    for region in regions(configuration):
        tensor = view(params, region)
        (weights if region.kind in ("W", "R", "P") else biases).append(tensor)
    return weights, biases


def cell_parameters(configuration, params, layer, direction):
    """Returns the parameters of one layer in one direction, as views into `params`."""
    found = {"W": [], "R": [], "P": [], "bW": [], "bR": []}
    for region in regions(configuration):
        if (region.layer, region.direction) == (layer, direction):
            skipped = region.kind == "W" and layer == 0 and configuration.skips_input
            found[region.kind].append(None if skipped else view(params, region))
    return CellParameters(**found)


def sigmoid(x):
    """Returns 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def from_input(cell, gate, x):
    """Returns W x + bW of one gate, [batch, units]; a skipped W counts as the identity."""
    product = x if cell.W[gate] is None else np.dot(x, cell.W[gate].T)
    return product + cell.bW[gate]


def from_state(cell, gate, h):
    """Returns R h + bR of one gate, [batch, units]."""
    return np.dot(h, cell.R[gate].T) + cell.bR[gate]


# --- one step of each cell ---
# forward: (cell, x, h_before, c_before) -> (h, c, saved: the values the backward step needs).
# backward: (saved, h_before, c_before, dh, dc) -> (gradients at W x + bW per gate, gradients at
#           R h' + bR per gate, dh_before without the part through R, dc_before).


def lstm_forward(cell, x, h_before, c_before):
    before = [from_input(cell, gate, x) + from_state(cell, gate, h_before) for gate in range(4)]
    i, f, o = sigmoid(before[0]), sigmoid(before[1]), sigmoid(before[3])
    g = np.tanh(before[2])
    c = f * c_before + i * g
    return o * np.tanh(c), c, (i, f, g, o, c)


def lstm_backward(saved, h_before, c_before, dh, dc):
    i, f, g, o, c = saved
    dc = dc + dh * o * (1.0 - np.tanh(c) ** 2)
    d_gates = [
        dc * g * i * (1.0 - i),
        dc * c_before * f * (1.0 - f),
        dc * i * (1.0 - g**2),
        dh * np.tanh(c) * o * (1.0 - o),
    ]
    return d_gates, d_gates, np.zeros_like(h_before), dc * f


def gru_forward(cell, x, h_before, c_before):
    r = sigmoid(from_input(cell, 0, x) + from_state(cell, 0, h_before))
    u = sigmoid(from_input(cell, 1, x) + from_state(cell, 1, h_before))
    recurrent = from_state(cell, 2, h_before)
    n = np.tanh(from_input(cell, 2, x) + r * recurrent)
    return (1.0 - u) * n + u * h_before, None, (r, u, n, recurrent)


def gru_backward(saved, h_before, c_before, dh, dc):
    r, u, n, recurrent = saved
    d_n = dh * (1.0 - u) * (1.0 - n**2)
    d_r = d_n * recurrent * r * (1.0 - r)
    d_u = dh * (h_before - n) * u * (1.0 - u)
    return [d_r, d_u, d_n], [d_r, d_u, d_n * r], dh * u, None


def relu_forward(cell, x, h_before, c_before):
    before = from_input(cell, 0, x) + from_state(cell, 0, h_before)
    return np.maximum(before, 0.0), None, before


def relu_backward(saved, h_before, c_before, dh, dc):
    d_gates = [dh * (saved > 0.0)]
    return d_gates, d_gates, np.zeros_like(h_before), None


def tanh_forward(cell, x, h_before, c_before):
    h = np.tanh(from_input(cell, 0, x) + from_state(cell, 0, h_before))
    return h, None, h


def tanh_backward(saved, h_before, c_before, dh, dc):
    d_gates = [dh * (1.0 - saved**2)]
    return d_gates, d_gates, np.zeros_like(h_before), None


CELLS = {
    "lstm": (lstm_forward, lstm_backward),
    "gru": (gru_forward, gru_backward),
    "rnn_relu": (relu_forward, relu_backward),
    "rnn_tanh": (tanh_forward, tanh_backward),
}


# --- the whole network ---

# Values of one layer in one direction for the backward pass, as lists by time step. h_before[t] and
# c_before[t] are the states that step t starts from; unprojected[t] is its h before the projection.
LayerRecord = collections.namedtuple("LayerRecord", "h_before c_before saved unprojected")

# Values of a forward pass for `backward`. layer_inputs[layer] is [steps, batch, width], after
# dropout.
Tape = collections.namedtuple("Tape", "configuration params masks layer_inputs records")

Gradients = collections.namedtuple("Gradients", "input input_h input_c params")


def time_order(direction, steps):
    """Returns the steps in the order in which a direction visits them."""
    return range(steps) if direction == 0 else range(steps - 1, -1, -1)


def run_layer(configuration, cell, direction, x, h, c):
    """Runs a layer in one direction over x; returns outputs, last h, last c and LayerRecord."""
    step_forward = CELLS[configuration.rnn_mode][0]
    steps, batch = x.shape[:2]
    outputs = np.zeros((steps, batch, configuration.output_size))
    record = LayerRecord(*([None] * steps for _ in LayerRecord._fields))
    for t in time_order(direction, steps):
        record.h_before[t], record.c_before[t] = h, c
        h, c, record.saved[t] = step_forward(cell, x[t], h, c)
        record.unprojected[t] = h
        if cell.P:
            h = np.dot(h, cell.P[0].T)
        outputs[t] = h
    return outputs, h, c, record


def forward(configuration, input, input_h, input_c, params, masks=None):
    """Runs the network.

    Args:
        configuration: Configuration.
        input, input_h, input_c, params: arrays, see the module's docstring.
        masks: None, or a list with one entry per layer: None, or the factors of the layer's input,
            [steps, batch, width] (0 or 1 / (1 - dropout)).

    Returns:
        output, output_h, output_c (None unless LSTM), tape for `backward`.
    """
    x = np.asarray(input, np.float64)
    input_h, params = np.asarray(input_h, np.float64), np.asarray(params, np.float64)
    is_lstm = configuration.rnn_mode == "lstm"
    input_c = np.asarray(input_c, np.float64) if is_lstm else None
    masks = masks or [None] * configuration.num_layers
    tape = Tape(configuration, params, masks, [], {})
    output_h, output_c = np.zeros_like(input_h), np.zeros_like(input_c) if is_lstm else None
    for layer in range(configuration.num_layers):
        if masks[layer] is not None:
            x = x * masks[layer]
        tape.layer_inputs.append(x)
        both_directions = []
        for direction in range(configuration.directions):
            index = layer * configuration.directions + direction
            cell = cell_parameters(configuration, params, layer, direction)
            outputs, output_h[index], last_c, tape.records[layer, direction] = run_layer(
                configuration,
                cell,
                direction,
                x,
                input_h[index],
                input_c[index] if is_lstm else None,
            )
            if is_lstm:
                output_c[index] = last_c
            both_directions.append(outputs)
        x = np.concatenate(both_directions, axis=2)
    return x, output_h, output_c, tape


def run_layer_backward(tape, layer, direction, d_outputs, dh, dc, d_params):
    """Runs the backward pass of one layer in one direction.

    Args:
        tape: from `forward`.
        layer, direction: indices.
        d_outputs: gradient of this direction's outputs, [steps, batch, output_size].
        dh, dc: gradients of its last states, [batch, output_size] and [batch, units].
        d_params: the whole gradient buffer; this layer's gradients are added to it.

    Returns:
        gradients of the layer's input [steps, batch, width], its initial h and its initial c.
    """
    configuration, x = tape.configuration, tape.layer_inputs[layer]
    step_backward = CELLS[configuration.rnn_mode][1]
    cell = cell_parameters(configuration, tape.params, layer, direction)
    d_cell = cell_parameters(configuration, d_params, layer, direction)
    record = tape.records[layer, direction]
    d_x = np.zeros_like(x)
    for t in reversed(list(time_order(direction, len(x)))):
        h_before = record.h_before[t]
        dh = dh + d_outputs[t]
        if cell.P:
            d_cell.P[0][...] += np.dot(dh.T, record.unprojected[t])
            dh = np.dot(dh, cell.P[0])
        d_input_side, d_state_side, dh, dc = step_backward(
            record.saved[t], h_before, record.c_before[t], dh, dc
        )
        for gate in range(configuration.gates):
            if cell.W[gate] is None:
                d_x[t] += d_input_side[gate]
            else:
                d_x[t] += np.dot(d_input_side[gate], cell.W[gate])
                d_cell.W[gate][...] += np.dot(d_input_side[gate].T, x[t])
            d_cell.bW[gate][...] += d_input_side[gate].sum(axis=0)
            dh = dh + np.dot(d_state_side[gate], cell.R[gate])
            d_cell.R[gate][...] += np.dot(d_state_side[gate].T, h_before)
            d_cell.bR[gate][...] += d_state_side[gate].sum(axis=0)
    return d_x, dh, dc


def backward(tape, output_backprop, output_h_backprop, output_c_backprop=None):
    """Returns the gradients of sum(output * output_backprop) + the same for output_h and output_c.

    Returns:
        Gradients(input, input_h, input_c (None unless LSTM), params).
    """
    configuration = tape.configuration
    size, is_lstm = configuration.output_size, configuration.rnn_mode == "lstm"
    d_params = np.zeros_like(tape.params)
    d_outputs = np.asarray(output_backprop, np.float64)
    d_input_h = np.array(output_h_backprop, np.float64)
    d_input_c = np.array(output_c_backprop, np.float64) if is_lstm else None
    for layer in reversed(range(configuration.num_layers)):
        d_layer_input = np.zeros_like(tape.layer_inputs[layer])
        for direction in range(configuration.directions):
            index = layer * configuration.directions + direction
            d_direction = d_outputs[:, :, direction * size : (direction + 1) * size]
            d_c = d_input_c[index] if is_lstm else None
            d_x, d_input_h[index], d_c = run_layer_backward(
                tape, layer, direction, d_direction, d_input_h[index], d_c, d_params
            )
            if is_lstm:
                d_input_c[index] = d_c
            d_layer_input += d_x
        if tape.masks[layer] is not None:
            d_layer_input = d_layer_input * tape.masks[layer]
        d_outputs = d_layer_input
    return Gradients(d_outputs, d_input_h, d_input_c, d_params)


def smallest_relu_argument(tape):
    """Returns the smallest distance of any relu argument from 0; infinity for other modes."""
    if tape.configuration.rnn_mode != "rnn_relu":
        return np.inf
    arguments = [a for record in tape.records.values() for a in record.saved if np.size(a)]
    return min([np.inf] + [np.abs(argument).min() for argument in arguments])


# The names of the inputs and the outputs of the forward op.
INPUTS = ("input", "input_h", "input_c", "params")
FORWARD = ("output", "output_h", "output_c")


def run_reference(configuration, arrays, masks=None, lengths=None):
    """Returns all results by name for arrays by name; see op_harness.py for the names.

    The results include gradients if `arrays` has output_backprop. With `lengths` [batch], runs each
    sequence alone, for as many steps: beyond them nothing is read, and output and d_input are 0.
    """
    if lengths is not None:
        return _run_by_sequence(configuration, arrays, masks, lengths)
    inputs = [arrays.get(name) for name in INPUTS]
    results = forward(configuration, *inputs, masks=masks)
    found = dict(zip(FORWARD, results))
    if "output_backprop" in arrays:
        gradients = backward(results[3], *[arrays.get(name + "_backprop") for name in FORWARD])
        found.update(("d_" + name, value) for name, value in gradients._asdict().items())
    return {name: value for name, value in found.items() if value is not None}


def _run_by_sequence(configuration, arrays, masks, lengths):
    results = collections.defaultdict(list)
    for b, length in enumerate(lengths):
        alone = {
            name: array if name == "params" else array[:, b : b + 1]
            for name, array in arrays.items()
        }
        for name in {"input", "output_backprop"} & set(alone):
            alone[name] = alone[name][:length]
        own_masks = masks and [mask if mask is None else mask[:length, b : b + 1] for mask in masks]
        for name, value in run_reference(configuration, alone, own_masks).items():
            if name in ("output", "d_input"):
                missing = len(arrays["input"]) - length
                value = np.pad(value, [(0, missing), (0, 0), (0, 0)], "constant")
            results[name].append(value)
    return {
        name: sum(values) if name == "d_params" else np.concatenate(values, axis=1)
        for name, values in results.items()
    }
