//! Data that is part of the crate, for examples and tests.

use std::io::BufRead;

use crate::dataset::Dataset;
use crate::error::DataError;
use crate::input::{decompressed, unreadable};
use crate::schema::Schema;
use crate::table::{self, CsvRows, Options};

/// The name of the table.
pub(crate) const NAME: &str = "mushroom";

const RECORDS: &[u8] = include_bytes!("../embedded/mushroom.csv.gz");
const SCHEMA: &str = include_str!("../embedded/mushroom.toml");

/// The UCI Mushroom data: 8,124 mushrooms, 22 attributes as 126 features, edible (`e`) or poisonous (`p`).
///
/// The vocabulary is taken from the public description of the data. Mushroom \[Dataset\], UCI Machine Learning Repository, 1981,
/// <https://doi.org/10.24432/C5959T>, CC BY 4.0.
///
/// # Errors
///
/// Only if the crate is damaged.
///
/// ```
/// let mushrooms = sordino_data::embedded::mushroom()?;
/// assert_eq!(mushrooms.len(), 8124);
/// assert_eq!(mushrooms.classes(), ["e", "p"]);
/// # Ok::<(), sordino_data::DataError>(())
/// ```
pub fn mushroom() -> Result<Dataset, DataError> {
    let schema = schema()?;
    let rows = CsvRows::new(NAME.to_owned(), records()?, schema.notation());
    let options = Options { schema: Some(schema), labelled: true, ..Options::default() };
    table::read(Box::new(rows), options).map(|(records, _)| records)
}

/// The table.
pub(crate) fn records() -> Result<Box<dyn BufRead>, DataError> {
    decompressed(RECORDS).map_err(|error| unreadable(NAME, &error))
}

/// Its schema.
pub(crate) fn schema() -> Result<Schema, DataError> {
    Schema::parse("mushroom.toml", SCHEMA)
}

#[cfg(test)]
mod tests {
    use sordino_nn::{Inputs, Shape, Targets};

    use super::*;

    #[test]
    fn mushrooms_are_those_of_the_description() {
        let mushrooms = mushroom().unwrap();
        assert_eq!(mushrooms.len(), 8124);
        assert_eq!(mushrooms.shape(), Shape::Features(126));
        let Some(Targets::Classes(classes)) = mushrooms.targets() else { panic!("classes") };
        let poisonous = classes.iter().filter(|&&class| class == 1).count();
        assert_eq!((classes.len() - poisonous, poisonous), (4208, 3916));
    }

    #[test]
    fn every_attribute_of_a_mushroom_has_one_value() {
        // A missing stalk-root is `?`, which is in the vocabulary: no attribute is all zeros.
        let mushrooms = mushroom().unwrap();
        let Inputs::Dense(values) = mushrooms.inputs() else { panic!("dense") };
        for record in values.chunks_exact(126) {
            assert!(record.iter().all(|&value| value == 0.0 || value == 1.0));
            assert_eq!(record.iter().sum::<f32>(), 22.0);
        }
        // The first record is p,x,s,n,...: the third cap-shape of 6, the last cap-surface of 4, the first cap-color.
        assert_eq!(values[..11], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    }
}
