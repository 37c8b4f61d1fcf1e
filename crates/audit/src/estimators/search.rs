//! The search for the largest epsilon that the evidence refutes.

/// The end of the range of epsilons that are refuted, up to a relative error of 1e-7 and rounded down. 0 if `refuted(0)` is false.
///
/// `refuted` has to be true up to some epsilon and false beyond; each caller says why it is. Then the result exceeds the true epsilon only
/// if the true epsilon is refuted, so the bound errs as often as a single test.
///
/// Edge cases: an epsilon above 1e6 is reported as 1e6.
pub(super) fn largest_refuted(refuted: impl Fn(f64) -> bool) -> f64 {
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
    while high - low > 1e-7 * high {
        let mid = 0.5 * (low + high);
        if refuted(mid) { low = mid } else { high = mid }
    }
    // Conversions between mu and epsilon are exact to 1e-10.
    low * (1.0 - 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_of_the_refuted_range() {
        for end in [1e-6, 0.1, 1.0, 77.7, 12_345.0] {
            let found = largest_refuted(|epsilon| epsilon < end);
            assert!(found < end && found > end * (1.0 - 2e-7), "{end}: {found}");
        }
    }

    #[test]
    fn is_zero_without_evidence_and_finite_with_any_evidence() {
        assert_eq!(largest_refuted(|_| false), 0.0);
        assert_eq!(largest_refuted(|_| true), 1e6);
    }
}
