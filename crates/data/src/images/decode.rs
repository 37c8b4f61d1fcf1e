//! PNG and JPEG images, converted to a public shape.

use std::io::Cursor;

use image::imageops::{FilterType, resize};
use image::{DynamicImage, ImageError, ImageReader, Limits};
use sordino_nn::Shape;

use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;

/// The largest height and width of an image before it is resized.
const MAX_STORED_SIDE: u32 = 1 << 15;
/// The largest size of a decoded image in memory, in bytes.
const MAX_STORED_BYTES: u64 = 1 << 29;

/// Converts images to a shape.
pub(crate) struct Decoder {
    channels: usize,
    height: u32,
    width: u32,
    /// The value of each byte.
    values: [f32; 256],
}

impl Decoder {
    /// A decoder for images of this shape, which has 1 or 3 channels.
    pub(crate) fn new(shape: Shape, conversion: Conversion) -> Decoder {
        let Shape::Image { channels, height, width } = shape else {
            unreachable!("the shape of the image options is an image")
        };
        debug_assert_eq!(conversion.encoding == Encoding::Bytes, conversion.apply(255.0) == Ok(1.0));
        let values = std::array::from_fn(|byte| conversion.apply(byte as f64).unwrap_or_default());
        // Both sides are at most 4096, or those of a network's input.
        Decoder { channels, height: height as u32, width: width as u32, values }
    }

    /// Decodes one image into its values, channel by channel. It is converted to 8 bits, then to grey or to red, green and blue, then
    /// resized with a triangle filter, which averages when an image is made smaller. The aspect ratio is not kept; transparency and the
    /// orientation in the metadata are ignored.
    pub(crate) fn decode(&self, place: &str, bytes: &[u8], values: &mut [f32]) -> Result<(), DataError> {
        let image = stored(place, bytes)?;
        match self.channels {
            1 => {
                let image = image.into_luma8();
                let same = image.dimensions() == (self.width, self.height);
                let image =
                    if same { image } else { resize(&image, self.width, self.height, FilterType::Triangle) };
                self.fill(&image, values);
            }
            _ => {
                let image = image.into_rgb8();
                let same = image.dimensions() == (self.width, self.height);
                let image =
                    if same { image } else { resize(&image, self.width, self.height, FilterType::Triangle) };
                self.fill(&image, values);
            }
        }
        Ok(())
    }

    /// Copies pixels whose channels come last.
    fn fill(&self, pixels: &[u8], values: &mut [f32]) {
        let area = values.len() / self.channels;
        for (channel, plane) in values.chunks_exact_mut(area).enumerate() {
            let from = pixels[channel..].iter().step_by(self.channels);
            plane.iter_mut().zip(from).for_each(|(value, &byte)| *value = self.values[usize::from(byte)]);
        }
    }
}

/// The image as it is stored.
fn stored(place: &str, bytes: &[u8]) -> Result<DynamicImage, DataError> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_STORED_SIDE);
    limits.max_image_height = Some(MAX_STORED_SIDE);
    limits.max_alloc = Some(MAX_STORED_BYTES);
    let mut reader = ImageReader::new(Cursor::new(bytes));
    reader.limits(limits);
    // Reading from memory does not fail.
    let reader = reader.with_guessed_format().map_err(|error| damaged(place, &ImageError::IoError(error)))?;
    if reader.format().is_none() {
        return Err(DataError::file(
            place,
            "is neither a PNG nor a JPEG image",
            "remove the file, or convert it to PNG or JPEG; the content counts, not the name",
        ));
    }
    reader.decode().map_err(|error| damaged(place, &error))
}

fn damaged(place: &str, error: &ImageError) -> DataError {
    match error {
        ImageError::Limits(_) => DataError::file(
            place,
            format!(
                "the image is too large: at most {MAX_STORED_SIDE} pixels on each side and {} MiB in memory are permitted",
                MAX_STORED_BYTES >> 20
            ),
            "make the image smaller, or remove it; its header may be damaged",
        ),
        ImageError::Unsupported(_) => DataError::file(
            place,
            format!("the image cannot be read: {error}"),
            "convert it to a common form of PNG or JPEG",
        ),
        _ => DataError::file(
            place,
            format!("the image cannot be read: {error}"),
            "the file is truncated or damaged; copy or download it again, or remove it",
        ),
    }
}
