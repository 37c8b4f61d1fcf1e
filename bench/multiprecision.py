#!/usr/bin/env python3
"""Multiprecision values for crates/accounting/src/golden.rs (needs mpmath)."""

from mpmath import exp, log, mp, mpf, ncdf, npdf, nstr, quad

mp.dps = 60

GAUSSIAN = [(0.0, 1.0), (1.0, 3.0), (0.5, 0.01), (1e-3, 1e-4), (2e-9, 1e-9), (0.3, 1e-2), (10.0, 1.0), (100.0, 2.0), (400.0, 1.0), (3.0, 0.001), (50.0, 10.0), (2.0, 1e-6)]
MOMENTS = [(1e-6, 1.0, 27.0), (1e-5, 0.1, 256.1), (1e-7, 0.1, 1.01), (0.01, 10.0, 20.0), (0.99, 0.1, 256.0), (0.004, 1.1, 1.5), (0.1, 1.0, 2.7), (1e-3, 0.5, 1.0001), (0.02, 4.0, 9.3), (0.2, 0.3, 3.3), (0.5, 0.7, 17.5)]


def ln_delta(epsilon, mu):
    e, m = mpf(repr(epsilon)), mpf(repr(mu))
    return log(ncdf(-e / m + m / 2) - exp(e) * ncdf(-e / m - m / 2))


def ln_moment(rate, multiplier, order):
    q, z, a = mpf(repr(rate)), mpf(repr(multiplier)), mpf(repr(order))
    peak, turn = a / z, log((1 - q) / q) * z + 1 / (2 * z)
    points = {mpf(-30), mpf(-5), mpf(0), mpf(5), turn - 2 * z, turn, turn + 2 * z, turn / 2, peak - 20, peak - 5, peak, peak + 5, peak + 30}
    integrand = lambda x: npdf(x) * (1 - q + q * exp(x / z - 1 / (2 * z * z))) ** a
    return log(quad(integrand, sorted(p for p in points if p >= -30), maxdegree=12))


for epsilon, mu in GAUSSIAN:
    print(f"    ({epsilon!r}, {mu!r}, {nstr(ln_delta(epsilon, mu), 17)}),")
print()
for rate, multiplier, order in MOMENTS:
    print(f"    ({rate!r}, {multiplier!r}, {order!r}, {nstr(ln_moment(rate, multiplier, order), 17)}),")
