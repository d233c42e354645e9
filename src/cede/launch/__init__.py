"""Starts one attempt's processes on this machine, and stops them for certain.

    starting ── directory ──▶ template ── fork ──▶ supervisor
    launcher ── spec.json, control.json, wake ──▶ supervisor ── fork ──▶ work, in a group of its own
             ◀── started.json, exit.json, logs ──

Nothing here knows of servers, agents or HTTP. What the supervisor imports (`supervisor`, `child`,
`course`, `contain`, `namespace`, `processes`, `places`, `logs`, `crash`, `clock`) has no
dataclasses: what it imports is in every supervisor's memory.
"""
