//! Heat maps: a table of numbers in colour.

use crate::colour::{self, Colour};
use crate::number::{exponent, fixed};
use crate::svg::{Anchor, Font, GREY, INK, PALE, Picture};

/// The smallest width of a cell, and its height.
const CELL: (f64, f64) = (68.0, 40.0);

/// A table of numbers in colour, with the number in each cell.
///
/// Dark cells are low and bright cells are high.
///
/// **Edge cases**: a cell without a value, or whose value is not finite (or above 1e150 in size), is pale and has a dash. Without
/// rows or columns the picture shows "no data". If all values are equal, all cells have the colour of the middle.
#[derive(Clone, Debug)]
pub struct HeatMap {
    title: String,
    row_title: String,
    rows: Vec<String>,
    column_title: String,
    columns: Vec<String>,
    value_title: String,
    values: Vec<Option<f64>>,
    decimals: Option<usize>,
    outlined: Option<(usize, usize)>,
}

impl HeatMap {
    /// A map without cells.
    pub fn new(title: impl Into<String>) -> HeatMap {
        HeatMap {
            title: title.into(),
            row_title: String::new(),
            rows: Vec::new(),
            column_title: String::new(),
            columns: Vec::new(),
            value_title: String::new(),
            values: Vec::new(),
            decimals: None,
            outlined: None,
        }
    }

