//! Augmentation multiplicity: random views of an image whose gradients are averaged before the image is clipped.

use sordino_nn::{Shape, Views};

use crate::TrainError;

/// The number of views of a record, unless another number is given.
const COPIES: usize = 4;

/// Parses views such as `flip,crop=4,copies=4`, for records of this shape.
///
/// # Errors
/// A part that is not permitted; records that are not images.
pub(crate) fn views(text: &str, shape: Shape) -> Result<Views, TrainError> {
    let refused = |problem: String| {
        Err(TrainError::refused(
            problem,
            "try {augment=flip,crop=4,copies=4}: mirror at random, shift by up to 4 pixels, average over 4 views",
        ))
    };
    let Shape::Image { height, width, .. } = shape else {
        return refused(format!("augment is for images, but the records are of shape {shape}"));
    };
    let mut views = Views { copies: COPIES, flip: false, crop: 0 };
    for part in text.split(',').map(str::trim) {
        let (name, number) = match part.split_once('=') {
            Some((name, value)) => (name, Some(value.parse::<usize>())),
            None => (part, None),
        };
        match (name, number) {
            ("flip", None) => views.flip = true,
            ("crop", Some(Ok(crop))) if crop < height.min(width) => views.crop = crop,
            ("crop", Some(_)) => {
                return refused(format!(
                    "crop must be a whole number from 0 to {}, got {part}",
                    height.min(width) - 1
                ));
            }
            ("copies", Some(Ok(copies @ 1..=1024))) => views.copies = copies,
            ("copies", Some(_)) => {
                return refused(format!("copies must be a whole number from 1 to 1024, got {part}"));
            }
            _ => return refused(format!("augment has the parts flip, crop=N and copies=N, got {part}")),
        }
    }
    match views.flip || views.crop > 0 {
        true => Ok(views),
        false => {
            refused(format!("augment needs flip or crop=N; without them, all views are equal, got {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: Shape = Shape::Image { channels: 3, height: 32, width: 32 };

    #[test]
    fn parts_are_read_in_any_order() {
        let read = |text| views(text, IMAGE).unwrap();
        assert_eq!(read("flip"), Views { copies: 4, flip: true, crop: 0 });
        assert_eq!(read("copies=8, crop=2,flip"), Views { copies: 8, flip: true, crop: 2 });
        assert_eq!(read("crop=31"), Views { copies: 4, flip: false, crop: 31 });
    }

    #[test]
    fn what_is_not_permitted_is_refused_with_its_value() {
        for (text, part) in [
            ("", "got "),
            ("rotate", "got rotate"),
            ("flip=1", "got flip=1"),
            ("crop", "got crop"),
            ("crop=32", "0 to 31, got crop=32"),
            ("flip,copies=0", "1 to 1024, got copies=0"),
            ("copies=4", "all views are equal"),
        ] {
            let message = views(text, IMAGE).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let message = views("flip", Shape::Features(3)).unwrap_err().to_string();
        assert!(message.contains("augment is for images"), "{message}");
    }
}
