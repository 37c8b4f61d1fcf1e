//! Sets of PNG and JPEG images, which are decoded in batches on all cores: to hold them in memory, to write a file of records, or only to
//! check them.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sordino_nn::{Shape, Targets};

use super::Decoder;
use crate::cache::{CacheWriter, Converted, Facts, Type};
use crate::check::Problems;
use crate::dataset::{Dataset, check_size, no_records};
use crate::encoding::{Conversion, Encoding};
use crate::error::DataError;
use crate::input::unreadable;
use crate::labels::LabelValues;
use crate::source::Splits;

/// The largest number of images that are decoded at once.
const MAX_BATCH: usize = 256;
/// The largest number of values that are decoded at once, unless one image has more.
const MAX_BATCH_VALUES: usize = 1 << 25;

/// The labelled images of a source.
pub(crate) struct ImageSets {
    pub(crate) shape: Shape,
    /// The names of the classes.
    pub(crate) names: Vec<String>,
    pub(crate) train: Images,
    pub(crate) test: Option<Images>,
}

/// A set of images, in their order.
pub(crate) struct Images {
    /// The file or folder, for messages.
    pub(crate) file: String,
    pub(crate) images: Box<dyn Iterator<Item = Result<StoredImage, DataError>>>,
}

/// An image as it is stored.
pub(crate) struct StoredImage {
    /// Its location, for messages.
    pub(crate) place: String,
    pub(crate) content: Content,
    /// Its class, or why it has none; 0 in a set without labels.
    pub(crate) class: Result<u32, DataError>,
}

/// The content of an image.
pub(crate) enum Content {
    File(PathBuf),
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "only Parquet files have such images"))]
    Bytes(Vec<u8>),
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "only Parquet files have such images"))]
    Missing,
}

/// Images that were decoded together.
struct Batch<'a> {
    /// The values of images that cannot be read are 0.
    values: &'a [f32],
    /// The class of each image.
    classes: Vec<Result<u32, DataError>>,
    /// Why an image cannot be read, for each image.
    errors: Vec<Option<DataError>>,
}

impl Batch<'_> {
    /// The classes, or the first problem.
    fn checked(self) -> Result<Vec<u32>, DataError> {
        let images = self.errors.into_iter().zip(self.classes);
        images.map(|(error, class)| error.map_or(class, Err)).collect()
    }
}

impl ImageSets {
    /// Reads all images into memory; the first problem is an error.
    pub(crate) fn read(self) -> Result<Splits, DataError> {
        let ImageSets { shape, names, train, test } = self;
        let train = train.labelled(shape, &names, None)?;
        let test = test.map(|test| test.labelled(shape, &names, None)).transpose()?;
        Ok(Splits { train, test, schema: None })
    }

    /// Adds every problem; memory does not grow with the number of images.
    pub(crate) fn check(self, problems: &mut Problems) -> Result<(), DataError> {
        for images in [Some(self.train), self.test].into_iter().flatten() {
            let conversion = Conversion::new(&images.file, Encoding::Bytes, None)?;
            let checked = images.each_batch(self.shape, conversion, |batch| {
                problems.records += batch.errors.len() as u64;
                for (error, class) in batch.errors.into_iter().zip(batch.classes) {
                    error.into_iter().chain(class.err()).for_each(|problem| problems.add(problem));
                }
                Ok(())
            });
            checked.unwrap_or_else(|problem| problems.add(problem));
        }
        Ok(())
    }

    /// Writes all images to a file of records; memory grows with the labels only.
    pub(crate) fn convert(self, path: &Path) -> Result<Converted, DataError> {
        let ImageSets { shape, names, train, test } = self;
        let (encoding, scales) = (Encoding::Bytes, Vec::new());
        let facts = Facts { shape, encoding, classes: names, scales, schema: None, unit: None };
        let mut writer = CacheWriter::create(path, &facts)?;
        let records = train.write(shape, &mut writer, "")?;
        let test_records = test.map_or(Ok(0), |test| test.write(shape, &mut writer, "test_"))?;
        writer.finish()?;
        Ok(Converted { records, test_records, shape })
    }
}

