//! Numbers as the text of axis labels.

/// A number with a fixed number of decimals and commas between thousands.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let negative = value < 0.0 && text.bytes().any(|b| matches!(b, b'1'..=b'9'));
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        // Four digits stay together, as in a year or in 5000 steps.
        if place > 0 && whole.len() > 4 && (whole.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{}{grouped}{rest}", if negative { "\u{2212}" } else { "" })
}

/// A number with four significant digits, for tables and for numbers that the pointer shows.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { value.to_string() };
    }
    let power = exponent(value.abs());
    if !(-4..9).contains(&power) {
        return scientific(value / 10f64.powi(power), 3, power);
    }
    let text = fixed(value, usize::try_from(3 - power).unwrap_or(0));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `mantissa * 10^exponent`, with superscripts when it is very large or very small.
pub(crate) fn scientific(mantissa: f64, decimals: usize, exponent: i32) -> String {
    if mantissa == 0.0 {
        return "0".into();
    }
    let power: String = exponent.to_string().chars().map(superscript).collect();
    if mantissa == 1.0 { format!("10{power}") } else { format!("{}×10{power}", fixed(mantissa, decimals)) }
}

fn superscript(c: char) -> char {
    match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    }
}

/// The power of ten of a positive number's first digit: 3 for 1234, -2 for 0.05.
pub(crate) fn exponent(value: f64) -> i32 {
    // Decimal output rounds correctly, and a logarithm does not: log10(1000) may be just below 3.
    let text = format!("{value:e}");
    text.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_superscripts() {
        assert_eq!(fixed(5000.0, 0), "5000");
        assert_eq!(fixed(1_234_567.5, 1), "1,234,567.5");
        assert_eq!(fixed(-0.25, 2), "\u{2212}0.25");
        assert_eq!(fixed(-0.001, 2), "0.00");
        assert_eq!(scientific(1.0, 0, -5), "10⁻⁵");
        assert_eq!(scientific(2.0, 0, 12), "2×10¹²");
    }

    #[test]
    fn significant_digits_are_four_without_trailing_zeros() {
        let texts = [0.0, 1.0, 0.98765, -1234.56, 123_456.7, 0.001, 1e-5, 2.5e12].map(significant);
        assert_eq!(
            texts,
            ["0", "1", "0.9877", "\u{2212}1235", "123,457", "0.001", "10⁻⁵", "2.500×10¹²"].map(str::to_owned)
        );
    }

    #[test]
    fn the_exponent_is_that_of_the_first_digit() {
        let powers: Vec<i32> = [1000.0, 999.9, 0.05, 1.0, 1e-300].map(exponent).to_vec();
        assert_eq!(powers, [3, 2, -2, 0, -300]);
    }
}
