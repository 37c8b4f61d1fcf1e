//! Reports of experiments: charts as SVG, and pages as HTML and Markdown.
//!
//! The crate writes its own SVG. Three kinds of chart are needed, and all consist of rectangles, lines and text. Text is placed
//! by its anchor and by an estimate of its width, so that no font is read. The same chart always gives the same bytes, without
//! identifiers, scripts or style sheets, so that a picture can be committed, compared, and placed in a page beside others.
//!
//! A [`Page`] is data: parts, sections and blocks. It has few kinds of blocks, so HTML is written directly, without a template language. Every
//! text is escaped in one place. In a page, the style sheet recolours charts by the classes of their elements, so that they follow dark mode.
//!
//! Drawing never fails: values that cannot be drawn are left out, by a rule that each chart states.
//!
//! ```
//! use sordino_report::{Axis, HeatMap, LineChart, Series};
//!
//! let svg = LineChart::new("Privacy budget")
//!     .x(Axis::linear("step"))
//!     .y(Axis::log("epsilon"))
//!     .series(Series::new("constant noise", (1..=100).map(|t| (f64::from(t), 0.1 * f64::from(t).sqrt()))))
//!     .to_svg();
//! assert!(svg.starts_with("<svg"));
//!
//! let accuracy = [[91.2, 93.4], [92.0, 88.1]];
//! let svg = HeatMap::new("Accuracy")
//!     .rows("clipping norm", ["0.1", "1"])
//!     .columns("learning rate", ["0.5", "1"])
//!     .values("accuracy in %", |row, column| Some(accuracy[row][column]))
//!     .to_svg();
//! assert!(svg.contains("93.4"));
//! ```
#![forbid(unsafe_code)]

mod axis;
mod colour;
mod dot_plot;
mod heat_map;
mod html;
mod line_chart;
mod markdown;
mod number;
mod page;
mod svg;

pub use axis::Axis;
pub use dot_plot::{DotPlot, DotRow};
pub use heat_map::HeatMap;
pub use html::MARK;
pub use line_chart::{LineChart, Series};
pub use number::significant;
pub use page::{Block, Chart, Notice, Page, Part, Section, Table, Tone};
pub use svg::Picture;
