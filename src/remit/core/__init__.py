"""The domain of remit: pure values and rules without input or output. All other packages import from here."""
