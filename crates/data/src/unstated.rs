//! Public options of a source that are not set, so that a public model may set them.

use crate::error::DataError;
use crate::format::Format;
use crate::source::Source;

/// Options that apply to the records of a source but are set neither by the source nor by its schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unstated {
    /// The tokenizer of texts.
    pub tokenizer: bool,
    /// The largest number of tokens of a text.
    pub max_length: bool,
    /// The size of PNG and JPEG images.
    pub image_size: bool,
    /// The channels of PNG and JPEG images.
    pub channels: bool,
    /// The number that is subtracted from pixels.
    pub mean: bool,
    /// The number by which pixels are divided.
    pub std: bool,
}

impl Unstated {
    /// Examines the names of the files and the schema; no record is read. Arrays are treated as possible images.
    ///
    /// # Errors
    ///
    /// A source whose format is not known, or a schema that cannot be read.
    pub fn of(source: &Source) -> Result<Unstated, DataError> {
        let (format, images) = (Format::of(&source.path)?, &source.images);
        match format {
            Format::Table(table) => {
                let (tokenizer, max_length) = table.unstated_texts(source)?;
                Ok(Unstated { tokenizer, max_length, ..Unstated::default() })
            }
            Format::SvmLight => Ok(Unstated::default()),
            _ => Ok(Unstated {
                image_size: format.has_stored_images() && images.size.is_none(),
                channels: format.has_stored_images() && images.channels.is_none(),
                mean: images.mean.is_none(),
                std: images.std.is_none(),
                ..Unstated::default()
            }),
        }
    }
}
