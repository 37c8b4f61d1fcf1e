//! Writes one chart of each kind to a folder: `cargo run -p sordino-report --example gallery -- FOLDER`.

use std::path::PathBuf;

use sordino_report::{Axis, HeatMap, LineChart, Series};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let curve = |from: f64, rate: f64| {
        (0..=50).map(move |i| (f64::from(100 * i), from * (-rate * f64::from(i)).exp()))
    };
    let schedule = LineChart::new("Clipping norm of four schedules")
        .x(Axis::linear("step"))
        .y(Axis::linear("clipping norm"))
        .series(Series::new("constant", curve(1.5, 0.0)))
        .series(Series::new("sensitivity decay", curve(1.5, 0.01)))
        .series(Series::new("dynamic", curve(1.5, 0.03)))
        .series(Series::new("faster decay", curve(1.5, 0.06)));
    std::fs::write(folder.join("lines.svg"), schedule.to_svg())?;

    let budgets = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
    let line = |name: &str, shift: f64| {
        let means: Vec<f64> = budgets.iter().map(|e: &f64| 93.0 + shift + 1.8 * e.ln()).collect();
        let spread: Vec<(f64, f64)> = means.iter().map(|mean| (mean - 0.6, mean + 0.6)).collect();
        (Series::new(name, budgets.into_iter().zip(means)).markers(), spread)
    };
    let ((first, bars), (second, band)) = (line("dp-sgd", 0.0), line("dp-nsgd", 1.6));
    let accuracy = LineChart::new("Accuracy by privacy budget")
        .x(Axis::log("epsilon"))
        .y(Axis::linear("accuracy in %"))
        .series(first.error_bars(bars))
        .series(second.band(band));
    std::fs::write(folder.join("spread.svg"), accuracy.to_svg())?;

    let (norms, rates) = ([0.01f64, 0.1, 1.0, 10.0], [0.1f64, 0.3, 1.0, 3.0, 10.0]);
    let map = HeatMap::new("Accuracy of dp-nsgd by regulariser and learning rate")
        .rows("regulariser", norms.map(|norm| norm.to_string()))
        .columns("learning rate", rates.map(|rate| rate.to_string()))
        .values("accuracy in %", |row, column| {
            let (norm, rate) = (norms[row].log10(), rates[column].log10());
            (row + column > 0).then(|| 95.0 - 9.0 * (norm - rate + 0.4f64).powi(2) - norm.powi(2))
        })
        .decimals(1)
        .outline(2, 3);
    std::fs::write(folder.join("map.svg"), map.to_svg())
}
