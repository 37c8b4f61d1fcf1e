//! Line charts with several series.

use crate::axis::{Axis, Scale};
use crate::colour::{self, Colour};
use crate::number::significant;
use crate::svg::{Anchor, Font, GREY, PALE, Picture, shortened};

/// Size of the area that the axes enclose.
const PLOT: (f64, f64) = (560.0, 340.0);

/// The same in a page, where a chart must be readable on a phone.
const COMPACT_PLOT: (f64, f64) = (290.0, 200.0);
/// The largest width of a name in a compact legend.
const COMPACT_NAME: f64 = 330.0;

/// A chart of one or more lines.
///
/// **Edge cases**: a point with a coordinate that is not finite (or above 1e150 in size), or that is not positive on a log axis, is
/// left out, and the line has a gap there. A chart without any point shows "no data". A single point is drawn as a dot.
#[derive(Clone, Debug)]
pub struct LineChart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    compact: bool,
}

/// One line of a [`LineChart`].
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    spread: Spread,
    markers: bool,
    line: bool,
}

/// What surrounds a line: the lowest and highest value at each of its points.
#[derive(Clone, Debug)]
enum Spread {
    None,
    Band(Vec<(f64, f64)>),
    Bars(Vec<(f64, f64)>),
}

impl Series {
    /// A line through `(x, y)` points, in their order.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series {
            name: name.into(),
            points: points.into_iter().collect(),
            spread: Spread::None,
            markers: false,
            line: true,
        }
    }

    /// Draws a dot at each point.
    pub fn markers(mut self) -> Series {
        self.markers = true;
        self
    }

    /// Draws dots alone, without a line through them.
    pub fn only_markers(mut self) -> Series {
        (self.markers, self.line) = (true, false);
        self
    }

    /// Draws a translucent band between the `(low, high)` of each point.
    ///
    /// A pair that cannot be drawn interrupts the band, and points without a pair have none.
    pub fn band(mut self, low_high: impl IntoIterator<Item = (f64, f64)>) -> Series {
        self.spread = Spread::Band(low_high.into_iter().collect());
        self
    }

    /// Draws an error bar from `low` to `high` at each point; a pair that cannot be drawn is left out.
    pub fn error_bars(mut self, low_high: impl IntoIterator<Item = (f64, f64)>) -> Series {
        self.spread = Spread::Bars(low_high.into_iter().collect());
        self
    }

    fn spread(&self) -> &[(f64, f64)] {
        match &self.spread {
            Spread::None => &[],
            Spread::Band(pairs) | Spread::Bars(pairs) => &pairs[..pairs.len().min(self.points.len())],
        }
    }
}

impl LineChart {
    /// A chart without lines and with linear axes.
    pub fn new(title: impl Into<String>) -> LineChart {
        LineChart {
            title: title.into(),
            x: Axis::linear(""),
            y: Axis::linear(""),
            series: Vec::new(),
            compact: false,
        }
    }

    /// Sets the horizontal axis.
    pub fn x(mut self, axis: Axis) -> LineChart {
        self.x = axis;
        self
    }

    /// Sets the vertical axis.
    pub fn y(mut self, axis: Axis) -> LineChart {
        self.y = axis;
        self
    }

    /// Adds a line. After seven lines the colours repeat with dashes.
    pub fn series(mut self, series: Series) -> LineChart {
        self.series.push(series);
        self
    }

    /// Makes the chart narrow enough for a phone: without a title, because the page shows it, and with the legend below. The numbers of
    /// a point are shown while the pointer is on it.
    pub fn compact(mut self) -> LineChart {
        self.compact = true;
        self
    }

    /// The chart as the text of an SVG file.
    pub fn to_svg(&self) -> String {
        self.picture().to_svg()
    }

