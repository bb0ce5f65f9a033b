"""Formats Markdown tables."""


def markdown_table(columns, rows):
    """Returns a Markdown table.

    Args:
      columns: a list of (heading, function); the function returns the cell's text for a row.
      rows: any objects.
    """
    lines = [[heading for heading, _ in columns]]
    lines += [[show(row) for _, show in columns] for row in rows]
    widths = [max(3, max(len(line[index]) for line in lines)) for index in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in lines
    )


def could_not_run(results):
    """Returns a Markdown list of the reasons why peers could not run, or None if all ran.

    Each reason is listed once, with the configurations that it affects.

    Args:
      results: dicts with "peer", "key" and, for a peer that could not run, "reason".
    """
    reasons = {}
    for result in results:
        if "reason" in result:
            keys = reasons.setdefault((result["peer"], result["reason"]), [])
            if result["key"] not in keys:
                keys.append(result["key"])
    if not reasons:
        return None
    lines = [
        "- %s: %s (%s)" % (peer, reason, "; ".join(keys))
        for (peer, reason), keys in reasons.items()
    ]
    return "Could not run:\n\n" + "\n".join(lines)
