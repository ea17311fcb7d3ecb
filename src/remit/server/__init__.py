"""The doors that are servers: each translates its protocol to `app.Remit` and back; none decides anything."""
