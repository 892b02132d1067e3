def small(x):
    return x