    /// The chart as a picture, which can be stacked with others.
    pub fn picture(&self) -> Picture {
        let frame = Frame::new(self);
        let plot = frame.plot;
        let size = self.size(&frame);
        let mut svg = Picture::new(size.0, size.1, &self.title);
        if !self.compact {
            svg.text((frame.left, 28.0), Anchor::Start, Font::TITLE, &self.title);
        }
        frame.draw_axes(&mut svg, &self.x.label, &self.y.label);
        // Half of a dot may lie outside the axes.
        let inside = (frame.left - 5.0, frame.top - 5.0, plot.0 + 10.0, plot.1 + 10.0);
        svg.clipped(inside, |svg| {
            for (number, series) in self.series.iter().enumerate() {
                frame.draw_spread(svg, series, colour::of_series(number).0);
            }
            for (number, series) in self.series.iter().enumerate() {
                frame.draw_line(svg, series, colour::of_series(number));
            }
            if self.compact {
                self.series.iter().for_each(|series| self.draw_hover(svg, &frame, series));
            }
        });
        if !self.drawable().any(|_| true) {
            let middle = (frame.left + plot.0 / 2.0, frame.top + plot.1 / 2.0);
            svg.text(middle, Anchor::Middle, Font::LABEL, "no data");
        }
        if self.has_legend() {
            let corner = match self.compact {
                false => (frame.left + plot.0 + 16.0, frame.top + 8.0),
                true => (20.0, frame.top + plot.1 + 70.0),
            };
            self.draw_legend(&mut svg, corner);
        }
        svg
    }

    /// Width and height of the picture.
    fn size(&self, frame: &Frame) -> (f64, f64) {
        let names = self.series.iter().map(|series| Font::LABEL.width(&series.name)).fold(0.0, f64::max);
        let bottom = frame.top + frame.plot.1 + 58.0;
        if self.compact {
            let legend = if self.has_legend() {
                (names.min(COMPACT_NAME) + 56.0, 22.0 * self.series.len() as f64)
            } else {
                (0.0, 0.0)
            };
            return ((frame.left + frame.plot.0 + 24.0).max(legend.0), bottom + legend.1);
        }
        let legend = if self.has_legend() { names + 56.0 } else { 24.0 };
        ((frame.left + frame.plot.0 + legend).max(Font::TITLE.width(&self.title) + 40.0), bottom)
    }

    /// There is no legend for a single line without a name, because the title explains it.
    fn has_legend(&self) -> bool {
        self.series.len() > 1 || self.series.iter().any(|series| !series.name.is_empty())
    }

    /// The points that both axes can show.
    fn drawable(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.series.iter().flat_map(|series| series.points.iter().copied());
        points.filter(|&(x, y)| self.x.shows(x) && self.y.shows(y))
    }

    fn draw_hover(&self, svg: &mut Picture, frame: &Frame, series: &Series) {
        for &(x, y) in &series.points {
            if let Some(place) = frame.at((x, y)) {
                let name = if series.name.is_empty() { "" } else { ": " };
                let text = format!(
                    "{}{name}{} {}, {} {}",
                    series.name,
                    self.x.label,
                    significant(x),
                    self.y.label,
                    significant(y)
                );
                svg.hover(place, &text);
            }
        }
    }

    fn draw_legend(&self, svg: &mut Picture, (left, top): (f64, f64)) {
        for (number, series) in self.series.iter().enumerate() {
            let (colour, dash) = colour::of_series(number);
            let y = top + 22.0 * number as f64;
            if series.line {
                svg.path(&[(left, y), (left + 22.0, y)], colour, dash);
            }
            if series.markers {
                svg.dot((left + 11.0, y), colour);
            }
            let width = if self.compact { COMPACT_NAME } else { f64::INFINITY };
            let name = shortened(&series.name, Font::LABEL, width);
            svg.text((left + 30.0, y + 4.5), Anchor::Start, Font::LABEL, &name);
        }
    }
}

/// The area inside the axes, and where points lie in it.
struct Frame {
    left: f64,
    top: f64,
    plot: (f64, f64),
    x: Scale,
    y: Scale,
}

