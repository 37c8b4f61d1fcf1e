//! The normal distribution.

/// The probability that a standard normal variate is at most `x`.
pub(crate) fn cumulative(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// The value that a standard normal variate exceeds with this probability, which is at most 1/2.
pub(crate) fn upper_quantile(tail: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if cumulative(-middle) > tail { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_tables() {
        for (tail, expected) in [(0.5, 0.0), (0.025, 1.959_964), (0.001, 3.090_232), (1e-6, 4.753_424)] {
            assert!((upper_quantile(tail) - expected).abs() < 1e-5, "{tail}");
        }
    }
}
