"""The error ledger: `.remit/errors.json`, in which similar errors are one entry that is seen more often.

    entry     when two errors are the same one; errors counted in memory; one entry of the file
    file      `ErrorLedger`: the file, shared by several processes; `LedgerWriter`, by which an event loop writes it without waiting

Knows errors of returns and where they came from; knows neither the store nor the engine. Used by `app` and the command line.
"""

from remit.runtime.ledger.entry import FIX_STATUSES, Entry, Fix, Noted, normalised
from remit.runtime.ledger.file import ErrorLedger, LedgerWriter

__all__ = ["FIX_STATUSES", "Entry", "ErrorLedger", "Fix", "LedgerWriter", "Noted", "normalised"]
