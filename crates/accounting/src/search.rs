//! One-dimensional searches.

/// The logarithm, named for what it does to a search interval: equal steps become equal factors.
pub(crate) fn spread(value: f64) -> f64 {
    value.ln()
}

/// The lowest point of a function with a single valley on `[low, high]`, to within `tolerance`.
///
/// Infinite values are fine as long as they surround the valley; the first probes look for a finite one.
pub(crate) fn golden_section(f: impl Fn(f64) -> f64, low: f64, high: f64, tolerance: f64) -> (f64, f64) {
    const PROBES: u32 = 24;
    let at = |i: u32| low + (high - low) * f64::from(i) / f64::from(PROBES);
    let values: Vec<f64> = (0..=PROBES).map(|i| f(at(i))).collect();
    let mut best = 0_u32;
    for (i, value) in (0..).zip(&values) {
        if *value < values[best as usize] {
            best = i;
        }
    }
    let ratio = 0.5 * (5.0_f64.sqrt() - 1.0);
    let (mut a, mut b) = (at(best.saturating_sub(1)), at((best + 1).min(PROBES)));
    let (mut x, mut y) = (b - ratio * (b - a), a + ratio * (b - a));
    let (mut fx, mut fy) = (f(x), f(y));
    let mut lowest = (at(best), values[best as usize]);
    while b - a > tolerance {
        if fx < lowest.1 {
            lowest = (x, fx);
        }
        if fy < lowest.1 {
            lowest = (y, fy);
        }
        if fx <= fy {
            (b, y, fy) = (y, x, fx);
            x = b - ratio * (b - a);
            fx = f(x);
        } else {
            (a, x, fx) = (x, y, fy);
            y = a + ratio * (b - a);
            fy = f(y);
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_valleys_inside_and_at_the_ends() {
        let (x, value) = golden_section(|x| (x - 0.3).powi(2) + 1.0, -5.0, 5.0, 1e-6);
        assert!((x - 0.3).abs() < 1e-3 && (value - 1.0).abs() < 1e-6);
        let (x, _) = golden_section(|x| x, -5.0, 5.0, 1e-6);
        assert!((x + 5.0).abs() < 1e-3);
        let (x, _) = golden_section(|x| if x < 1.0 { f64::INFINITY } else { (x - 2.0).abs() }, -5.0, 5.0, 1e-6);
        assert!((x - 2.0).abs() < 1e-5);
    }
}
