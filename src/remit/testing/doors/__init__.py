"""Every door of a server through its own protocol's client, and the promises that all of them keep: the same outcomes everywhere.

`door_suite.DOOR_CHECKS` are run over every door of ours, and can be run over yours: write a `DoorClient` for it. The clients (`over_…`)
need the packages of their protocols (`remit[serve]`), the suite none. Where protocols differ by design stands in `traits`.
"""
