//! The search for the largest epsilon that the evidence refutes.

/// The relative error of a search whose tests are cheap.
pub(super) const FINE: f64 = 1e-7;

/// The end of the range of epsilons that are refuted, up to this relative error (or 1e-9) and rounded down by as much. 0 if `refuted(0)` is false.
///
/// `refuted` has to be true up to some epsilon and false beyond; each caller states why this holds. Then the result exceeds the true epsilon only
/// if the true epsilon is refuted, so the bound errs as often as a single test.
///
/// Edge cases: an epsilon above 1e6 is reported as 1e6.
pub(super) fn largest_refuted(relative_error: f64, refuted: impl Fn(f64) -> bool) -> f64 {
    const LARGEST: f64 = 1e6;
    if !refuted(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 0.125);
    while refuted(high) {
        if high >= LARGEST {
            return LARGEST;
        }
        (low, high) = (high, 2.0 * high);
    }
    while high - low > (relative_error * high).max(1e-9) {
        let mid = 0.5 * (low + high);
        if refuted(mid) { low = mid } else { high = mid }
    }
    // This also covers the errors of conversions between epsilon and the noise.
    low * (1.0 - relative_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_of_the_refuted_range() {
        for end in [1e-3, 0.1, 1.0, 77.7, 12_345.0] {
            let found = largest_refuted(FINE, |epsilon| epsilon < end);
            assert!(found < end && found > end * (1.0 - 3e-7) - 2e-9, "{end}: {found}");
        }
    }

    #[test]
    fn is_zero_without_evidence_and_finite_with_any_evidence() {
        assert_eq!(largest_refuted(FINE, |_| false), 0.0);
        assert_eq!(largest_refuted(FINE, |_| true), 1e6);
    }
}
