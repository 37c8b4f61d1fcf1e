//! Dot plots: one value per row, with its spread.

use crate::axis::{Axis, Scale};
use crate::colour::{self, Colour};
use crate::number::significant;
use crate::svg::{Anchor, Font, GREY, INK, PALE, Picture, shortened};

/// The width of the area that the axis spans, and the height of a row.
const PLOT: f64 = 330.0;
const ROW: f64 = 42.0;

/// A chart of one value per row, such as one algorithm each. Labels are above their rows and are
/// shortened if need be, so that the chart is narrow.
///
/// **Edge cases**: a value that the axis cannot show is left out, and its row has only a label. Without rows the picture shows "no data".
#[derive(Clone, Debug)]
pub struct DotPlot {
    title: String,
    axis: Axis,
    rows: Vec<DotRow>,
    mark: Option<(String, f64)>,
}

/// A row of a [`DotPlot`].
#[derive(Clone, Debug)]
pub struct DotRow {
    label: String,
    value: f64,
    spread: Option<(f64, f64)>,
    single: Vec<f64>,
    series: usize,
}

impl DotRow {
    /// A row with a dot at this value.
    pub fn new(label: impl Into<String>, value: f64) -> DotRow {
        DotRow { label: label.into(), value, spread: None, single: Vec::new(), series: 0 }
    }

    /// Draws a bar from `low` to `high` through the dot.
    pub fn spread(mut self, low: f64, high: f64) -> DotRow {
        self.spread = Some((low, high));
        self
    }

    /// Draws a short line at each of these values, such as the results of single runs.
    pub fn single(mut self, values: impl IntoIterator<Item = f64>) -> DotRow {
        self.single = values.into_iter().collect();
        self
    }

    /// Gives the row the colour of another series.
    pub fn series(mut self, number: usize) -> DotRow {
        self.series = number;
        self
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let ends = self.spread.into_iter().flat_map(|(low, high)| [low, high]);
        std::iter::once(self.value).chain(ends).chain(self.single.iter().copied())
    }
}

impl DotPlot {
    /// A plot without rows.
    pub fn new(title: impl Into<String>, axis: Axis) -> DotPlot {
        DotPlot { title: title.into(), axis, rows: Vec::new(), mark: None }
    }

    /// Adds a row below the others.
    pub fn row(mut self, row: DotRow) -> DotPlot {
        self.rows.push(row);
        self
    }

    /// Draws a vertical line at a value, with its name above it.
    pub fn mark(mut self, name: impl Into<String>, value: f64) -> DotPlot {
        self.mark = Some((name.into(), value)).filter(|(_, value)| self.axis.shows(*value));
        self
    }

    /// The plot as a picture.
    pub fn picture(&self) -> Picture {
        let marked = self.mark.iter().map(|(_, value)| *value);
        let scale = self.axis.scale(self.rows.iter().flat_map(DotRow::values).chain(marked));
        let (left, top) = (20.0, if self.mark.is_some() { 36.0 } else { 14.0 });
        let bottom = top + ROW * self.rows.len().max(1) as f64 + 6.0;
        let mut svg = Picture::new(left + PLOT + 30.0, bottom + 56.0, &self.title);
        self.draw_axis(&mut svg, &scale, (left, top, bottom));
        for (number, row) in self.rows.iter().enumerate() {
            let y = top + ROW * number as f64;
            let label = shortened(&row.label, Font::LABEL, PLOT + 20.0);
            svg.text((left, y + 14.0), Anchor::Start, Font::LABEL, &label);
            draw_row(&mut svg, &scale, row, (left, y + 28.0));
        }
        if self.rows.is_empty() {
            svg.text((left + PLOT / 2.0, top + 24.0), Anchor::Middle, Font::LABEL, "no data");
        }
        svg
    }

    fn draw_axis(&self, svg: &mut Picture, scale: &Scale, (left, top, bottom): (f64, f64, f64)) {
        let mut free = f64::NEG_INFINITY;
        for tick in &scale.ticks {
            let x = left + PLOT * scale.place(tick.value).unwrap_or(0.0);
            // The grid has gaps at the labels of rows.
            for number in 0..self.rows.len() {
                let y = top + ROW * number as f64;
                svg.line((x, y + 19.0), (x, y + 37.0), PALE, 1.0);
            }
            svg.line((x, bottom), (x, bottom + 5.0), GREY, 1.0);
            let half = Font::TICK.width(&tick.label) / 2.0;
            if x - half >= free {
                svg.text((x, bottom + 20.0), Anchor::Middle, Font::TICK, &tick.label);
                free = x + half + 6.0;
            }
        }
        svg.line((left, bottom), (left + PLOT, bottom), GREY, 1.0);
        svg.text((left + PLOT / 2.0, bottom + 44.0), Anchor::Middle, Font::LABEL, &self.axis.label);
        if let Some((name, value)) = &self.mark {
            let x = left + PLOT * scale.place(*value).unwrap_or(0.0);
            for number in 0..self.rows.len() {
                let y = top + ROW * number as f64;
                svg.line((x, y + 18.0), (x, y + 40.0), INK, 2.0);
            }
            let half = Font::TICK.width(name) / 2.0;
            let at = x.clamp(left + half, (left + PLOT - half).max(left + half));
            svg.text((at, 20.0), Anchor::Middle, Font { colour: INK, ..Font::TICK }, name);
            svg.line((x, 26.0), (x, top), INK, 2.0);
        }
    }
}

fn draw_row(svg: &mut Picture, scale: &Scale, row: &DotRow, (left, y): (f64, f64)) {
    let colour: Colour = colour::of_series(row.series).0;
    let at = |value: f64| scale.place(value).map(|place| left + PLOT * place);
    for x in row.single.iter().filter_map(|&value| at(value)) {
        svg.line((x, y - 5.0), (x, y + 5.0), colour, 1.0);
    }
    if let Some((low, high)) = row.spread.and_then(|(low, high)| Some((at(low)?, at(high)?))) {
        svg.line((low, y), (high, y), colour, 3.0);
    }
    if let Some(x) = at(row.value) {
        svg.dot((x, y), colour);
        let spread =
            row.spread.map(|(low, high)| format!(", from {} to {}", significant(low), significant(high)));
        svg.hover(
            (x, y),
            &format!("{}: {}{}", row.label, significant(row.value), spread.unwrap_or_default()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_dot_their_spread_and_their_numbers() {
        let plot = DotPlot::new("accuracy", Axis::linear("%"))
            .row(DotRow::new("dp-sgd", 95.0).spread(94.0, 96.0).single([94.5, 95.5]))
            .row(DotRow::new("<b>", f64::NAN))
            .mark("claim", 97.0);
        let svg = plot.picture().to_svg();
        assert!(svg.contains("<title>dp-sgd: 95, from 94 to 96</title>"), "{svg}");
        assert!(svg.contains("&lt;b&gt;") && svg.contains(">claim<") && !svg.contains("NaN"));
        // The visible dot and the disc for the pointer; none for the row without a value.
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(DotPlot::new("", Axis::linear("")).picture().to_svg().contains("no data"));
    }
}
