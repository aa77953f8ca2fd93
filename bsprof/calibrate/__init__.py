"""Coefficients of the time model: fitted from measurements, public ones or of this device."""
