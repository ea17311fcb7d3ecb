"""The delegate tool (S5): what is asked, checked in its stated order, and what is answered. Doors that speak it translate to here."""
