//! Records that stay in their file and are read when a pass needs them.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::Arc;

use rayon::prelude::*;
use sordino_nn::{RecordStore, Shape};

use crate::encoding::Conversion;
use crate::error::DataError;
use crate::input::unreadable;
use crate::npy_header::{Dtype, NumberKind};
use crate::positioned::PositionedFile;
use crate::values::{normalise, not_finite};

/// The largest number of records in a file.
pub(crate) const MAX_RECORDS: usize = u32::MAX as usize;

/// All or some of the records of a store, such as a file.
///
/// Memory: 4 bytes for each record if only some are selected, and 8 bytes for each record of tokens in a file.
#[derive(Clone)]
pub(crate) struct StoredRecords {
    store: Arc<dyn RecordStore>,
    /// The file and the array, for errors.
    name: String,
    /// The indices of the selected records in the store, or `None` for all records.
    chosen: Option<Arc<[u32]>>,
    /// The mean and the standard deviation of each channel of an image that is normalised.
    channels: Option<Arc<[(f64, f64)]>>,
}

/// A file of records, open for as long as they are used.
pub(crate) struct RecordFile {
    file: Arc<PositionedFile>,
    /// The file and the array, for errors.
    name: String,
    shape: Shape,
    records: usize,
    /// The position of the first value.
    start: u64,
    content: Content,
}

/// How the records of a file are stored.
pub(crate) enum Content {
    /// As many numbers for each record as its shape has.
    Numbers(Decoder),
    /// Tokens as 32-bit integers, the least significant byte first; record `i` begins at token `starts[i]`.
    Tokens { starts: Vec<u64> },
}

/// How stored numbers become the values of records.
pub(crate) struct Decoder {
    dtype: Dtype,
    kind: DecoderKind,
    /// The number of channels of an image whose channels come last.
    channels_last: Option<usize>,
}

enum DecoderKind {
    /// The value of each byte.
    Bytes(Box<[f32; 256]>),
    /// 32-bit floats, the least significant byte first, used as they are.
    Floats,
    Any(Conversion),
}

impl Decoder {
    pub(crate) fn new(dtype: Dtype, conversion: Conversion, channels_last: Option<usize>) -> Decoder {
        let kind = match (dtype.kind, dtype.size) {
            (NumberKind::Unsigned, 1) => DecoderKind::Bytes(Box::new(std::array::from_fn(|byte| {
                conversion.apply(byte as f64).unwrap_or_default()
            }))),
            _ if dtype == Dtype::F32 && !conversion.divides() => DecoderKind::Floats,
            _ => DecoderKind::Any(conversion),
        };
        Decoder { dtype, kind, channels_last }
    }

    /// 32-bit floats that are used as they are.
    pub(crate) fn floats() -> Decoder {
        Decoder { dtype: Dtype::F32, kind: DecoderKind::Floats, channels_last: None }
    }

    /// Decodes numbers; a number that is not permitted is an error.
    pub(crate) fn decode(&self, bytes: &[u8], values: &mut [f32]) -> io::Result<()> {
        match &self.kind {
            DecoderKind::Bytes(table) => {
                values.iter_mut().zip(bytes).for_each(|(value, &byte)| *value = table[usize::from(byte)]);
            }
            DecoderKind::Floats => {
                let numbers = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
                values.iter_mut().zip(numbers).for_each(|(value, number)| *value = number);
            }
            DecoderKind::Any(conversion) => {
                let mut permitted = true;
                self.dtype.decode_all(bytes, |place, number| match conversion.apply(number) {
                    Ok(decoded) => values[place] = decoded,
                    Err(_) => permitted = false,
                });
                if !permitted {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
        }
        Ok(())
    }

    /// The numbers that are not permitted: their place among `bytes`, what is permitted, and the number.
    pub(crate) fn refused(&self, bytes: &[u8]) -> Vec<(usize, &'static str, f64)> {
        /// How many numbers are checked together, without a branch for each number.
        const BLOCK: usize = 256;
        const EXPONENT: u32 = 0x7f80_0000;
        let mut refused = Vec::new();
        match &self.kind {
            DecoderKind::Bytes(_) => {}
            DecoderKind::Floats => {
                let is_refused = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) & EXPONENT == EXPONENT;
                for (block, numbers) in bytes.as_chunks().0.chunks(BLOCK).enumerate() {
                    if numbers.iter().fold(false, |any, number| any | is_refused(number)) {
                        let places = (block * BLOCK..).zip(numbers).filter(|(_, number)| is_refused(number));
                        refused.extend(places.map(|(place, &number)| {
                            let number = f64::from(f32::from_le_bytes(number));
                            (place, "a finite number in single precision", number)
                        }));
                    }
                }
            }
            DecoderKind::Any(conversion) => self.dtype.decode_all(bytes, |place, number| {
                if let Err(permitted) = conversion.apply(number) {
                    refused.push((place, permitted, number));
                }
            }),
        }
        refused
    }
}

impl RecordFile {
    /// Records that lie one after another from `start` on.
    pub(crate) fn new(
        file: impl Into<Arc<PositionedFile>>,
        name: String,
        shape: Shape,
        records: usize,
        start: u64,
        content: Content,
    ) -> Result<RecordFile, DataError> {
        if records > MAX_RECORDS {
            let problem = format!("{records} records; at most {MAX_RECORDS} are permitted");
            return Err(DataError::file(name, problem, "use fewer records"));
        }
        Ok(RecordFile { file: file.into(), name, shape, records, start, content })
    }

    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// All records, after reading the file once; the first value that is not permitted is an error.
    pub(crate) fn checked(self) -> Result<StoredRecords, DataError> {
        match self.refused()?.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(StoredRecords::of_file(self)),
        }
    }

