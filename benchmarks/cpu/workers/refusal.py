"""The exception for configurations that a peer does not support."""


class Refused(Exception):
    """The peer is known not to support the configuration; the message says why."""
