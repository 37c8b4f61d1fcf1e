//! The few SVG elements that charts consist of, as text.

use std::fmt::Write;

use crate::colour::{Colour, class};

/// Text is dark grey rather than black, which reads better on white.
///
/// It is also the colour of a series, so that both become light in dark mode.
pub(crate) const INK: Colour = Colour(0x22, 0x22, 0x22);
/// Axis lines and tick labels.
pub(crate) const GREY: Colour = Colour(0x55, 0x55, 0x55);
/// Grid lines.
pub(crate) const PALE: Colour = Colour(0xe2, 0xe2, 0xe2);

/// Where a text lies relative to its position.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(crate) struct Font {
    pub(crate) size: f64,
    pub(crate) colour: Colour,
    pub(crate) bold: bool,
}

impl Font {
    pub(crate) const TITLE: Font = Font { size: 16.0, colour: INK, bold: true };
    pub(crate) const LABEL: Font = Font { size: 13.0, colour: INK, bold: false };
    pub(crate) const TICK: Font = Font { size: 12.0, colour: GREY, bold: false };

    /// An estimate of a text's width. It is too large rather than too small for the usual sans-serif fonts.
    pub(crate) fn width(self, text: &str) -> f64 {
        text.chars().count() as f64 * self.size * if self.bold { 0.62 } else { 0.57 }
    }
}

/// A text that is cut so that it is at most about this wide.
pub(crate) fn shortened(text: &str, font: Font, width: f64) -> String {
    if font.width(text) <= width {
        return text.to_owned();
    }
    let room = (width / font.width("m")) as usize;
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// A picture: its size, its name for screen readers, and its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    width: f64,
    height: f64,
    title: String,
    elements: String,
}

impl Picture {
    /// One picture that shows several pictures below each other.
    pub fn stacked(title: impl Into<String>, pictures: impl IntoIterator<Item = Picture>) -> Picture {
        let mut all = Picture { width: 0.0, height: 0.0, title: title.into(), elements: String::new() };
        for picture in pictures {
            let _ = write!(
                all.elements,
                "<svg y=\"{}\" width=\"{}\" height=\"{}\">",
                px(all.height),
                px(picture.width),
                px(picture.height)
            );
            all.elements += &picture.elements;
            all.elements += "</svg>\n";
            all.width = all.width.max(picture.width);
            all.height += picture.height;
        }
        // The size of an SVG picture must be positive.
        Picture { width: all.width.max(1.0), height: all.height.max(1.0), ..all }
    }

    /// The picture as the text of an SVG file.
    pub fn to_svg(&self) -> String {
        let (width, height, title) = (px(self.width), px(self.height), escaped(&self.title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" font-family=\"system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n<title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.elements
        )
    }

    /// The picture as a part of an HTML page, whose style sheet sets its background and its colours.
    ///
    /// It fills the width that is available. `description` is a text alternative for screen readers.
    pub fn to_inline_svg(&self, description: &str) -> String {
        let (width, height) = (px(self.width), px(self.height));
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n{}</svg>\n",
            escaped(&self.title),
            escaped(description),
            self.elements
        )
    }

