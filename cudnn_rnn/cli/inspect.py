"""`python -m cudnn_rnn inspect`: the RNNs in a file, and statistics of their weights."""

import json

from cudnn_rnn.cli import file_commands

_DESCRIPTION = """\
Shows which RNNs a file has, and statistics of their weights gate by gate.

    python -m cudnn_rnn inspect model.ckpt
    python -m cudnn_rnn inspect model.ckpt --plot weights.png
    python -m cudnn_rnn inspect model.ckpt --json | jq '.rnns[].num_units'
    python -m cudnn_rnn inspect saved_model_folder --rnn-mode lstm --num-units 512

The columns are the mean, standard deviation, smallest and largest value, and the number of values
that are NaN or infinite."""

_MAX_OTHERS = 20  # a model may have thousands
_ROW = "  %-15s %-17s %9s %10s %10s %10s %10s %7s"  # fits in a terminal of 100 columns


def add_arguments(parser):
    """Adds the command's arguments to its `argparse.ArgumentParser`."""
    file_commands.describe_command(
        parser, "python -m cudnn_rnn inspect FILE [--plot IMAGE] [--json] [FACTS]", _DESCRIPTION
    )
    parser.add_argument("file", metavar="FILE", help=file_commands.INPUTS)
    parser.add_argument(
        "--plot",
        metavar="IMAGE",
        help="draw the distribution of every gate's weights; .png, .svg or .pdf; needs matplotlib",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    file_commands.add_facts(parser)


def run(options):
    """Runs the command; returns the exit status."""
    return file_commands.reporting_errors("inspect", _inspect, options)


def _inspect(exchange, options):
    if options.plot:
        exchange.summary.check_image(options.plot)
    contents = exchange.read(options.file, **file_commands.facts_of(options))
    if options.json:
        print(json.dumps(_as_dict(exchange, contents), indent=2))
    else:
        _print(exchange, contents)
    if options.plot and contents.rnns:
        exchange.plot(contents.rnns, options.plot)
    file_commands.print_notes(contents.notes + contents.problems)
    return 0 if contents.rnns else 1


def _as_dict(exchange, contents):
    return {
        "path": contents.path,
        "format": contents.format,
        "rnns": [
            {
                "scope": rnn.scope,
                "rnn_mode": rnn.rnn_mode,
                "num_layers": rnn.num_layers,
                "num_units": rnn.num_units,
                "input_size": rnn.input_size,
                "direction": rnn.layout.direction,
                "num_proj": rnn.num_proj,
                "dtype": rnn.dtype.name,
                "parameters": rnn.params_size,
                "variable": contents.variables.get(rnn.scope),
                "slots": _slots(contents, rnn),
                "statistics": exchange.statistics(rnn),
            }
            for rnn in contents.rnns
        ],
        "others": contents.others,
        "notes": contents.notes,
        "problems": contents.problems,
    }


def _slots(contents, rnn):
    return sorted(after for _, after in contents.slots.get(rnn.scope, {}))


def _print(exchange, contents):
    print("%s: %s" % (contents.path, contents.format))
    for rnn in contents.rnns:
        print("\n%s, %d parameters" % (exchange.describe(rnn), rnn.params_size))
        if rnn.scope in contents.variables:
            print("opaque variable: %s" % contents.variables[rnn.scope])
        if _slots(contents, rnn):
            print("slots: %s" % ", ".join(_slots(contents, rnn)))
        _print_statistics(exchange.statistics(rnn))
    if not contents.rnns:
        print("No RNN was found.")
    if contents.others:
        shown, rest = contents.others[:_MAX_OTHERS], contents.others[_MAX_OTHERS:]
        more = ", and %d more (--json lists all)" % len(rest) if rest else ""
        heading = "%d other%s" % (len(contents.others), "s" * (len(contents.others) > 1))
        print("\n%s: %s%s" % (heading, ", ".join(shown), more))


def _print_statistics(rows):
    print(_ROW % ("", "", "count", "mean", "std", "min", "max", "NaN"))
    previous = None
    for row in rows:
        place = "layer %d, %s" % (row["layer"], row["direction"])
        if place != previous:
            print(place)
            previous = place
        numbers = [
            "-" if row[name] is None else "%.4g" % row[name]
            for name in ("mean", "std", "min", "max")
        ]
        array = row["array"].replace("_", " ")
        print((_ROW % (row["gate"], array, row["count"], *numbers, row["nan"] or "")).rstrip())
