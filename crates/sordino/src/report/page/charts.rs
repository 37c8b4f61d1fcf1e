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
    // Few points are shown as such.
    let series = if values.len() <= 25 { series.markers() } else { series };
    let constant = values.iter().all(|at| at.value == values[0].value);
    let axis = match values.first() {
        // A constant is shown above 0, and not in the middle of nothing.
        Some(first) if constant && first.value > 0.0 => Axis::linear(label).range(0.0, 1.5 * first.value),
        _ => Axis::linear(label),
    };
    let picture = LineChart::new(title).compact().x(Axis::linear("step")).y(axis).series(series).picture();
    let thinned = thinned(values);
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
    let axis = |label| Axis::linear(label).range(0.0, 1.0);
    let mut chart = LineChart::new(title)
        .compact()
        .x(axis("false positive rate"))
        .y(axis("true positive rate"))
        .series(Series::new(curve_name, points(&attacker.curve)));
    for (name, rates) in attacks {
        chart = chart.series(Series::new(name.as_str(), points(rates)).only_markers());
    }
    chart = chart.series(Series::new("guessing", [(0.0, 0.0), (1.0, 1.0)]));
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
    fn thinned_items_keep_the_first_and_the_last() {
        assert_eq!(thinned::<u8>(&[]), []);
        assert_eq!(thinned(&[7]), [7]);
        assert_eq!(thinned(&[1, 2, 3]), [1, 2, 3]);
        let many: Vec<u32> = thinned(&(0..1000).collect::<Vec<u32>>());
        assert_eq!((many.len(), many[0], many[11]), (12, 0, 999));
    }
}
