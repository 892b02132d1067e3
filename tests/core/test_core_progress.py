"""Stages reach the listener and, within a block, an observer."""

from kernelwright.core.progress import observe_stages, report_stage, set_listener


def test_an_observer_gets_the_stages_of_a_block_and_the_listener_all():
    heard, observed = [], []
    set_listener(lambda what, limit_s: heard.append((what, limit_s)))
    try:
        report_stage("before")
        with observe_stages(lambda what, limit_s: observed.append((what, limit_s))):
            report_stage("within", 3.0)
        report_stage("after")
    finally:
        set_listener(None)
    assert heard == [("before", None), ("within", 3.0), ("after", None)]
    assert observed == [("within", 3.0)]


def test_an_observer_needs_no_listener():
    observed = []
    with observe_stages(lambda what, limit_s: observed.append(what)):
        report_stage("within")
    assert observed == ["within"]
