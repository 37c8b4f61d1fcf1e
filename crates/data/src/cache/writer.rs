//! Writes a file of records as a stream. The file gets its name only when it is complete.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sordino_nn::{Inputs, Shape, Targets};

use super::EXTENSION;
use super::header::{Facts, Header, Tensor, Type};
use crate::dataset::Dataset;
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::format::Format;
use crate::input::unreadable;
use crate::source::{Source, Splits, image_sets, read};
use crate::unit::UnitId;

/// What a file of records contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converted {
    /// The number of training records.
    pub records: u64,
    /// The number of test records.
    pub test_records: u64,
    /// The shape of a record.
    pub shape: Shape,
}

/// Reads labelled records and writes them to `path`, a `.sordino` file whose records are read when they are needed.
///
/// **The file is as private as the records.** On Unix, only its owner can read it. Its header contains the public description (shape,
/// encoding, classes, scales, schema).
///
/// The file gets its name only when it is complete. The values of a table, the tokens of texts, PNG and JPEG images, and the values of a
/// folder of NPY arrays and of another `.sordino` file are not held in memory; those of other formats are. Images are stored with the size
/// and the channels of the source, without normalisation.
///
/// # Errors
///
/// Those of [`read`](crate::read()); a name that does not end in `.sordino` or exists already; a file that cannot be written.
pub fn convert(source: &Source, path: &Path) -> Result<Converted, DataError> {
    check_name(path)?;
    let format = Format::of(&source.path)?;
    source.check(format)?;
    check_plain_images(source)?;
    match format {
        Format::Table(table) => return table.convert(source, path),
        Format::ClassImages | Format::ParquetImages => {
            return image_sets(source, format, &mut Err)?.convert(path);
        }
        _ => {}
    }
    let sets = read(source)?;
    write(path, &sets)?;
    let test_records = sets.test.as_ref().map_or(0, |test| test.len() as u64);
    Ok(Converted { records: sets.train.len() as u64, test_records, shape: sets.train.shape() })
}

/// Refuses normalisation: a file of records stores images without it.
fn check_plain_images(source: &Source) -> Result<(), DataError> {
    let images = &source.images;
    match [("mean", &images.mean), ("std", &images.std)].into_iter().find(|(_, given)| given.is_some()) {
        None => Ok(()),
        Some((what, given)) => Err(DataError::Setting {
            what,
            permitted: "left out for a conversion".to_owned(),
            got: format!("{:?}", given.as_deref().unwrap_or_default()),
            hint: "the file has the images as they are stored; give {mean} and {std} to the training"
                .to_owned(),
        }),
    }
}

fn check_name(path: &Path) -> Result<(), DataError> {
    let refuse = |problem: &str, hint: &str| Err(DataError::file(path.display().to_string(), problem, hint));
    if path.extension().is_none_or(|extension| extension != EXTENSION) {
        return refuse(
            "the name of a file of records ends in .sordino",
            "such a file is as private as the data; the ending shows what it is",
        );
    }
    if path.exists() {
        return refuse("exists already", "remove it first, or choose another name");
    }
    Ok(())
}

/// Writes all sets of records.
pub(crate) fn write(path: &Path, sets: &Splits) -> Result<(), DataError> {
    let facts = Facts::of(&sets.train, sets.schema.as_ref());
    let mut writer = CacheWriter::create(path, &facts)?;
    writer.set("", &sets.train)?;
    if let Some(test) = &sets.test {
        writer.set("test_", test)?;
    }
    writer.finish()
}

/// The bytes in the header for the places of the arrays: at most 10 arrays with at most 5 numbers each.
const ROOM: usize = 2048;

/// A file that is being written, under a temporary name.
pub(crate) struct CacheWriter<'a> {
    path: &'a Path,
    facts: &'a Facts,
    file: BufWriter<File>,
    temporary: Temporary,
    /// The length of the header.
    header: usize,
    tensors: BTreeMap<String, Tensor>,
    /// The end of the last array, and the number of bytes that were written after the header.
    end: u64,
    written: u64,
    /// Where the records of the current array of tokens end.
    ends: Vec<i64>,
}

/// A file that is removed unless it gets its final name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is no such file.
        let _ = fs::remove_file(&self.0);
    }
}