impl Images {
    /// Reads labelled images into memory; the first problem is an error.
    pub(crate) fn labelled(
        self,
        shape: Shape,
        names: &[String],
        wanted: Option<Encoding>,
    ) -> Result<Dataset, DataError> {
        let file = self.file.clone();
        let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
        let (mut values, mut classes) = (self.memory(shape)?, Vec::new());
        self.each_batch(shape, conversion, |batch| {
            append(&file, &mut values, batch.values)?;
            classes.extend(batch.checked()?);
            Ok(())
        })?;
        let labels = LabelValues::Classes { classes, names: names.to_vec() };
        Dataset::new(&file, shape, conversion.encoding, values, labels)
    }

    /// Reads images without labels into memory, and lists those that cannot be read, numbered from 0.
    pub(crate) fn unlabelled(
        self,
        shape: Shape,
        wanted: Option<Encoding>,
    ) -> Result<(Dataset, Vec<(usize, DataError)>), DataError> {
        let file = self.file.clone();
        let conversion = Conversion::new(&file, Encoding::Bytes, wanted)?;
        let (mut values, mut refused) = (self.memory(shape)?, Vec::new());
        self.each_batch(shape, conversion, |batch| {
            let first = values.len() / shape.len();
            append(&file, &mut values, batch.values)?;
            let errors = (first..).zip(batch.errors);
            refused.extend(errors.filter_map(|(image, error)| Some((image, error?))));
            Ok(())
        })?;
        Ok((Dataset::new(&file, shape, conversion.encoding, values, LabelValues::Absent)?, refused))
    }

    fn write(self, shape: Shape, writer: &mut CacheWriter<'_>, prefix: &str) -> Result<u64, DataError> {
        let conversion = Conversion::new(&self.file, Encoding::Bytes, None)?;
        let mut all = Vec::new();
        self.each_batch(shape, conversion, |batch| {
            let values = batch.values;
            all.extend(batch.checked()?);
            writer.pixels(values)
        })?;
        let records = all.len() as u64;
        writer.values_array(prefix, Type::U8, shape, records);
        writer.labels(prefix, records, Targets::Classes(&all))?;
        Ok(records)
    }

    /// An empty buffer for the values of all images, if their number is known.
    fn memory(&self, shape: Shape) -> Result<Vec<f32>, DataError> {
        let count = self.images.size_hint().0;
        let total = count.saturating_mul(shape.len());
        check_size(|| format!("{} ({count} images of {shape})", self.file), total)?;
        Ok(Vec::with_capacity(total))
    }

    /// Decodes all images, batch by batch.
    fn each_batch(
        mut self,
        shape: Shape,
        conversion: Conversion,
        mut take: impl FnMut(Batch<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let decoder = Decoder::new(shape, conversion);
        let size = (MAX_BATCH_VALUES / shape.len()).clamp(1, MAX_BATCH);
        let (mut values, mut any) = (Vec::new(), false);
        loop {
            // If an image cannot be reached, the images before it form a batch of their own.
            let mut end = Ok(());
            let reached = self.images.by_ref().take(size).map_while(|image| match image {
                Ok(image) => Some(image),
                Err(error) => {
                    end = Err(error);
                    None
                }
            });
            let images: Vec<StoredImage> = reached.collect();
            if images.is_empty() {
                end?;
                return if any { Ok(()) } else { Err(no_records(&self.file)) };
            }
            any = true;
            values.clear();
            values.resize(images.len() * shape.len(), 0.0);
            let decoded = values.par_chunks_exact_mut(shape.len()).zip(&images);
            let errors = decoded.map(|(values, image)| image.decode(&decoder, values).err()).collect();
            let classes = images.into_iter().map(|image| image.class).collect();
            take(Batch { values: &values, classes, errors })?;
            end?;
        }
    }
}

impl StoredImage {
    fn decode(&self, decoder: &Decoder, values: &mut [f32]) -> Result<(), DataError> {
        let bytes = match &self.content {
            Content::File(path) => {
                Cow::Owned(fs::read(path).map_err(|error| unreadable(&self.place, &error))?)
            }
            Content::Bytes(bytes) => Cow::Borrowed(bytes),
            Content::Missing => {
                return Err(DataError::file(
                    &self.place,
                    "the image has no bytes",
                    "store the images in the file: in Python, data.cast_column(\"image\", Image()) before to_parquet",
                ));
            }
        };
        decoder.decode(&self.place, &bytes, values)
    }
}

/// Appends the values of a batch.
fn append(file: &str, values: &mut Vec<f32>, batch: &[f32]) -> Result<(), DataError> {
    check_size(|| file.to_owned(), values.len().saturating_add(batch.len()))?;
    values.extend_from_slice(batch);
    Ok(())
}