    /// An empty white picture.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Picture {
        Picture {
            width: width.ceil(),
            height: height.ceil(),
            title: title.to_owned(),
            elements: String::new(),
        }
    }

    /// An element without content. Its attributes contain only numbers and colours.
    fn element(&mut self, inside: &str) {
        self.elements.push('<');
        self.elements.push_str(inside);
        self.elements.push_str("/>\n");
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Colour, width: f64) {
        self.element(&format!(
            "line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"{width}\"{}",
            px(from.0),
            px(from.1),
            px(to.0),
            px(to.1),
            classed(colour)
        ));
    }

    /// A line through points; `dash` is SVG's list of lengths, or empty.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], colour: Colour, dash: &str) {
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        self.element(&format!(
            "polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\" \
             stroke-linecap=\"round\"{dash}{}",
            list(points),
            classed(colour)
        ));
    }

    /// A translucent area.
    pub(crate) fn area(&mut self, outline: &[(f64, f64)], colour: Colour) {
        self.element(&format!(
            "polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.18\"{}",
            list(outline),
            classed(colour)
        ));
    }

    pub(crate) fn dot(&mut self, at: (f64, f64), colour: Colour) {
        self.element(&format!(
            "circle cx=\"{}\" cy=\"{}\" r=\"3.5\" fill=\"{colour}\" stroke=\"#ffffff\" stroke-width=\"1\"{}",
            px(at.0),
            px(at.1),
            classed(colour)
        ));
    }

    /// An invisible disc that shows a text while the pointer is on it.
    pub(crate) fn hover(&mut self, at: (f64, f64), text: &str) {
        let _ = writeln!(
            self.elements,
            "<circle cx=\"{}\" cy=\"{}\" r=\"9\" fill=\"#ffffff\" fill-opacity=\"0\"><title>{}</title></circle>",
            px(at.0),
            px(at.1),
            escaped(text)
        );
    }

    pub(crate) fn rect(&mut self, (x, y, width, height): (f64, f64, f64, f64), fill: Colour) {
        self.element(&format!(
            "rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"{}",
            px(x),
            px(y),
            px(width),
            px(height),
            classed(fill)
        ));
    }

    pub(crate) fn frame(
        &mut self,
        (x, y, width, height): (f64, f64, f64, f64),
        stroke: Colour,
        stroke_width: f64,
    ) {
        self.element(&format!(
            "rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{stroke_width}\"{}",
            px(x),
            px(y),
            px(width),
            px(height),
            classed(stroke)
        ));
    }

    pub(crate) fn text(&mut self, at: (f64, f64), anchor: Anchor, font: Font, text: &str) {
        self.placed_text(&format!("x=\"{}\" y=\"{}\"", px(at.0), px(at.1)), anchor, font, text);
    }

    /// Text that reads from bottom to top.
    pub(crate) fn upward_text(&mut self, at: (f64, f64), font: Font, text: &str) {
        let place = format!("transform=\"translate({} {}) rotate(-90)\"", px(at.0), px(at.1));
        self.placed_text(&place, Anchor::Middle, font, text);
    }

    fn placed_text(&mut self, place: &str, anchor: Anchor, font: Font, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if font.bold { " font-weight=\"600\"" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(
            self.elements,
            "<text {place} text-anchor=\"{anchor}\" font-size=\"{}\" fill=\"{}\"{weight}{}>{}</text>",
            font.size,
            font.colour,
            classed(font.colour),
            escaped(text)
        );
    }

    /// Draws inside a rectangle, and cuts off what lies outside it. The coordinates stay the same.
    pub(crate) fn clipped(
        &mut self,
        (x, y, width, height): (f64, f64, f64, f64),
        draw: impl FnOnce(&mut Picture),
    ) {
        let (x, y, width, height) = (px(x), px(y), px(width), px(height));
        let _ = writeln!(
            self.elements,
            "<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" viewBox=\"{x} {y} {width} {height}\" overflow=\"hidden\">"
        );
        draw(self);
        self.elements.push_str("</svg>\n");
    }
}

/// The attribute with the class of a colour, if it has one.
fn classed(colour: Colour) -> String {
    match class(colour) {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    }
}

/// A coordinate with at most two decimals and without "-0".
fn px(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0 + 0.0;
    format!("{rounded}")
}

fn list(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|&(x, y)| format!("{},{}", px(x), px(y))).collect();
    points.join(" ")
}

/// Text as XML content: markup is escaped, and control characters, which XML forbids, become U+FFFD.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\t' | '\n' | '\r' => safe.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_have_two_decimals_and_no_negative_zero() {
        assert_eq!(px(1.0 / 3.0), "0.33");
        assert_eq!(px(-0.001), "0");
        assert_eq!(px(12.0), "12");
    }

    #[test]
    fn text_that_xml_forbids_becomes_text_that_it_permits() {
        assert_eq!(escaped("a<b & \"c\">\u{1}\n"), "a&lt;b &amp; &quot;c&quot;&gt;\u{fffd} ");
    }
}