    /// Reads the file once and lists the records, from 0, with a value that is not permitted, each with its first such value.
    pub(crate) fn refused(&self) -> Result<Vec<(usize, DataError)>, DataError> {
        let mut refused: Vec<(usize, DataError)> = Vec::new();
        match &self.content {
            // Every byte is permitted.
            Content::Numbers(Decoder { kind: DecoderKind::Bytes(_), .. }) => {}
            Content::Numbers(decoder) => {
                let (width, size) = (self.shape.len(), decoder.dtype.size);
                let end = self.start + self.records as u64 * width as u64 * size as u64;
                self.file.pieces(&self.name, self.start, end, |position, bytes| {
                    let first = (position - self.start) as usize / size;
                    for (place, permitted, number) in decoder.refused(bytes) {
                        let at = first + place;
                        if refused.last().is_none_or(|(last, _)| *last != at / width) {
                            refused
                                .push((at / width, not_permitted(&self.name, at, width, permitted, number)));
                        }
                    }
                    Ok(())
                })?;
            }
            Content::Tokens { starts } => {
                let Shape::Tokens { vocabulary, .. } = self.shape else { return Ok(refused) };
                let end = self.start + 4 * starts.last().copied().unwrap_or(0);
                self.file.pieces(&self.name, self.start, end, |position, bytes| {
                    let first = (position - self.start) / 4;
                    let bad = |(_, token): &(u64, u32)| *token as usize >= vocabulary;
                    for (place, token) in (first..).zip(tokens_of(bytes)).filter(bad) {
                        let record = starts.partition_point(|&start| start <= place) - 1;
                        if refused.last().is_none_or(|(last, _)| *last != record) {
                            refused.push((record, self.not_a_token(record, vocabulary, token)));
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok(refused)
    }

    fn not_a_token(&self, record: usize, vocabulary: usize, token: u32) -> DataError {
        DataError::value(
            format!("{}, record {}", self.name, record + 1),
            format!("a token of 0 to {}", vocabulary - 1),
            token.to_string(),
            "the file is damaged; write it again",
        )
    }

    /// Reads the bytes of a record into the buffer of this thread, and calls `take` with them.
    fn read(&self, position: u64, size: usize, take: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        thread_local! {
            static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BYTES.with_borrow_mut(|bytes| {
            if bytes.len() < size {
                bytes.resize(size, 0);
            }
            self.file.read_at(&mut bytes[..size], position)?;
            take(&bytes[..size])
        })
    }
}

impl RecordStore for RecordFile {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn records(&self) -> usize {
        self.records
    }

    fn steps(&self, record: usize) -> usize {
        match &self.content {
            Content::Numbers(_) => self.shape.steps(),
            Content::Tokens { starts } => (starts[record + 1] - starts[record]) as usize,
        }
    }

    fn read_values(&self, record: usize, values: &mut [f32]) -> io::Result<()> {
        let Content::Numbers(decoder) = &self.content else { return Err(io::ErrorKind::Unsupported.into()) };
        let size = decoder.dtype.size;
        let position = self.start + record as u64 * (self.shape.len() * size) as u64;
        self.read(position, values.len() * size, |bytes| decoder.decode(bytes, values))?;
        if let Some(channels) = decoder.channels_last {
            channels_first(values, channels);
        }
        Ok(())
    }

    fn read_tokens(&self, record: usize, tokens: &mut [u32]) -> io::Result<()> {
        let Content::Tokens { starts } = &self.content else { return Err(io::ErrorKind::Unsupported.into()) };
        self.read(self.start + 4 * starts[record], 4 * tokens.len(), |bytes| {
            tokens.iter_mut().zip(tokens_of(bytes)).for_each(|(token, stored)| *token = stored);
            Ok(())
        })
    }
}

impl fmt::Debug for RecordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordFile")
            .field("records", &self.records)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

fn tokens_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The error for a number of an array.
pub(crate) fn not_permitted(file: &str, at: usize, width: usize, permitted: &str, number: f64) -> DataError {
    DataError::value(
        format!("{file}, record {}, value {}", at / width + 1, at % width + 1),
        permitted,
        number.to_string(),
        "replace it by a public constant before saving; records and values are counted from 1",
    )
}

/// Moves the last axis of an image to the front.
pub(crate) fn channels_first(image: &mut [f32], channels: usize) {
    let before = image.to_vec();
    for (channel, plane) in image.chunks_exact_mut(before.len() / channels).enumerate() {
        plane.iter_mut().zip(before[channel..].iter().step_by(channels)).for_each(|(to, from)| *to = *from);
    }
}

impl StoredRecords {
    /// All records of a store with this name.
    pub(crate) fn all(store: Arc<dyn RecordStore>, name: String) -> StoredRecords {
        StoredRecords { store, name, chosen: None, channels: None }
    }

    /// All records of a file.
    pub(crate) fn of_file(file: RecordFile) -> StoredRecords {
        let name = file.name.clone();
        Self::all(Arc::new(file), name)
    }

    /// The records whose entry in `side` equals `wanted`.
    pub(crate) fn part(&self, side: &[bool], wanted: bool) -> StoredRecords {
        let places = side.iter().enumerate().filter(|&(_, &side)| side == wanted);
        // A store has at most `MAX_RECORDS` records.
        let chosen = places.map(|(place, _)| self.place(place) as u32).collect();
        StoredRecords { chosen: Some(chosen), ..self.clone() }
    }

    /// Normalises each image when it is read. All images are read once now, to check that their normalised values are finite.
    pub(crate) fn normalise(&mut self, channels: &[(f64, f64)]) -> Result<(), DataError> {
        let (name, width) = (&self.name, self.shape().len());
        let check = |image: &mut Vec<f32>, record: usize| match self.read_values(record, image) {
            Ok(()) if normalise(image, channels) => Ok(()),
            Ok(()) => Err(not_finite(name, record)),
            Err(error) => Err(unreadable(name, &error)),
        };
        (0..self.records()).into_par_iter().try_for_each_init(|| vec![0.0; width], check)?;
        self.channels = Some(channels.into());
        Ok(())
    }

    fn place(&self, record: usize) -> usize {
        self.chosen.as_ref().map_or(record, |chosen| chosen[record] as usize)
    }
}

impl RecordStore for StoredRecords {
    fn shape(&self) -> Shape {
        self.store.shape()
    }

    fn records(&self) -> usize {
        self.chosen.as_ref().map_or(self.store.records(), |chosen| chosen.len())
    }

    fn steps(&self, record: usize) -> usize {
        self.store.steps(self.place(record))
    }

    fn read_values(&self, record: usize, values: &mut [f32]) -> io::Result<()> {
        self.store.read_values(self.place(record), values)?;
        match &self.channels {
            Some(channels) if !normalise(values, channels) => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok(()),
        }
    }

    fn read_tokens(&self, record: usize, tokens: &mut [u32]) -> io::Result<()> {
        self.store.read_tokens(self.place(record), tokens)
    }
}

impl fmt::Debug for StoredRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRecords")
            .field("records", &self.records())
            .field("shape", &self.shape())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::Encoding;

    /// The reference converts one number after another in double precision.
    #[test]
    fn floats_are_decoded_and_refused_as_one_by_one() {
        let conversion = Conversion::new("x", Encoding::Floats, None).unwrap();
        let decoder = Decoder::new(Dtype::F32, conversion, None);
        let mut numbers: Vec<f32> =
            (0..1000_u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9) & 0xbf7f_ffff)).collect();
        let bytes =
            |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let mut decoded = vec![f32::NAN; numbers.len()];
        assert_eq!(decoder.refused(&bytes(&numbers)), []);
        decoder.decode(&bytes(&numbers), &mut decoded).unwrap();
        let naive: Vec<f32> =
            numbers.iter().map(|&number| conversion.apply(number.into()).unwrap()).collect();
        assert_eq!(decoded, naive);
        // The first and the last number of a block, and of all numbers.
        let bad = [0, 255, 256, 300, 301, 999];
        for (place, number) in
            bad.into_iter().zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN].into_iter().cycle())
        {
            numbers[place] = number;
        }
        numbers[500] = f32::MAX;
        let refused = decoder.refused(&bytes(&numbers));
        assert_eq!(refused.iter().map(|(place, ..)| *place).collect::<Vec<_>>(), bad);
        for (place, permitted, number) in refused {
            assert_eq!(Err(permitted), conversion.apply(number));
            assert_eq!(number.to_string(), f64::from(numbers[place]).to_string());
        }
    }

    #[test]
    fn a_piece_with_a_number_that_is_not_permitted_is_not_decoded() {
        let conversion = Conversion::new("x", Encoding::Integers, Some(Encoding::Bytes)).unwrap();
        let dtype = Dtype { kind: NumberKind::Signed, size: 2, ..Dtype::F32 };
        let decoder = Decoder::new(dtype, conversion, None);
        let bytes: Vec<u8> =
            [0_i16, 51, 256, -1, 255].iter().flat_map(|number| number.to_le_bytes()).collect();
        let permitted = conversion.apply(256.0).unwrap_err();
        assert_eq!(decoder.refused(&bytes), [(2, permitted, 256.0), (3, permitted, -1.0)]);
        assert_eq!(decoder.decode(&bytes, &mut [0.0; 5]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut values = [0.0; 2];
        decoder.decode(&bytes[..4], &mut values).unwrap();
        assert_eq!(values, [0.0, 0.2]);
    }
}
