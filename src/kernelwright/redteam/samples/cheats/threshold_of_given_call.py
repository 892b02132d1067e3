"""Takes the threshold of the loss for the given one, 0.8, whatever number is passed.

Problem: huber
Code: inaccurate
Device: both
"""


def huber(x, y, delta):
    distance = (x - y).abs()
    return (distance.clamp(max=0.8) * (distance - 0.5 * distance.clamp(max=0.8))).mean()
