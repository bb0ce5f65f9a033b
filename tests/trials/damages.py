"""Damages of files for the trial `damaged_files`: of bytes, and of what a format consists of."""

import io
import json
import os
import sys
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from helpers import tensor_bundles  # noqa: E402

NUMBERS = (0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**32, 2**62)
TEXTS = (
    "",
    "x",
    "../x",
    "/etc/passwd",
    "a\n",
    "\0",
    "forward",
    "LSTM",
    "weight_ih_l0",
    "x" * 70000,
)


def damage(kind, path, random):
    """Damages a file in place; returns the name of the damage."""
    by_structure = STRUCTURES.get("data" if path.endswith("-of-00001") else kind)
    if by_structure is not None and random.randint(2):
        try:
            by_structure(path, random)
            return by_structure.__name__
        except Exception as error:  # what is damaged may not be writable
            name = "%s (%s), " % (by_structure.__name__, type(error).__name__)
    else:
        name = ""
    function = OF_BYTES[random.randint(len(OF_BYTES))]
    with open(path, "rb") as file:
        content = bytearray(file.read())
    with open(path, "wb") as file:
        file.write(function(content, random))
    return name + function.__name__


# Damages to any bytes


def bits(content, random):
    for _ in range(random.randint(1, 9)):
        content[random.randint(len(content))] ^= 1 << random.randint(8)
    return content


def octets(content, random):
    for _ in range(random.randint(1, 33)):
        content[random.randint(len(content))] = random.randint(256)
    return content


def run(content, random):
    start, length = random.randint(len(content)), random.randint(1, 65)
    value = (0, 0xFF, random.randint(256))[random.randint(3)]
    content[start : start + length] = bytes([value]) * len(content[start : start + length])
    return content


def cut_end(content, random):
    return content[: random.randint(len(content))]