impl Frame {
    fn new(chart: &LineChart) -> Frame {
        let x = chart.x.scale(chart.drawable().map(|(x, _)| x));
        let spreads = chart
            .series
            .iter()
            .flat_map(|series| series.spread().iter().flat_map(|&(low, high)| [low, high]));
        let y = chart.y.scale(chart.drawable().map(|(_, y)| y).chain(spreads));
        let widest = y.ticks.iter().map(|tick| Font::TICK.width(&tick.label)).fold(0.0, f64::max);
        let label = if chart.y.label.is_empty() { 20.0 } else { 40.0 };
        let (top, plot) = if chart.compact { (16.0, COMPACT_PLOT) } else { (48.0, PLOT) };
        Frame { left: (label + widest + 8.0).ceil(), top, plot, x, y }
    }

    /// The place of a point in the picture.
    fn at(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.left + self.plot.0 * self.x.place(x)?, self.top + self.plot.1 * (1.0 - self.y.place(y)?)))
    }

    fn draw_axes(&self, svg: &mut Picture, x_label: &str, y_label: &str) {
        let (bottom, right) = (self.top + self.plot.1, self.left + self.plot.0);
        for tick in &self.y.ticks {
            let y = self.top + self.plot.1 * (1.0 - self.y.place(tick.value).unwrap_or(0.0));
            svg.line((self.left, y), (right, y), PALE, 1.0);
            svg.text((self.left - 8.0, y + 4.0), Anchor::End, Font::TICK, &tick.label);
        }
        let mut free = f64::NEG_INFINITY;
        for tick in &self.x.ticks {
            let x = self.left + self.plot.0 * self.x.place(tick.value).unwrap_or(0.0);
            svg.line((x, bottom), (x, bottom + 5.0), GREY, 1.0);
            // A label that would touch the one before it is left out.
            let half = Font::TICK.width(&tick.label) / 2.0;
            if x - half >= free {
                svg.text((x, bottom + 20.0), Anchor::Middle, Font::TICK, &tick.label);
                free = x + half + 6.0;
            }
        }
        svg.line((self.left, bottom), (right, bottom), GREY, 1.0);
        svg.text((self.left + self.plot.0 / 2.0, bottom + 44.0), Anchor::Middle, Font::LABEL, x_label);
        svg.upward_text((22.0, self.top + self.plot.1 / 2.0), Font::LABEL, y_label);
    }

    fn draw_line(&self, svg: &mut Picture, series: &Series, (colour, dash): (Colour, &str)) {
        let places: Vec<Option<(f64, f64)>> = series.points.iter().map(|&point| self.at(point)).collect();
        for run in runs(&places) {
            if series.line && run.len() > 1 {
                svg.path(&run, colour, dash);
            }
            if series.markers || run.len() == 1 {
                run.iter().for_each(|&place| svg.dot(place, colour));
            }
        }
    }

    fn draw_spread(&self, svg: &mut Picture, series: &Series, colour: Colour) {
        let ends: Vec<Option<[(f64, f64); 2]>> = series
            .points
            .iter()
            .zip(series.spread())
            .map(|(&(x, y), &(low, high))| {
                self.at((x, y)).and(Some([self.at((x, low))?, self.at((x, high))?]))
            })
            .collect();
        if let Spread::Bars(_) = series.spread {
            for [low, high] in ends.into_iter().flatten() {
                svg.line(low, high, colour, 1.5);
                for (x, y) in [low, high] {
                    svg.line((x - 4.0, y), (x + 4.0, y), colour, 1.5);
                }
            }
        } else {
            for run in runs(&ends) {
                let lower = run.iter().map(|ends| ends[0]);
                let upper = run.iter().rev().map(|ends| ends[1]);
                svg.area(&lower.chain(upper).collect::<Vec<_>>(), colour);
            }
        }
    }
}

/// The parts of a line between its gaps.
fn runs<T: Copy>(items: &[Option<T>]) -> Vec<Vec<T>> {
    let stretches = items.split(Option::is_none).map(|stretch| stretch.iter().flatten().copied().collect());
    stretches.filter(|stretch: &Vec<T>| !stretch.is_empty()).collect()
}
