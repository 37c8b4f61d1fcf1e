//! Axes: where a value lies, and which round numbers are marked.

use crate::number::{exponent, fixed, scientific};

/// An axis of a [`LineChart`](crate::LineChart): its label, its scale, and its range if it differs from that of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub(crate) label: String,
    log: bool,
    range: Option<(f64, f64)>,
}

impl Axis {
    /// Equal distances for equal differences.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: false, range: None }
    }

    /// Equal distances for equal ratios. Values that are not positive are not drawn.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: true, range: None }
    }

    /// Fixes the ends of the axis; lines are cut off there.
    ///
    /// **Edge cases**: a range that is empty, or that contains a value that the axis cannot show, is ignored.
    pub fn range(mut self, low: f64, high: f64) -> Axis {
        self.range = (low < high && self.shows(low) && self.shows(high)).then_some((low, high));
        self
    }

    /// Whether a value can be shown: it is finite, and positive on a log axis.
    ///
    /// Within these bounds, differences and the next power of ten are finite.
    pub(crate) fn shows(&self, value: f64) -> bool {
        if self.log { (1e-150..=1e150).contains(&value) } else { value.abs() <= 1e150 }
    }

    /// The scale for these values, extended to round numbers unless the range is fixed.
    pub(crate) fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = self.range.unwrap_or_else(|| {
            let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
            values.filter(|&value| self.shows(value)).fold((f64::INFINITY, f64::NEG_INFINITY), ends)
        });
        let (low, high) = if low > high { (if self.log { 0.1 } else { 0.0 }, 1.0) } else { (low, high) };
        let ticks = if self.log { log_ticks(low, high) } else { linear_ticks(low, high) };
        let (low, high) = match (self.range, ticks.first(), ticks.last()) {
            (None, Some(first), Some(last)) => (first.value, last.value),
            _ => (low, high),
        };
        let ticks = ticks.into_iter().filter(|tick| (low..=high).contains(&tick.value)).collect();
        Scale { log: self.log, low, high, ticks }
    }
}

/// An axis with its ends.
#[derive(Debug)]
pub(crate) struct Scale {
    log: bool,
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<Tick>,
}

/// A marked value.
#[derive(Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Scale {
    /// Where a value lies: 0 at the low end, 1 at the high end. `None` if the axis cannot show it.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.log {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        // With a short fixed range, a value can lie far outside the picture. The clamp keeps it outside.
        place.is_finite().then(|| place.clamp(-1e4, 1e4))
    }
}

/// About six multiples of 1, 2 or 5 times a power of ten, from below the lowest to above the highest value.
fn linear_ticks(low: f64, high: f64) -> Vec<Tick> {
    let size = low.abs().max(high.abs());
    // One value, or values that differ only by rounding, lie in the middle.
    let (low, high) = if high - low > size * 1e-9 {
        (low, high)
    } else if size > 1e-280 {
        (low - size / 2.0, high + size / 2.0)
    } else {
        (-1.0, 1.0)
    };
    let rough = (high - low) / 6.0;
    let mut power = exponent(rough);
    let digit = match rough / 10f64.powi(power) {
        r if r <= 1.0 => 1,
        r if r <= 2.0 => 2,
        r if r <= 5.0 => 5,
        _ => {
            power += 1;
            1
        }
    };
    let unit = f64::from(digit) * 10f64.powi(power);
    // Rounding must not add an interval for a value that lies on a mark.
    let (first, last) = ((low / unit + 1e-9).floor(), (high / unit - 1e-9).ceil());
    let count = (last - first).clamp(1.0, 20.0) as usize;
    // Multiples are taken from text, so that 3 * 0.1 is 0.3.
    let multiple = |k: f64| format!("{}e{power}", k * f64::from(digit)).parse().unwrap_or(k * unit);
    (0..=count)
        .map(|i| {
            let k = first + i as f64;
            Tick { value: multiple(k), label: linear_label(k * f64::from(digit), power, size) }
        })
        .collect()
}

/// `whole * 10^power` on an axis that reaches `size`.
fn linear_label(whole: f64, power: i32, size: f64) -> String {
    let top = exponent(size.max(1e-300));
    if (-4..6).contains(&top) && power >= -6 {
        fixed(whole * 10f64.powi(power), usize::try_from(-power).unwrap_or(0))
    } else {
        // All labels have the same power, that of the largest value.
        let decimals = usize::try_from(top - power).unwrap_or(0);
        if whole == 0.0 { "0".into() } else { scientific(whole * 10f64.powi(power - top), decimals, top) }
    }
}