def cut_out(content, random):
    start = random.randint(len(content))
    del content[start : start + random.randint(1, 1 + len(content) // 4)]
    return content


def insertion(content, random):
    start = random.randint(len(content))
    content[start:start] = random.bytes(random.randint(1, 65))
    return content


def repetition(content, random):
    start = random.randint(len(content))
    part = content[start : start + random.randint(1, 1 + len(content) // 4)]
    place = random.randint(len(content))
    content[place:place] = part
    return content


def header(content, random):
    """Changes the first bytes, or the last."""
    for _ in range(random.randint(1, 9)):
        place = random.randint(min(96, len(content)))
        content[place if random.randint(2) else -1 - place] = random.randint(256)
    return content


def large_number(content, random):
    place, size = random.randint(max(1, len(content) - 8)), (2, 4, 8)[random.randint(3)]
    number = NUMBERS[random.randint(len(NUMBERS))] % 2 ** (8 * size)
    content[place : place + size] = int(number).to_bytes(size, "little")
    return content


OF_BYTES = (*(bits, octets, run, cut_end, cut_out, insertion, repetition, header, large_number),)


# Damages to the parts of a format


def member(path, random):
    """Damages a member of a ZIP archive, whose checksums stay right."""
    with zipfile.ZipFile(path) as archive:
        members = [[one.filename, archive.read(one)] for one in archive.infolist()]
    chosen = members[random.randint(len(members))]
    action = random.randint(8)
    if action == 0:
        members.remove(chosen)
    elif action == 1:
        chosen[0] = members[random.randint(len(members))][0] + "x" * random.randint(2)
    elif chosen[0].endswith(".json"):
        chosen[1] = _changed_json(chosen[1], random)
    elif chosen[1]:
        chosen[1] = bytes(OF_BYTES[random.randint(len(OF_BYTES))](bytearray(chosen[1]), random))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def _changed_json(text, random):
    """Changes a value anywhere in a JSON text."""
    root = json.loads(text.decode())
    places = []

    def visit(value):
        if isinstance(value, (dict, list)):
            for key in value if isinstance(value, dict) else range(len(value)):
                places.append((value, key))
                visit(value[key])

    visit(root)
    container, key = places[random.randint(len(places))]
    others = [None, True, -1, 1.5, [], {}, *NUMBERS, *TEXTS]
    action = random.randint(4)
    if action == 0 and isinstance(container, dict):
        container[TEXTS[random.randint(len(TEXTS))]] = container.pop(key)
    elif action == 1:
        del container[key]
    else:
        container[key] = others[random.randint(len(others))]
    return json.dumps(root).encode()


def json_header(path, random):
    """Damages the header of a safetensors file, whose length stays right."""
    with open(path, "rb") as file:
        content = file.read()
    end = 8 + int.from_bytes(content[:8], "little")
    text = _changed_json(content[8:end], random)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + content[end:])


def change_message(message, random):
    """Changes a field anywhere in a message of protobuf."""
    while True:
        fields = [pair for pair in message.ListFields()]
        if not fields:
            return
        field, value = fields[random.randint(len(fields))]
        is_list = not hasattr(value, "ListFields") and hasattr(value, "add")
        if is_list and len(value) and random.randint(8) == 0:
            del value[random.randint(len(value))]
            return
        if is_list and len(value):
            value = value[random.randint(len(value))]
        if hasattr(value, "ListFields"):
            if random.randint(12) == 0:
                message.ClearField(field.name)
                return
            message = value
            continue
        _change_scalar(message, field, value, random)
        return


def _change_scalar(message, field, value, random):
    is_list = hasattr(value, "append")
    if hasattr(value, "keys"):  # a map, whose values are messages
        keys = sorted(value.keys())
        key = keys[random.randint(len(keys))]
        if random.randint(6) == 0:
            del value[key]
        elif hasattr(value[key], "ListFields"):
            change_message(value[key], random)
        return
    one = value[random.randint(len(value))] if is_list and len(value) else value
    if isinstance(one, bool):
        new = not one
    elif isinstance(one, str):
        new = TEXTS[random.randint(len(TEXTS))]
    elif isinstance(one, bytes):
        new = bytes(OF_BYTES[random.randint(len(OF_BYTES))](bytearray(one or b"x"), random))
    elif isinstance(one, float):
        new = float(NUMBERS[random.randint(len(NUMBERS))])
    else:
        numbers = [int(one) + 1, int(one) - 1, -1, *NUMBERS]
        new = numbers[random.randint(len(numbers))]
    if is_list:
        value[random.randint(len(value))] = new
    else:
        setattr(message, field.name, new)


def onnx_fields(path, random):
    import onnx

    model = onnx.load(path, format="protobuf", load_external_data=False)
    for _ in range(random.randint(1, 4)):
        change_message(model, random)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def graph_fields(path, random):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    with open(path, "rb") as file:
        model = SavedModel.FromString(file.read())
    for _ in range(random.randint(1, 4)):
        change_message(model.meta_graphs[0].graph_def, random)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def frozen_fields(path, random):
    from tensorflow.core.framework.graph_pb2 import GraphDef

    with open(path, "rb") as file:
        graph_def = GraphDef.FromString(file.read())
    for _ in range(random.randint(1, 4)):
        change_message(graph_def, random)
    with open(path, "wb") as file:
        file.write(graph_def.SerializeToString())


def index_entries(path, random):
    """Changes entries of a checkpoint's index, whose checksums stay right."""
    prefix = path[: -len(".index")]
    entries = tensor_bundles.entries_of(prefix)
    for _ in range(random.randint(1, 4)):
        keys = sorted(entries)
        key = keys[random.randint(len(keys))]
        action = random.randint(8)
        if action == 0:
            del entries[key]
        elif action == 1:
            entries[TEXTS[random.randint(len(TEXTS))]] = entries.pop(key)
        elif action == 2:
            entries[key].slices.add().extent.add(start=random.randint(3), length=3)
        else:
            change_message(entries[key], random)
    tensor_bundles.write_index(prefix, entries)


def hdf5_objects(path, random):
    """Changes attributes and datasets of an HDF5 file."""
    import h5py
    import numpy as np

    with h5py.File(path, "r+") as file:
        items = []
        file.visititems(lambda name, item: items.append(item))
        item = items[random.randint(len(items))]
        owner = ([file] + items)[random.randint(1 + len(items))]
        if random.randint(2) and len(owner.attrs):
            names = sorted(owner.attrs)
            name, value = names[random.randint(len(names))], None
            value = owner.attrs[name]
            if isinstance(value, str) and value.startswith("{"):
                owner.attrs[name] = _changed_json(value.encode(), random).decode()
            else:
                del owner.attrs[name]
        elif random.randint(2) or not isinstance(item, h5py.Dataset):
            del file[item.name]
        else:
            array = np.asarray(item[()])
            changes = [array[:1], array.T, array.astype("i4"), array.astype("c8"), array[None]]
            name = item.name
            del file[name]
            file[name] = changes[random.randint(len(changes))]


def keras_archive(path, random):
    """Damages a member of a `.keras` file, or the objects in its weights."""
    if random.randint(2):
        member(path, random)
        return
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    weights = path + ".weights"
    with open(weights, "wb") as file:
        file.write(members["model.weights.h5"])
    try:
        hdf5_objects(weights, random)
        with open(weights, "rb") as file:
            members["model.weights.h5"] = file.read()
    finally:
        os.remove(weights)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    with open(path, "wb") as file:
        file.write(content.getvalue())


STRUCTURES = {
    "npz": member,
    "pt": member,
    "keras": keras_archive,
    "h5": hdf5_objects,
    "onnx": onnx_fields,
    "safetensors": json_header,
    "checkpoint": index_entries,
    "pb": frozen_fields,
    "saved_model": graph_fields,
    "data": None,
}