impl<'a> CacheWriter<'a> {
    pub(crate) fn create(path: &'a Path, facts: &'a Facts) -> Result<CacheWriter<'a>, DataError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&temporary).map_err(|error| unwritable(path, &error))?;
        let temporary = Temporary(temporary);
        // The arrays begin at a multiple of 8 bytes.
        let header = (Header::text(facts, &BTreeMap::new(), 0).len() + ROOM).next_multiple_of(8);
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let skipped = file.seek(SeekFrom::Start(8 + header as u64));
        skipped.map_err(|error| unwritable(path, &error))?;
        let tensors = BTreeMap::new();
        Ok(CacheWriter {
            path,
            facts,
            file,
            temporary,
            header,
            tensors,
            end: 0,
            written: 0,
            ends: Vec::new(),
        })
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.written += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| unwritable(self.path, &error))
    }

    /// Makes an array of everything that was written after the last one.
    pub(crate) fn array(&mut self, prefix: &str, name: &str, dtype: Type, shape: Vec<u64>) {
        let tensor = Tensor { dtype, shape, data_offsets: [self.end, self.written] };
        self.tensors.insert(format!("{prefix}{name}"), tensor);
        self.end = self.written;
    }

    /// Writes the tokens of a record.
    pub(crate) fn tokens(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        self.ends.push(self.ends.last().unwrap_or(&0) + tokens.len() as i64);
        self.bytes(&tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Makes arrays of all records of tokens that were written after the last array.
    pub(crate) fn token_arrays(&mut self, prefix: &str) -> Result<(), DataError> {
        let ends = std::mem::take(&mut self.ends);
        self.array(prefix, "tokens", Type::I32, vec![ends.last().copied().unwrap_or(0) as u64]);
        self.bytes(&0_i64.to_le_bytes())?;
        for ends in ends.chunks(1 << 12) {
            self.bytes(&ends.iter().flat_map(|end| end.to_le_bytes()).collect::<Vec<_>>())?;
        }
        self.array(prefix, "starts", Type::I64, vec![ends.len() as u64 + 1]);
        Ok(())
    }

    /// The error for records whose labels are their tokens.
    pub(crate) fn no_language_models(path: &Path) -> DataError {
        let hint = "train on the source of the records; they are held in memory";
        DataError::file(path.display().to_string(), "records for language models cannot be converted", hint)
    }

    /// Writes one set of records and its labels.
    fn set(&mut self, prefix: &str, data: &Dataset) -> Result<(), DataError> {
        let records = data.len() as u64;
        match data.shape() {
            Shape::Tokens { .. } => {
                each_tokens(data, &mut |tokens| self.tokens(tokens))?;
                self.token_arrays(prefix)?;
            }
            shape => {
                let dtype = self.values(data)?;
                self.values_array(prefix, dtype, shape, records);
            }
        }
        if let Some(units) = &data.units {
            self.units(prefix, units.ids())?;
        }
        match data.targets() {
            Some(targets) => self.labels(prefix, records, targets),
            None => {
                let file = self.path.display().to_string();
                Err(DataError::file(file, "the records have no labels", "give labelled records"))
            }
        }
    }

    /// Declares an array of all values that were written after the last array, for this many records.
    pub(crate) fn values_array(&mut self, prefix: &str, dtype: Type, shape: Shape, records: u64) {
        let sizes = match shape {
            Shape::Image { channels, height, width } => vec![channels, height, width],
            shape => vec![shape.len()],
        };
        let shape = std::iter::once(records).chain(sizes.into_iter().map(|size| size as u64));
        self.array(prefix, "values", dtype, shape.collect());
    }

    /// Writes values that were read from bytes, as bytes.
    pub(crate) fn pixels(&mut self, values: &[f32]) -> Result<(), DataError> {
        self.bytes(&values.iter().filter_map(|&value| byte_of(value)).collect::<Vec<_>>())
    }

    /// Writes values: as bytes if all of them came from bytes, otherwise as floats.
    fn values(&mut self, data: &Dataset) -> Result<Type, DataError> {
        let mut are_bytes = data.encoding() == Encoding::Bytes;
        if are_bytes {
            each_values(data, &mut |values| {
                are_bytes &= values.iter().all(|&value| byte_of(value).is_some());
                Ok(())
            })?;
        }
        let mut bytes = Vec::new();
        each_values(data, &mut |values| {
            bytes.clear();
            match are_bytes {
                true => bytes.extend(values.iter().filter_map(|&value| byte_of(value))),
                false => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            }
            self.bytes(&bytes)
        })?;
        Ok(if are_bytes { Type::U8 } else { Type::F32 })
    }

    /// Writes the unit of each record of a set.
    pub(crate) fn units(&mut self, prefix: &str, ids: &[UnitId]) -> Result<(), DataError> {
        for ids in ids.chunks(1 << 12) {
            self.bytes(&ids.iter().flat_map(|id| id.0.to_le_bytes()).collect::<Vec<_>>())?;
        }
        self.array(prefix, "units", Type::I64, vec![ids.len() as u64]);
        Ok(())
    }

    /// Writes the labels of a set.
    pub(crate) fn labels(
        &mut self,
        prefix: &str,
        records: u64,
        targets: Targets<'_>,
    ) -> Result<(), DataError> {
        match targets {
            Targets::Classes(classes) => {
                for classes in classes.chunks(1 << 12) {
                    self.bytes(&classes.iter().flat_map(|class| class.to_le_bytes()).collect::<Vec<_>>())?;
                }
                self.array(prefix, "labels", Type::I32, vec![records]);
            }
            Targets::Values { values, width } => {
                for values in values.chunks(1 << 12) {
                    self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())?;
                }
                self.array(prefix, "labels", Type::F32, vec![records, width as u64]);
            }
            Targets::NextTokens { .. } => return Err(CacheWriter::no_language_models(self.path)),
        }
        Ok(())
    }

    /// Writes the header, and renames the file to its final name once everything is on disk.
    pub(crate) fn finish(self) -> Result<(), DataError> {
        let CacheWriter { path, facts, mut file, temporary, header, tensors, .. } = self;
        let text = Header::text(facts, &tensors, header);
        let written = (|| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&(text.len() as u64).to_le_bytes())?;
            file.write_all(&text)?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            fs::rename(&temporary.0, path)?;
            #[cfg(unix)]
            File::open(path.parent().filter(|parent| parent.as_os_str() != "").unwrap_or(Path::new(".")))?
                .sync_all()?;
            Ok(())
        })();
        written.map_err(|error| unwritable(path, &error))
    }
}

