//! Sordino's own format for records (`.sordino`), which `sordino data convert` writes. Its records are read from the file when they are
//! needed.
//!
//! The file has the layout of safetensors, so that Python can read it: the length of the header in 8 bytes, the header as JSON, the arrays.
//! A set of records has the arrays `values` (`U8` or `F32`), or `tokens` and `starts` (`I32`, `I64`), and `labels` (`I32` or `F32`), and `units` (`I64`) if the
//! unit of privacy is not a record; the arrays of a test set begin with `test_`. The metadata of the header has the public [facts](Facts).
//!
//! **The file is as private as the records.**

mod header;
mod reader;
mod writer;

pub(crate) use self::header::{Facts, Header, Type};
pub(crate) use self::reader::{read, read_test, read_unlabelled};
pub(crate) use self::writer::CacheWriter;
pub use self::writer::{Converted, convert};

/// The extension of these files.
pub(crate) const EXTENSION: &str = "sordino";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use sordino_nn::{Inputs, Shape};

    use super::*;
    use crate::dataset::Dataset;
    use crate::encoding::Encoding;
    use crate::labels::{LabelValues, numbered};
    use crate::source::{Source, Splits};
    use crate::values::RecordValues;

    /// A file for one test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = format!("sordino-cache-{}-{name}.sordino", std::process::id());
            Place(std::env::temp_dir().join(name))
        }

        fn read(&self) -> Result<Splits, String> {
            read(&Source { path: self.0.clone(), ..Source::default() }).map_err(|error| error.to_string())
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_file(&self.0).ok();
        }
    }

    /// Four records of 2, 1, 3 and 2 tokens.
    fn words() -> Dataset {
        let values =
            RecordValues::Tokens { tokens: vec![1, 2, 3, 4, 5, 6, 6, 0], starts: vec![0, 2, 3, 6, 8] };
        let labels = LabelValues::Classes { classes: vec![1, 0, 1, 1], names: numbered(2) };
        let shape = Shape::Tokens { steps: 3, vocabulary: 7 };
        Dataset::new("words", shape, Encoding::Text, values, labels).unwrap()
    }

    fn tokens(data: &Dataset) -> Vec<Vec<u32>> {
        let Inputs::Stored(store) = data.inputs() else { panic!("stored") };
        let read = |record| {
            let mut tokens = vec![0; store.steps(record)];
            store.read_tokens(record, &mut tokens).unwrap();
            tokens
        };
        (0..store.records()).map(read).collect()
    }

    #[test]
    fn tokens_are_read_where_they_lie_and_split_by_their_places() {
        let place = Place::new("tokens");
        writer::write(&place.0, &Splits { train: words(), test: Some(words()), schema: None }).unwrap();
        let sets = place.read().unwrap();
        let all = [&[1, 2][..], &[3], &[4, 5, 6], &[6, 0]];
        assert_eq!(tokens(&sets.train), all);
        assert_eq!(tokens(sets.test.as_ref().unwrap()), all);
        assert_eq!(sets.train.shape(), words().shape());
        let some = sets.train.part(&[true, false, true, true], true);
        assert_eq!(tokens(&some), [&[1, 2][..], &[4, 5, 6], &[6, 0]]);
        assert_eq!(tokens(&some.part(&[true, false, true], false)), [[4, 5, 6]]);
    }

    #[test]
    fn damaged_starts_and_tokens_are_refused_with_their_place() {
        let place = Place::new("damaged");
        writer::write(&place.0, &Splits { train: words(), test: None, schema: None }).unwrap();
        let good = fs::read(&place.0).unwrap();
        let data = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
        let (starts, labels) = (data + 8 * 4, data + 8 * 4 + 5 * 8);
        assert_eq!(good.len(), labels + 4 * 4);
        let refused = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            fs::write(&place.0, bytes).unwrap();
            let message = place.read().unwrap_err();
            message.split_once(".sordino, ").unwrap().1.to_owned()
        };
        assert_eq!(refused(data + 4, 7), "array tokens, record 1: must be a token of 0 to 6, got 7");
        assert_eq!(
            refused(data + 4 * 7 + 3, 0x80).split(',').nth(1),
            Some(" record 4: must be a token of 0 to 6")
        );
        assert_eq!(refused(starts, 1), "array starts, value 1: must be 0 to 0, got 1");
        assert_eq!(refused(starts + 8, 4), "array starts, value 2: must be 1 to 3, got 4");
        assert_eq!(refused(starts + 16, 2), "array starts, value 3: must be 3 to 5, got 2");
        assert_eq!(refused(starts + 32, 7), "array starts: the last record does not end at the last token");
        assert_eq!(refused(labels + 3, 0xff).split(',').nth(1), Some(" value 1: must be a class of 0 to 1"));
    }
}
