"""Operating system services: process trees, locks, atomic files. Independent of delegations."""
