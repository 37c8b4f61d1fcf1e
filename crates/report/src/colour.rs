//! Colours that people with colour blindness can tell apart.

use std::fmt;

/// A colour in sRGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) u8, pub(crate) u8, pub(crate) u8);

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// The palette of Okabe and Ito (2008) without yellow, which is too pale for a line on white, and with a darker sky blue.
const SERIES: [Colour; 7] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0x22, 0x22, 0x22),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x3d, 0xa5, 0xdb),
];

/// The colour of a series, and its dashes once the colours repeat.
pub(crate) fn of_series(number: usize) -> (Colour, &'static str) {
    let dash = ["", "7 5", "2 5", "10 4 2 4"][number / SERIES.len() % 4];
    (SERIES[number % SERIES.len()], dash)
}

/// The class with which the style sheet of a page changes the colour of an element, as in dark mode; empty for colours that it does not change.
pub(crate) fn class(colour: Colour) -> &'static str {
    const CLASSES: [&str; 7] = ["s0", "s1", "s2", "s3", "ink", "s5", "s6"];
    match SERIES.iter().position(|&series| series == colour) {
        Some(number) => CLASSES[number],
        None if colour == crate::svg::GREY => "grey",
        None if colour == crate::svg::PALE => "pale",
        None => "",
    }
}

/// The map "viridis" of van der Walt and Smith (2015) at steps of one tenth: its lightness grows evenly, with or without colour vision.
const VIRIDIS: [Colour; 11] = [
    Colour(0x44, 0x01, 0x54),
    Colour(0x48, 0x24, 0x75),
    Colour(0x41, 0x44, 0x87),
    Colour(0x35, 0x5f, 0x8d),
    Colour(0x2a, 0x78, 0x8e),
    Colour(0x21, 0x91, 0x8c),
    Colour(0x22, 0xa8, 0x84),
    Colour(0x44, 0xbf, 0x70),
    Colour(0x7a, 0xd1, 0x51),
    Colour(0xbd, 0xdf, 0x26),
    Colour(0xfd, 0xe7, 0x25),
];

/// The colour of a share in `[0, 1]`: dark for low, bright for high.
pub(crate) fn of_share(share: f64) -> Colour {
    let place = share.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = (place as usize).min(VIRIDIS.len() - 2);
    let (low, high, part) = (VIRIDIS[below], VIRIDIS[below + 1], place - below as f64);
    let mix = |low: u8, high: u8| (f64::from(low) + part * (f64::from(high) - f64::from(low))).round() as u8;
    Colour(mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
}

impl Colour {
    /// Relative luminance as WCAG 2 defines it: 0 is black, 1 is white.
    fn luminance(self) -> f64 {
        let linear = |channel: u8| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2)
    }

    /// The contrast ratio of WCAG 2, from 1 to 21.
    fn contrast(self, other: Colour) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// White or near black: the colour in which text is readable on this one.
    pub(crate) fn text(self) -> Colour {
        let (light, dark) = (Colour(0xff, 0xff, 0xff), Colour(0x11, 0x11, 0x11));
        if self.contrast(light) > self.contrast(dark) { light } else { dark }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_run_through_the_map_and_grow_lighter() {
        assert_eq!(of_share(0.0), VIRIDIS[0]);
        assert_eq!(of_share(0.5), VIRIDIS[5]);
        assert_eq!(of_share(1.0), VIRIDIS[10]);
        assert_eq!(of_share(0.05), Colour(0x46, 0x13, 0x65));
        let lightness: Vec<f64> = (0..=100).map(|i| of_share(f64::from(i) / 100.0).luminance()).collect();
        assert!(lightness.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn text_is_readable_on_every_colour_of_the_map() {
        for i in 0..=100 {
            let colour = of_share(f64::from(i) / 100.0);
            assert!(colour.contrast(colour.text()) >= 4.3, "share {i}%");
        }
        assert!((Colour(0, 0, 0).contrast(Colour(255, 255, 255)) - 21.0).abs() < 1e-9);
    }

    #[test]
    fn lines_stand_out_from_white_and_repeat_with_dashes() {
        for colour in SERIES {
            assert!(colour.contrast(Colour(255, 255, 255)) > 2.2, "{colour}");
        }
        assert_eq!(of_series(0), (SERIES[0], ""));
        assert_eq!(of_series(8), (SERIES[1], "7 5"));
    }
}
