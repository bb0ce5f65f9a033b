"""Frozen graphs, `.pb` or `.pbtxt`, and SavedModels whose weights are constants: only read.

The RNNs are those of the nodes `CudnnRNN`, `CudnnRNNV2` and `CudnnRNNV3` in the graph and in its
functions. A node has the mode, direction and projection; its parameters are constants, or follow
from constants (`graph_constants`). The number of layers and the sizes are those of the op that made
the parameters, or come from the static shapes of states and input (`graph_shapes`), from a
`CudnnRNNParamsSize` node, or from `Facts`. Nothing is imported or run.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Dict, List, NamedTuple, Optional, Set

import numpy as np

from cudnn_rnn.exchange.checkpoint_rnns import list_of
from cudnn_rnn.exchange.contents import Contents, ExchangeError, Facts, Format
from cudnn_rnn.exchange.graph_constants import (
    DTYPE_NAMES,
    FROM_CANONICAL,
    SWITCHES,
    GraphConstants,
    NotConstant,
    config_of,
)
from cudnn_rnn.exchange.graph_shapes import shape_of, shape_of_state
from cudnn_rnn.exchange.keras_model import different_scopes
from cudnn_rnn.exchange.meta_graphs import SAVED_MODEL, graphs_of
from cudnn_rnn.exchange.opaque_vectors import configs_of_vector
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import OPAQUE_NAME
from cudnn_rnn.model.spec import (
    CUDNN_INPUT_SKIP_MODE,
    CUDNN_LSTM,
    FORWARD_OPS,
    INT32_MAX,
    RnnConfig,
)
from cudnn_rnn.model.weights import DTYPES, RnnWeights, from_buffer

__all__ = ["read", "read_saved_model"]

_SUFFIXES = (".pb", ".pbtxt")
_PARAMS_SIZE = "CudnnRNNParamsSize"
# What constants that say their last value once, and copies of them, may take.
_MOST_COPIES, _MOST_BYTES = 16, 2**24
# RNNs may share their parameters, but only a few.
_USES = 4
_MOST_STEPS = 100  # between an RNN and the constant with its parameters
_SIZES = ("num_layers", "num_units", "input_size")


class _Node(NamedTuple):
    """A forward node.

    Attributes:
      body: str, the name of the function that has it, "" if none has.
      node: the `NodeDef`.
      config: the `RnnConfig` of its attributes, whose sizes are None if the graph does not tell.
      params: `[params_size]`.
    """

    body: str
    node: Any
    config: RnnConfig
    params: np.ndarray


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads the RNNs of a frozen graph.

    Raises:
      ExchangeError: the file is damaged, or no RNN in it can be read.
    """
    graphs = _graphs_of(path)
    if not graphs[0].node:
        raise ExchangeError("%s is no frozen graph: it has no nodes." % path)
    return _contents(path, "frozen graph", graphs, facts)


def read_saved_model(folder: str, facts: Facts) -> Optional[Contents]:
    """Reads the RNNs whose weights are constants of a SavedModel; None if the folder is none.

    Raises:
      ExchangeError: the file is damaged, or no RNN in it can be read.
    """
    paths = [os.path.join(folder, name) for name in SAVED_MODEL]
    path = next(filter(os.path.isfile, paths), None)
    if path is None:
        return None
    return _contents(folder, "SavedModel with constants", _graphs_of(path), facts)


def _graphs_of(path):
    try:
        return graphs_of(path)
    except ValueError as error:
        raise ExchangeError("%s Get the file from its source again." % error) from error


def _contents(path, title, graphs, facts):
    """Returns the RNNs of graphs; raises `ExchangeError` if there are only unreadable ones."""
    rnns: List[RnnWeights] = []
    problems: Dict[str, None] = {}
    others = set()
    for graph_def in graphs:
        most_bytes = _MOST_BYTES + _MOST_COPIES * graph_def.ByteSize()
        constants = GraphConstants(graph_def, most_bytes)
        nodes, of_nodes = _forward_nodes(constants)
        of_params_size = _told_by_params_size(constants)
        problems.update(dict.fromkeys(of_nodes))
        for same in _with_the_same_params(nodes):
            try:
                rnns.append(_rnn(constants, of_params_size, same, facts))
            except ExchangeError as error:
                problems[str(error)] = None
        others |= _other_constants(constants)
    if problems and not rnns:
        raise ExchangeError("%s: %s" % (path, "\n".join(problems)))
    return Contents(
        path, title, different_scopes(rnns), others=sorted(others), problems=[*problems]
    )


