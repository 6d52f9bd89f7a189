"""placeholder"""


def applies(context, measure, algorithm):
    return False


def gather(context):
    return None
