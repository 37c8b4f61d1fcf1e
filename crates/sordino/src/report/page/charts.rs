//! The charts of a page, with their numbers as tables.

use sordino_report::{Axis, Chart, LineChart, Series, Table, significant};

use super::{
    attacker::{Attacker, Rates},
    percent, percent_up,
    schedules::AtStep,
};

/// The largest number of rows of a chart's table.
const ROWS: usize = 12;

/// A chart of one value along the steps of a run.
pub(super) fn along_steps(
    name: &str,
    title: &str,
    description: String,
    label: &str,
    values: &[AtStep],
) -> Chart {
    let points = values.iter().map(|at| (at.step as f64, at.value));
    let series = Series::new("", points);
    // Few points are shown as dots.
    let series = if values.len() <= 25 { series.markers() } else { series };
    let constant = values.iter().all(|at| at.value == values[0].value);
    let axis = match values.first() {
        // The axis of a constant begins at 0.
        Some(first) if constant && first.value > 0.0 => Axis::linear(label).range(0.0, 1.5 * first.value),
        _ => Axis::linear(label),
    };
    let picture = LineChart::new(title).compact().x(Axis::linear("step")).y(axis).series(series).picture();
    // A constant has two rows.
    let thinned = match values {
        [first, .., last] if constant => vec![*first, *last],
        values => thinned(values),
    };
    let table = Table::new(title, &[">step", &format!(">{label}")]);
    let numbers =
        thinned.iter().fold(table, |table, at| table.row([at.step.to_string(), significant(at.value)]));
    Chart { name: name.to_owned(), title: title.to_owned(), description, picture, numbers }
}

/// The trade-off curve of the best attacker, and measured attacks.
pub(super) fn trade_off(
    title: &str,
    description: String,
    (curve_name, attacker): (&str, &Attacker),
    attacks: &[(String, Vec<Rates>)],
) -> Chart {
    let points = |rates: &[Rates]| -> Vec<(f64, f64)> {
        rates.iter().map(|rates| (rates.false_positive_rate, rates.true_positive_rate)).collect()
    };
    let bounds = points(&attacker.curve).into_iter().map(|(x, y)| (x, up(y)));
    let axis = |label| Axis::linear(label).range(0.0, 1.0);
    let mut chart = LineChart::new(title)
        .compact()
        .x(axis("false positive rate"))
        .y(axis("true positive rate"))
        .series(Series::new(curve_name, bounds));
    for (name, rates) in attacks {
        chart = chart.series(Series::new(name.as_str(), points(rates)).only_markers());
    }
    chart = chart.series(Series::new("random guessing", [(0.0, 0.0), (1.0, 1.0)]));
    let mut numbers = Table::new(title, &["", ">false positives in %", ">true positives in %"]);
    for rates in thinned(&attacker.curve) {
        numbers = numbers.row([
            curve_name.to_owned(),
            percent(rates.false_positive_rate),
            percent_up(rates.true_positive_rate),
        ]);
    }
    for (name, rates) in attacks {
        for rates in thinned(rates) {
            let cells = [rates.false_positive_rate, rates.true_positive_rate].map(percent);
            numbers = numbers.row([name.clone()].into_iter().chain(cells));
        }
    }
    Chart {
        name: "trade-off".to_owned(),
        title: title.to_owned(),
        description,
        picture: chart.picture(),
        numbers,
    }
}

/// The next number with four significant digits that is not below this one, so that a rounded upper bound is an upper bound.
pub(super) fn up(value: f64) -> f64 {
    let step = 10_f64.powf(value.abs().log10().floor() - 3.0);
    // A step of 0 or infinity has no next number.
    let next = (value / step).ceil() * step;
    if next.is_finite() { next } else { value }
}

/// At most [`ROWS`] items, with the first and the last.
pub(super) fn thinned<T: Copy>(items: &[T]) -> Vec<T> {
    let rows = ROWS.min(items.len());
    let place = |row: usize| row * (items.len() - 1) / (rows - 1).max(1);
    (0..rows).map(|row| items[place(row)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_shown_as_bounds() {
        let shown = [0.999_85, 1.234_11, 0.0, 12_345.0, 2.0, 0.25].map(|value| significant(up(value)));
        assert_eq!(shown, ["0.9999", "1.235", "0", "12,350", "2", "0.25"].map(str::to_owned));
    }

    #[test]
    fn thinned_items_keep_the_first_and_the_last() {
        assert!(thinned::<u8>(&[]).is_empty());
        assert_eq!(thinned(&[7]), [7]);
        assert_eq!(thinned(&[1, 2, 3]), [1, 2, 3]);
        let many: Vec<u32> = thinned(&(0..1000).collect::<Vec<u32>>());
        assert_eq!((many.len(), many[0], many[11]), (12, 0, 999));
    }
}