/// Powers of ten, or 1, 2 and 5 times powers of ten when there are few, from below the lowest to above the highest value.
fn log_ticks(low: f64, high: f64) -> Vec<Tick> {
    let decades = exponent(high) - exponent(low);
    let digits: &[i32] = if decades <= 2 { &[1, 2, 5] } else { &[1] };
    // At most eight labels.
    let every = 1 + (decades / 8).max(0);
    let start = exponent(low).div_euclid(every) * every;
    let marks =
        (0..=(decades / every + 2)).flat_map(|i| digits.iter().map(move |&digit| (digit, start + i * every)));
    let marks: Vec<(i32, i32, f64)> = marks
        .map(|(digit, power)| (digit, power, format!("{digit}e{power}").parse().unwrap_or(0.0)))
        .collect();
    let slack = 1e-9;
    let mut first = marks.iter().rposition(|mark| mark.2 <= low * (1.0 + slack)).unwrap_or(0);
    let mut last = marks.iter().position(|mark| mark.2 >= high * (1.0 - slack)).unwrap_or(marks.len() - 1);
    if first == last {
        // One value on a mark gets an interval on both sides.
        (first, last) = (first.saturating_sub(1), (last + 1).min(marks.len() - 1));
    }
    let plain = marks[first].1 >= -3 && marks[last].1 <= 4;
    marks[first..=last]
        .iter()
        .map(|&(digit, power, value)| {
            let decimals = usize::try_from(-power).unwrap_or(0);
            let label = if plain { fixed(value, decimals) } else { scientific(f64::from(digit), 0, power) };
            Tick { value, label }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        axis.scale(values.iter().copied()).ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_contain_the_data() {
        let axis = Axis::linear("");
        assert_eq!(labels(&axis, &[0.0, 5000.0]), ["0", "1000", "2000", "3000", "4000", "5000"]);
        assert_eq!(labels(&axis, &[0.07, 0.93]), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&axis, &[-1.0, 1.0]), ["\u{2212}1.0", "\u{2212}0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(labels(&axis, &[0.0, 50_000.0])[1], "10,000");
        assert_eq!(
            labels(&axis, &[0.0, 3e-7]),
            ["0", "0.5×10⁻⁷", "10⁻⁷", "1.5×10⁻⁷", "2.0×10⁻⁷", "2.5×10⁻⁷", "3.0×10⁻⁷"]
        );
    }

    #[test]
    fn log_ticks_are_powers_of_ten_or_one_two_five() {
        let axis = Axis::log("");
        assert_eq!(labels(&axis, &[0.3, 8.0]), ["0.2", "0.5", "1", "2", "5", "10"]);
        assert_eq!(labels(&axis, &[1.0, 10_000.0]), ["1", "10", "100", "1000", "10,000"]);
        assert_eq!(labels(&axis, &[1e-5, 1e-1]), ["10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹"]);
        assert!(labels(&axis, &[1e-200, 1e200]).len() <= 10);
    }

    #[test]
    fn one_value_and_no_values_still_have_an_axis() {
        for axis in [Axis::linear(""), Axis::log("")] {
            for values in
                [vec![], vec![1.0], vec![3.7, 3.7], vec![f64::NAN, f64::INFINITY], vec![1e150], vec![1e-150]]
            {
                let scale = axis.scale(values.iter().copied());
                assert!(
                    scale.low < scale.high && (2..=21).contains(&scale.ticks.len()),
                    "{axis:?} {values:?} {scale:?}"
                );
                for value in values.into_iter().filter(|&value| axis.shows(value)) {
                    let place = scale.place(value).unwrap();
                    assert!((0.0..=1.0).contains(&place), "{axis:?} {value} is at {place}");
                }
            }
        }
    }

    #[test]
    fn the_data_lie_between_the_ends_on_every_scale() {
        let values = [1e-150, 3e-7, 0.1, 0.3, 1.0, 7.0, 12345.0, 1e6, 8.1e15, 1e150];
        for axis in [Axis::linear(""), Axis::log("")] {
            for (i, &low) in values.iter().enumerate() {
                for &high in &values[i..] {
                    let scale = axis.scale([low, high].into_iter());
                    let (a, b) = (scale.place(low).unwrap(), scale.place(high).unwrap());
                    assert!(-1e-6 <= a && a <= b && b <= 1.0 + 1e-6, "{axis:?} {low} {high} {a} {b}");
                    assert!((2..=21).contains(&scale.ticks.len()));
                }
            }
        }
    }

    #[test]
    fn a_fixed_range_is_kept_and_an_impossible_one_ignored() {
        let scale = Axis::linear("").range(0.25, 0.95).scale([7.0].into_iter());
        assert_eq!((scale.low, scale.high), (0.25, 0.95));
        assert!(scale.ticks.iter().all(|tick| (0.25..=0.95).contains(&tick.value)));
        for (low, high) in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
            assert_eq!(Axis::linear("").range(low, high).range, None);
        }
        assert_eq!(Axis::log("").range(0.0, 1.0).range, None);
    }
}