    /// Sets the title of the rows, and their labels from top to bottom.
    pub fn rows<L: Into<String>>(
        mut self,
        title: impl Into<String>,
        labels: impl IntoIterator<Item = L>,
    ) -> HeatMap {
        self.row_title = title.into();
        self.rows = labels.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the title of the columns, and their labels from left to right.
    pub fn columns<L: Into<String>>(
        mut self,
        title: impl Into<String>,
        labels: impl IntoIterator<Item = L>,
    ) -> HeatMap {
        self.column_title = title.into();
        self.columns = labels.into_iter().map(Into::into).collect();
        self
    }

    /// Fills the cells from a function of row and column, after [`rows`](Self::rows) and [`columns`](Self::columns) are set.
    pub fn values(
        mut self,
        title: impl Into<String>,
        value: impl Fn(usize, usize) -> Option<f64>,
    ) -> HeatMap {
        self.value_title = title.into();
        let cells =
            (0..self.rows.len()).flat_map(|row| (0..self.columns.len()).map(move |column| (row, column)));
        self.values =
            cells.map(|(row, column)| value(row, column).filter(|value| value.abs() <= 1e150)).collect();
        self
    }

    /// Writes the numbers with this many decimals instead of as many as their differences need.
    pub fn decimals(mut self, decimals: usize) -> HeatMap {
        self.decimals = Some(decimals.min(12));
        self
    }

    /// Draws a frame around one cell, such as the best.
    pub fn outline(mut self, row: usize, column: usize) -> HeatMap {
        self.outlined = Some((row, column));
        self
    }

    /// The map as the text of an SVG file.
    pub fn to_svg(&self) -> String {
        self.picture().to_svg()
    }

    /// The map as a picture, which can be stacked with others.
    pub fn picture(&self) -> Picture {
        let layout = self.layout();
        let mut svg = Picture::new(layout.width, layout.height, &self.title);
        svg.text((20.0, 28.0), Anchor::Start, Font::TITLE, &self.title);
        if self.values.is_empty() {
            svg.text((layout.width / 2.0, layout.height / 2.0), Anchor::Middle, Font::LABEL, "no data");
            return svg;
        }
        self.draw_labels(&mut svg, &layout);
        for (place, &value) in self.values.iter().enumerate() {
            let at = layout.cell(place / self.columns.len(), place % self.columns.len());
            self.draw_cell(&mut svg, at, value);
        }
        if let Some((row, column)) =
            self.outlined.filter(|&(r, c)| r < self.rows.len() && c < self.columns.len())
        {
            let (x, y, width, height) = layout.cell(row, column);
            svg.frame((x - 0.5, y - 0.5, width + 1.0, height + 1.0), Colour(255, 255, 255), 5.0);
            svg.frame((x - 0.5, y - 0.5, width + 1.0, height + 1.0), INK, 2.5);
        }
        self.draw_scale(&mut svg, &layout);
        svg
    }

    /// The lowest and highest value, or `None` if no cell has a value.
    fn ends(&self) -> Option<(f64, f64)> {
        let values = self.values.iter().copied().flatten();
        values.fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
        })
    }

    /// A value as text: three digits of the largest difference, or as many decimals as were asked for.
    fn written(&self, value: f64) -> String {
        let (low, high) = self.ends().unwrap_or((0.0, 0.0));
        let size = if high > low { high - low } else { high.abs() };
        let decimals = self.decimals.unwrap_or_else(|| match size {
            0.0 => 0,
            size => usize::try_from(2 - exponent(size)).unwrap_or(0),
        });
        let top = low.abs().max(high.abs());
        if decimals > 12 || top >= 1e9 { format!("{value:.2e}") } else { fixed(value, decimals) }
    }

    fn share(&self, value: f64) -> f64 {
        match self.ends() {
            Some((low, high)) if low < high => (value - low) / (high - low),
            _ => 0.5,
        }
    }

    fn layout(&self) -> Layout {
        let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
        let labels = widest(&mut self.rows.iter().map(|label| Font::TICK.width(label)));
        let left = if self.row_title.is_empty() { 20.0 } else { 40.0 } + labels + 10.0;
        let numbers =
            widest(&mut self.values.iter().flatten().map(|&value| Font::LABEL.width(&self.written(value))));
        let heads = widest(&mut self.columns.iter().map(|label| Font::TICK.width(label)));
        let cell = (numbers.max(heads) + 18.0).max(CELL.0).ceil();
        let scale = numbers + 80.0;
        let width = left.ceil() + cell * self.columns.len().max(2) as f64 + scale;
        let height = 56.0 + CELL.1 * self.rows.len().max(3) as f64 + 56.0;
        Layout {
            left: left.ceil(),
            top: 56.0,
            cell,
            width: width.max(Font::TITLE.width(&self.title) + 40.0),
            height,
        }
    }

    fn draw_labels(&self, svg: &mut Picture, layout: &Layout) {
        for (row, label) in self.rows.iter().enumerate() {
            let (x, y, _, height) = layout.cell(row, 0);
            svg.text((x - 8.0, y + height / 2.0 + 4.0), Anchor::End, Font::TICK, label);
        }
        let bottom = layout.top + CELL.1 * self.rows.len() as f64;
        for (column, label) in self.columns.iter().enumerate() {
            let (x, _, width, _) = layout.cell(0, column);
            svg.text((x + width / 2.0, bottom + 18.0), Anchor::Middle, Font::TICK, label);
        }
        let middle = layout.left + layout.cell * self.columns.len() as f64 / 2.0;
        svg.text((middle, bottom + 40.0), Anchor::Middle, Font::LABEL, &self.column_title);
        svg.upward_text((22.0, (layout.top + bottom) / 2.0), Font::LABEL, &self.row_title);
    }

    fn draw_cell(&self, svg: &mut Picture, at: (f64, f64, f64, f64), value: Option<f64>) {
        let colour = value.map_or(PALE, |value| colour::of_share(self.share(value)));
        svg.rect((at.0 + 0.5, at.1 + 0.5, at.2 - 1.0, at.3 - 1.0), colour);
        let font = Font { colour: if value.is_some() { colour.text() } else { GREY }, ..Font::LABEL };
        let text = value.map_or_else(|| "\u{2013}".to_owned(), |value| self.written(value));
        svg.text((at.0 + at.2 / 2.0, at.1 + at.3 / 2.0 + 4.5), Anchor::Middle, font, &text);
    }

    fn draw_scale(&self, svg: &mut Picture, layout: &Layout) {
        let Some((low, high)) = self.ends() else { return };
        let (left, height) = (
            layout.left + layout.cell * self.columns.len() as f64 + 24.0,
            CELL.1 * self.rows.len().max(3) as f64,
        );
        let parts = 50;
        for part in 0..parts {
            let share = f64::from(part) / f64::from(parts - 1);
            let y = layout.top + height * (1.0 - f64::from(part + 1) / f64::from(parts));
            // Each part overlaps the one drawn before it, so that there is no gap between them.
            let reach = if part == 0 { 0.0 } else { 1.0 };
            svg.rect((left, y, 14.0, height / f64::from(parts) + reach), colour::of_share(share));
        }
        let ends = if low < high { vec![(low, height), (high, 0.0)] } else { vec![(low, height / 2.0)] };
        for (value, down) in ends {
            svg.text((left + 20.0, layout.top + down + 4.0), Anchor::Start, Font::TICK, &self.written(value));
        }
        // The title is between the two numbers. It is farther to the right if there is a single number in the middle.
        let aside = if low < high { left + 36.0 } else { left + 36.0 + Font::TICK.width(&self.written(low)) };
        svg.upward_text((aside, layout.top + height / 2.0), Font::TICK, &self.value_title);
    }
}

/// Where the cells are.
struct Layout {
    left: f64,
    top: f64,
    cell: f64,
    width: f64,
    height: f64,
}

impl Layout {
    fn cell(&self, row: usize, column: usize) -> (f64, f64, f64, f64) {
        (self.left + self.cell * column as f64, self.top + CELL.1 * row as f64, self.cell, CELL.1)
    }
}
