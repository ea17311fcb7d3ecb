"""The error ledger: `.remit/errors.json`, in which similar errors are one entry that is seen more often (S4.7).

    similar   when two errors are the same one
    tally     errors counted in memory, each kind once
    entry     one entry of the file
    file      `ErrorLedger`: the file, shared by several processes
    writer    `LedgerWriter`: the ledger as an event loop can use it, without waiting

Knows errors of returns and where they came from; knows neither the store nor the engine. Used by `app` and the command line.
"""

from remit.ledger.entry import FIX_STATUSES, Entry, Fix
from remit.ledger.file import ErrorLedger
from remit.ledger.similar import normalised
from remit.ledger.tally import Noted
from remit.ledger.writer import LedgerWriter

__all__ = ["FIX_STATUSES", "Entry", "ErrorLedger", "Fix", "LedgerWriter", "Noted", "normalised"]