def _forward_nodes(constants):
    """Returns the forward nodes, and a text on each whose parameters are no constants."""
    found, problems = [], []
    for body, nodes in constants.nodes.items():
        for node in nodes.values():
            if node.op not in FORWARD_OPS:
                continue
            try:
                inputs = constants.inputs(body, node)
                if len(inputs) < 4:
                    raise NotConstant("it has %d inputs" % len(inputs))
                params = constants.value(inputs[3])
                if params.ndim != 1 or params.dtype.name not in DTYPES:
                    shape = list(params.shape)
                    raise NotConstant("they have shape %s, dtype %s" % (shape, params.dtype))
                config = _sizes(constants, node, inputs)._replace(dtype=params.dtype.name)
                found.append(_Node(body, node, config, params))
            except (NotConstant, ValueError, TypeError) as error:
                problems.append(
                    "The parameters of the node %r, op %s, are not constants of the graph: %s."
                    % (node.name, node.op, str(error).rstrip("."))
                )
    return found, problems


def _with_the_same_params(nodes):
    """Yields lists of nodes that have the same parameters and attributes.

    Raises:
      ExchangeError: too many RNNs of different attributes share their parameters.
    """
    groups: Dict[Any, List[_Node]] = {}
    modes: Dict[int, int] = {}
    for node in nodes:
        key = (id(node.params), *_without_sizes(node.config))
        if key not in groups:
            modes[id(node.params)] = modes.get(id(node.params), 0) + 1
        groups.setdefault(key, []).append(node)
    if max(modes.values(), default=0) > _USES:
        raise ExchangeError(
            "%d different RNNs have the same parameters; expected at most %d. The graph is damaged."
            % (max(modes.values()), _USES)
        )
    yield from groups.values()


def _sizes(constants, node, inputs):
    """Returns the config of a forward node; a size is None if the graph does not tell it.

    Raises:
      ValueError: there is no RNN with these attributes.
    """
    config: Any = config_of(node, 1, INT32_MAX, INT32_MAX)
    made_at = _origin(constants, inputs[3])
    maker = constants.node(made_at)
    sizes: List[Optional[int]] = [None] * len(_SIZES)
    if maker is not None and maker.op in FROM_CANONICAL:
        sizes = _constant_sizes(constants, made_at.body, maker)
    data = shape_of(constants, inputs[0])
    state_h, state_c = [shape_of_state(constants, place) for place in inputs[1:3]]
    is_batch_major = "time_major" in node.attr and not node.attr["time_major"].b
    states = [state_h, state_c] if config.rnn_mode == CUDNN_LSTM else [state_h]
    stacked = _dimension(states, 1 if is_batch_major else 0)
    told = (
        stacked and stacked // config.num_directions,
        _dimension([state_c] if config.num_proj else states, 2),
        data[2] if data is not None and len(data) == 3 else None,
    )
    merged = [first or second or None for first, second in zip(sizes, told)]
    return config._replace(**dict(zip(_SIZES, merged)))


def _dimension(shapes, axis):
    """Returns the first known dimension of shapes of rank 3; None if there is none."""
    known = [shape[axis] for shape in shapes if shape is not None and shape[axis] is not None]
    return known[0] if known else None


def _origin(constants, place):
    """Returns the place that an `Identity`, a `Switch` or a chain of them passes on."""
    for _ in range(_MOST_STEPS):
        node = constants.node(place)
        inputs = constants.inputs(place.body, node) if node is not None else []
        if node is None or node.op not in ("Identity", *SWITCHES) or not inputs:
            break
        place = inputs[0]
    return place


def _constant_sizes(constants, body, node):
    """Returns num_layers, num_units and input_size of a node that has them as inputs."""
    sizes: List[Optional[int]] = []
    for place in constants.inputs(body, node)[:3]:
        try:
            value = constants.value(place)
            is_size = value.size == 1 and value.dtype.kind == "i" and value > 0
            sizes.append(int(value) if is_size else None)
        except NotConstant:
            sizes.append(None)
    return sizes + [None] * (len(_SIZES) - len(sizes))


def _rnn(constants, of_params_size, nodes, facts):
    """Returns the weights that nodes with the same parameters have.

    Raises:
      ExchangeError: several RNNs are possible, or none.
    """
    first = nodes[0]
    name = "The parameters of the node %r, [%d]," % (first.node.name, len(first.params))
    config = first.config
    for size in _SIZES:
        found = {getattr(node.config, size) for node in nodes} - {None}
        if len(found) > 1:
            raise ExchangeError("%s are used with %s %s." % (name, size, sorted(found)))
        config = config._replace(**{size: found.pop() if found else None})
    told = of_params_size.get((len(first.params), *_without_sizes(config)), ())
    told = [one for one in told if all(a in (None, b) for a, b in zip(config[1:4], one[1:4]))]
    if len(told) == 1:
        config = told[0]
    try:
        checked = RnnConfig.checked(*_completed(config, first.params, facts, name))
        return from_buffer(first.params, checked, _scope(constants, first))
    except ExchangeError:
        raise
    except (ValueError, TypeError) as error:
        raise ExchangeError("%s do not fit: %s" % (name, error)) from error


