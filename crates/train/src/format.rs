//! Numbers as text: bounds are rounded in the direction that keeps them bounds.

use sordino_accounting::{Delta, Epsilon};

/// Epsilon and delta in brackets.
pub fn pair(epsilon: Epsilon, delta: Delta) -> String {
    format!("({}, {delta})", rounded_up(epsilon.get()))
}

/// Four decimals or four significant digits, never below the number.
pub fn rounded_up(value: f64) -> String {
    rounded(value, f64::ceil)
}

/// Four decimals or four significant digits, never above the number.
pub fn rounded_down(value: f64) -> String {
    rounded(value, f64::floor)
}

/// Four decimals, to the nearest: for numbers that are not bounds.
pub fn rounded_to_nearest(value: f64) -> String {
    ((1e4 * value).round() / 1e4).to_string()
}

/// A claimed epsilon: in full if it has at most four decimals, and otherwise rounded in the same way as proved epsilons, so that the two can be
/// compared.
pub fn rounded_claim(value: f64) -> String {
    let nearest = (1e4 * value).round() / 1e4;
    if nearest == value { value.to_string() } else { rounded_up(value) }
}

fn rounded(value: f64, round: impl Fn(f64) -> f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-6..1e7).contains(&value) {
        return scientific(value, round);
    }
    let decimals = 4.max(3 - value.log10().floor() as i32);
    let scale = 10_f64.powi(decimals);
    format!("{:.*}", decimals as usize, round(value * scale) / scale)
}

/// Four significant digits and an exponent, rounded by this function.
pub fn scientific(value: f64, round: impl Fn(f64) -> f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let exponent = value.log10().floor();
    let digits = round(value / 10_f64.powf(exponent) * 1e3) / 1e3;
    format!("{digits:.3}e{exponent}")
}

/// A whole number with a comma between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounded_bound_is_still_a_bound() {
        assert_eq!(rounded_up(1.234_51), "1.2346");
        assert_eq!(rounded_down(1.234_59), "1.2345");
        assert_eq!(rounded_up(0.000_123_412), "0.0001235");
        assert_eq!(rounded_up(0.0), "0");
        assert_eq!(rounded_up(1.234_56e-9), "1.235e-9");
        assert_eq!(rounded_down(3.225_999e42), "3.225e42");
        assert_eq!([1.0, 1.1, 0.999_549, 0.999_951].map(rounded_claim), ["1", "1.1", "0.9996", "1.0000"]);
        // At least as exact as a proved epsilon.
        assert_eq!([0.012_36, 0.000_06].map(rounded_claim), [0.012_36, 0.000_06].map(rounded_up));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            ["7", "999", "1,000", "12,345,678"].map(str::to_owned),
            [7, 999, 1000, 12_345_678].map(grouped)
        );
    }
}
