"""Returns an object that raises when its class, or any other attribute, is read.

Problem: softmax
Code: wrong-structure or runtime-error
Device: both
"""


class Unknown:
    def __getattribute__(self, name):
        raise RuntimeError(name)


def softmax(x):
    return Unknown()