def _scope(constants, found):
    """Returns the scope of the layer that has the variable, or the start of the node's name."""
    origin = _origin(constants, constants.inputs(found.body, found.node)[3])
    scope, _, name = origin.node.rpartition("/")
    return scope if name == OPAQUE_NAME else found.node.name.rpartition("/")[0]


def _told_by_params_size(constants):
    """Returns the configs of all `CudnnRNNParamsSize` nodes, by the size and `_without_sizes`."""
    told: Dict[Any, Set[RnnConfig]] = {}
    for body, nodes in constants.nodes.items():
        for node in nodes.values():
            if node.op == _PARAMS_SIZE:
                dtype = DTYPE_NAMES.get(node.attr["T"].type, "")
                try:
                    sizes = _constant_sizes(constants, body, node)
                    config = config_of(node, *sizes)._replace(dtype=dtype)
                except (NotConstant, ValueError, TypeError):
                    continue
                key = (layout.params_size(config), *_without_sizes(config))
                told.setdefault(key, set()).add(config)
    return told


def _without_sizes(config):
    return config._replace(**dict.fromkeys(_SIZES))


def _completed(config, params, facts, name):
    """Returns the config with all sizes; raises `ExchangeError` if they are not determined."""
    given = config._replace(
        num_layers=config.num_layers or facts.num_layers,
        num_units=config.num_units or facts.num_units,
    )
    if None not in given[1:4]:
        return given
    if given.num_units is None and None not in (given.num_layers, given.input_size):
        possible = [*dict.fromkeys(_with_any_units(given, len(params)))]
    elif given.num_units is None:
        raise ExchangeError(
            "%s are those of an RNN with rnn_mode %r, %s, but the graph does not tell its "
            "num_units. Give num_units, and num_layers if it has several (--num-units, "
            "--num-layers)." % (name, given.rnn_mode, given.direction)
        )
    else:
        known = Facts(
            given.rnn_mode, given.num_layers, given.num_units, given.direction, given.num_proj
        )
        found = configs_of_vector(len(params), params.dtype, known)
        possible = [one for one in found if _is_possible(one, given)]
    if len(possible) != 1:
        raise ExchangeError(
            "%s %s"
            % (
                name,
                "may be any of these RNNs:\n%s\nGive num_layers (--num-layers)." % list_of(possible)
                if possible
                else "are those of no RNN with rnn_mode %r, %s, num_layers %s, num_units %s, "
                "input_size %s." % (given.rnn_mode, given.direction, *given[1:4]),
            )
        )
    return possible[0]


def _is_possible(found, given):
    """Returns whether a config of an opaque vector has what is told, the input mode included."""
    is_skipping = found.input_mode == CUDNN_INPUT_SKIP_MODE
    told = given._replace(num_layers=1, num_units=found.num_units, input_size=found.input_size)
    return (
        given.input_size in (None, found.input_size) and is_skipping == told.skips_input_projection
    )


def _with_any_units(config, size):
    """Yields the configs of this size of the buffer, whatever num_units is; it is None."""
    for num_units in itertools.chain([config.input_size], itertools.count(1)):
        found = config._replace(num_units=num_units)
        params_size = layout.params_size(found)
        # With auto_select, the buffer is shorter if input_size equals num_units.
        is_first = num_units == config.input_size
        if params_size == size and num_units > config.num_proj:
            yield found
        elif params_size > size and not is_first:
            return


def _other_constants(constants):
    """Returns the names of the vectors and matrices of numbers that belong to no RNN."""
    used = constants.used()
    return {
        node.name
        for body, nodes in constants.nodes.items()
        for node in nodes.values()
        if node.op == "Const"
        and (body, node.name) not in used
        and node.attr["value"].tensor.dtype in (1, 2, 19)
        and any(dim.size > 0 for dim in node.attr["value"].tensor.tensor_shape.dim)
    }


def recognizes(path: str) -> bool:
    """Returns whether a file starts as a `GraphDef` does: with a node that has a name and an op."""
    with open(path, "rb") as file:
        start = file.read(4096)
    if start[:1] != b"\n":
        return False
    place = 1
    while place < len(start) and start[place] & 0x80:  # the length of the node
        place += 1
    if start[place + 1 : place + 2] != b"\n" or place + 2 >= len(start) or start[place + 2] > 127:
        return False
    end = place + 3 + start[place + 2]
    return start[place + 3 : end].isascii() and start[end : end + 1] == b"\x12"


FORMAT = Format("", "a frozen graph", _SUFFIXES, recognizes, read)