/// Calls `take` with the values of each record.
fn each_values(
    data: &Dataset,
    take: &mut dyn FnMut(&[f32]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let width = data.shape().len();
    match data.inputs() {
        Inputs::Dense(values) => values.chunks_exact(width).try_for_each(take),
        Inputs::Stored(store) => {
            let mut values = vec![0.0; width];
            (0..store.records()).try_for_each(|record| {
                store.read_values(record, &mut values).map_err(|error| unreadable("the records", &error))?;
                take(&values)
            })
        }
        Inputs::Sequences { .. } | Inputs::Tokens { .. } => unreachable!("these have another shape"),
    }
}

/// Calls `take` with the tokens of each record.
fn each_tokens(
    data: &Dataset,
    take: &mut dyn FnMut(&[u32]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    match data.inputs() {
        Inputs::Tokens { tokens, starts } => {
            starts.windows(2).try_for_each(|record| take(&tokens[record[0]..record[1]]))
        }
        Inputs::Stored(store) => {
            let mut tokens = Vec::new();
            (0..store.records()).try_for_each(|record| {
                tokens.resize(store.steps(record), 0);
                store.read_tokens(record, &mut tokens).map_err(|error| unreadable("the records", &error))?;
                take(&tokens)
            })
        }
        Inputs::Dense(_) | Inputs::Sequences { .. } => unreachable!("these have another shape"),
    }
}

/// The byte that became this value, divided by 255.
fn byte_of(value: f32) -> Option<u8> {
    let byte = (value * 255.0).round();
    ((0.0..=255.0).contains(&byte) && (f64::from(byte) / 255.0) as f32 == value).then_some(byte as u8)
}

/// The error for a file that cannot be written.
fn unwritable(path: &Path, error: &io::Error) -> DataError {
    let hint =
        "the folder must exist, be writable and have enough space; nothing was written under this name";
    DataError::file(path.display().to_string(), format!("cannot be written: {error}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_found_again() {
        for byte in 0..=255_u8 {
            assert_eq!(byte_of((f64::from(byte) / 255.0) as f32), Some(byte));
        }
        for value in [-0.1, 0.5, 1.1, f32::NAN, f32::INFINITY] {
            assert_eq!(byte_of(value), None);
        }
    }
}
