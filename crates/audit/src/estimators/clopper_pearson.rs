//! Exact bounds on a rate from a count.

use super::binomial::{Binomial, real};

/// The Clopper-Pearson upper bound on a rate: the largest `p` with `Pr[Bin(trials, p) <= count] >= level`, rounded up.
///
/// It equals the quantile `1 - level` of the beta distribution with parameters `count + 1` and `trials - count`.
///
/// **Guarantees.** For independent trials of any true rate, the bound is below that rate with probability `level` at most.
///
/// **Edge cases.** Without trials, or if `count >= trials`, the bound is 1. A level of 0 or less, or NaN, gives 1.
///
/// **References.** Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial" (1934).
pub fn rate_upper_bound(count: u64, trials: u64, level: f64) -> f64 {
    if count >= trials || !(level > 0.0) {
        return 1.0;
    }
    let n = real(trials);
    // lgamma(n) is about n ln n and has an error of one or two ulps, which is an error in the exponent of the tail.
    let level = level * (-1e-12 - 1e-15 * n * (n + 1.0).ln()).exp();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let mid = 0.5 * (low + high);
        if mid <= low || mid >= high || high - low <= 1e-13 * high {
            break;
        }
        if Binomial::new(trials, mid).lower_tail(count) >= level { low = mid } else { high = mid }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_scipy() {
        // scipy 1.17.1: scipy.stats.beta.isf(level, count + 1, trials - count)
        for (count, trials, level, expected) in [
            (0, 10, 0.05, 0.258_865_550_893_052_3),
            (1, 10, 0.05, 0.394_163_302_436_504_77),
            (9, 10, 0.05, 0.994_883_803_108_176_3),
            (5, 10, 0.5, 0.548_305_843_776_336_8),
            (5, 10, 0.9, 0.354_215_928_872_609_2),
            (0, 1000, 0.0125, 0.004_372_439_564_671_269_5),
            (37, 500, 0.025, 0.100_558_874_746_469_93),
            (500, 1000, 0.001, 0.549_228_946_015_217_7),
            (999, 1000, 0.05, 0.999_948_708_021_091),
            (3, 1_000_000, 0.025, 8.767_247_788_067_68e-06),
            (250_000, 1_000_000, 0.01, 0.251_008_822_823_428_3),
            (999_990, 1_000_000, 0.025, 0.999_995_204_601_222_5),
            (120_000, 1_000_000, 1e-9, 0.121_958_793_180_653_56),
        ] {
            let got = rate_upper_bound(count, trials, level);
            assert!((got / expected - 1.0).abs() < 1e-8, "{count} of {trials}: {got} against {expected}");
            // Rounded up.
            assert!(got >= expected * (1.0 - 1e-12), "{count} of {trials}: {got} against {expected}");
            let complement = (1.0 - got) / (1.0 - expected);
            assert!((complement - 1.0).abs() < 1e-6, "{count} of {trials}: {got} against {expected}");
        }
    }

    #[test]
    fn none_of_n_is_the_rule_of_three() {
        // (1 - p)^n = level
        for n in [1, 20, 3000, 1_000_000] {
            let exact = -(0.05_f64.ln() / real(n)).exp_m1();
            assert!((rate_upper_bound(0, n, 0.05) / exact - 1.0).abs() < 1e-8, "{n}");
        }
    }

    #[test]
    fn grows_with_the_count_and_with_the_confidence() {
        let mut last = 0.0;
        for count in 0..=50 {
            let bound = rate_upper_bound(count, 50, 0.05);
            assert!(bound > last && bound > f64::from(u32::try_from(count).unwrap()) / 50.0 || bound == 1.0);
            assert!(rate_upper_bound(count, 50, 0.01) >= bound);
            last = bound;
        }
        assert_eq!(last, 1.0);
    }

    #[test]
    fn is_1_without_evidence() {
        for (count, trials, level) in
            [(0, 0, 0.05), (7, 7, 0.05), (9, 7, 0.05), (0, 7, 0.0), (0, 7, f64::NAN)]
        {
            assert_eq!(rate_upper_bound(count, trials, level), 1.0);
        }
    }
}
