def markdown(r):
    return ""


def verdict(r, quick):
    return 0
