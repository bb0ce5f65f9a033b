"""Private names of the original classes that programs read."""


class OldName:
    """A private name of the original, for an attribute that has another name here.

    Unlike with a property, a subclass may set an attribute of the name for itself.
    """

    def __init__(self, new_name):
        self._new_name = new_name

    def __get__(self, instance, owner):
        return self if instance is None else getattr(instance, self._new_name)
