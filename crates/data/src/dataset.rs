//! Records and their public description.

use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sordino_nn::{Inputs, Shape, Targets};

use crate::encoding::Encoding;
use crate::error::DataError;
use crate::images::ImageOptions;
use crate::labels::{LabelValues, Scale};
use crate::preparation::Preparation;
use crate::unit::RecordUnits;
use crate::values::{RecordValues, keep};

/// The largest number of values in memory, 8 GiB, and in a record.
pub(crate) const MAX_VALUES: usize = 1 << 31;

/// Records of equal shape, either all labelled or all unlabelled.
///
/// # Guarantees
///
/// The shape of a record, the encoding, the classes and the scales are public; values and labels are private. There is at
/// least one record, and every value is finite. `Debug` shows counts and shapes, but no values.
pub struct Dataset {
    shape: Shape,
    encoding: Encoding,
    pub(crate) values: RecordValues,
    pub(crate) labels: LabelValues,
    /// The mean and the standard deviation of each channel by which images were normalised; empty if they were not.
    normalisation: Vec<(f64, f64)>,
    /// The units that the records belong to; none if every record is a unit of privacy.
    pub(crate) units: Option<RecordUnits>,
    /// Whether the classes were taken from the labels.
    observed_classes: bool,
    /// How the records were made, if it was declared.
    pub(crate) preparation: Option<Preparation>,
}

impl Dataset {
    /// Makes a data set of values and labels that have been checked.
    pub(crate) fn new(
        file: &str,
        shape: Shape,
        encoding: Encoding,
        values: impl Into<RecordValues>,
        labels: LabelValues,
    ) -> Result<Dataset, DataError> {
        let values = values.into();
        if values.records(shape) == 0 {
            return Err(no_records(file));
        }
        Ok(Dataset {
            shape,
            encoding,
            values,
            labels,
            normalisation: Vec::new(),
            units: None,
            observed_classes: false,
            preparation: None,
        })
    }

    /// The number of records. Whether it is private depends on the definition of neighbouring data sets.
    pub fn len(&self) -> usize {
        self.values.records(self.shape)
    }

    /// Whether there are no records. This is always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape of a record: features, an image or tokens.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The encoding of the values. For records that must match training records, it is the encoding of the training records.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The values, as the input of a network.
    pub fn inputs(&self) -> Inputs<'_> {
        self.values.inputs()
    }

    /// The same labels with other inputs: the outputs of a public network for each record. For sequences, `starts` has the first step of
    /// each record and the end of the last one.
    ///
    /// # Errors
    ///
    /// Another number of records.
    pub fn with_inputs(
        &self,
        shape: Shape,
        values: Vec<f32>,
        starts: Option<Vec<usize>>,
    ) -> Result<Dataset, DataError> {
        match starts {
            Some(starts) => self.with_values(shape, RecordValues::Sequences { values, starts }),
            None => self.with_values(shape, values),
        }
    }

    /// The same labels with other values for each record.
    pub(crate) fn with_values(
        &self,
        shape: Shape,
        values: impl Into<RecordValues>,
    ) -> Result<Dataset, DataError> {
        let values = values.into();
        if values.records(shape) != self.len() {
            return Err(DataError::file(
                "the inputs",
                format!("there are {} for {} records", values.records(shape), self.len()),
                "give inputs for every record",
            ));
        }
        let (labels, units) = (self.labels.clone(), self.units.clone());
        let (encoding, observed_classes) = (Encoding::Floats, self.observed_classes);
        let (normalisation, preparation) = (Vec::new(), self.preparation.clone());
        Ok(Dataset { shape, encoding, values, labels, normalisation, units, observed_classes, preparation })
    }

    /// The labels, as the targets of a network; `None` if the records are unlabelled.
    pub fn targets(&self) -> Option<Targets<'_>> {
        match &self.labels {
            LabelValues::Absent => None,
            LabelValues::NextTokens { from } => Some(Targets::NextTokens { from }),
            LabelValues::Classes { classes, .. } => Some(Targets::Classes(classes)),
            LabelValues::Numbers { values, scales } => Some(Targets::Values { values, width: scales.len() }),
        }
    }

    /// The public names of the classes, in the order of their numbers; empty unless this is classification.
    pub fn classes(&self) -> &[String] {
        match &self.labels {
            LabelValues::Classes { names, .. } => names,
            _ => &[],
        }
    }

    /// The scale of each number to be predicted; empty unless this is regression.
    pub fn scales(&self) -> &[Scale] {
        match &self.labels {
            LabelValues::Numbers { scales, .. } => scales,
            _ => &[],
        }
    }

    /// What the labels are, without their values.
    pub(crate) fn described_labels(&self) -> String {
        match &self.labels {
            LabelValues::Numbers { .. } => format!("{} to predict", self.labels.describe()),
            labels => labels.describe(),
        }
    }

    /// Whether every record has a class.
    pub fn is_classification(&self) -> bool {
        matches!(self.labels, LabelValues::Classes { .. })
    }

    /// Declares that the list of classes was taken from the labels of these records. The guarantee of a model then does not cover the list, and its
    /// statement states this.
    #[must_use]
    pub fn with_observed_classes(self) -> Dataset {
        Dataset { observed_classes: true, ..self }
    }

    /// Whether the list of classes was taken from the labels.
    pub fn has_observed_classes(&self) -> bool {
        self.observed_classes
    }

    /// The same records, in these units.
    pub(crate) fn with_units(self, units: RecordUnits) -> Dataset {
        Dataset { units: Some(units), ..self }
    }

    /// Applies the normalisation of images, if one is given.
    pub(crate) fn normalised(mut self, file: &str, options: &ImageOptions) -> Result<Dataset, DataError> {
        if let Some(normalisation) = options.normalisation(file, self.shape)? {
            self.values.normalise(file, self.shape, &normalisation)?;
            self.normalisation = normalisation;
        }
        Ok(self)
    }

    /// Normalises images that were not yet normalised: `(x - mean) / std`, with a mean and a standard deviation for each channel. An empty
    /// slice leaves the records unchanged.
    ///
    /// # Errors
    ///
    /// Records that are not images; a different number of channels; numbers that are not permitted (see [`ImageOptions`]).
    pub fn normalised_by(self, normalisation: &[(f64, f64)]) -> Result<Dataset, DataError> {
        let (mean, std) = normalisation.iter().copied().unzip();
        let options = ImageOptions { mean: Some(mean), std: Some(std), ..ImageOptions::default() };
        if normalisation.is_empty() { Ok(self) } else { self.normalised("the records", &options) }
    }

    /// The mean and the standard deviation of each channel by which images were normalised; empty if they were not.
    pub fn normalisation(&self) -> &[(f64, f64)] {
        &self.normalisation
    }

    /// Splits into a training set and, unless `test_fraction` is 0, a test set of the [slots](Self::slots) that [`held_out`] lists: records,
    /// or units with all their records. The records of each set keep their order.
    ///
    /// # Guarantees
    ///
    /// Replacing what a slot holds changes one slot of one part. Adding or removing a slot changes the permutation and may move
    /// any slot to the other part. So the number of slots is public, and a slot that holds nothing keeps its place.
    ///
    /// # Errors
    ///
    /// See [`held_out`].
    pub fn split(self, test_fraction: f64, seed: u64) -> Result<(Dataset, Option<Dataset>), DataError> {
        let tests = test_slots(self.slots(), test_fraction)?;
        if tests == 0 {
            return Ok((self, None));
        }
        let held_out = first_of_permutation(self.slots(), tests, seed);
        let side = match &self.units {
            Some(units) => units.for_records(&held_out),
            None => held_out,
        };
        let Dataset { shape, values, labels, units, normalisation, preparation, .. } = self;
        let ((values, test_values), (labels, test_labels)) =
            rayon::join(|| values.split(shape, &side), || labels.split(&side));
        let part = |values, labels, wanted| Dataset {
            shape,
            encoding: self.encoding,
            values,
            labels,
            normalisation: normalisation.clone(),
            units: units.as_ref().map(|units| units.part(&side, wanted)),
            observed_classes: self.observed_classes,
            preparation: preparation.clone(),
        };
        Ok((part(values, labels, false), Some(part(test_values, test_labels, true))))
    }

    /// The records of these [slots](Self::slots), in the same order. Records in files stay there.
    pub fn slots_from(&self, slots: std::ops::Range<usize>) -> Dataset {
        let wanted: Vec<bool> = (0..self.slots()).map(|slot| slots.contains(&slot)).collect();
        let side = self.units.as_ref().map_or(wanted.clone(), |units| units.for_records(&wanted));
        self.part(&side, true)
    }

    /// The records whose entry in `side` equals `wanted`.
    pub(crate) fn part(&self, side: &[bool], wanted: bool) -> Dataset {
        let labels = match &self.labels {
            LabelValues::Absent => LabelValues::Absent,
            LabelValues::Classes { classes, names } => {
                LabelValues::Classes { classes: keep(classes, 1, side, wanted), names: names.clone() }
            }
            LabelValues::Numbers { values, scales } => LabelValues::Numbers {
                values: keep(values, scales.len(), side, wanted),
                scales: scales.clone(),
            },
            LabelValues::NextTokens { from } => LabelValues::NextTokens { from: keep(from, 1, side, wanted) },
        };
        let values = self.values.part(self.shape, side, wanted);
        let normalisation = self.normalisation.clone();
        let units = self.units.as_ref().map(|units| units.part(side, wanted));
        let (shape, encoding, observed_classes) = (self.shape, self.encoding, self.observed_classes);
        let preparation = self.preparation.clone();
        Dataset { shape, encoding, values, labels, normalisation, units, observed_classes, preparation }
    }
}

/// The indices of the records or units that a split holds out for testing, in ascending order.
///
/// `round(count * test_fraction)` indices are drawn by a uniformly random permutation (ChaCha20, keyed by `seed`). The split
/// depends only on their number and the seed.
///
/// # Errors
///
/// `test_fraction` must be 0 (no records are held out), or below 1 and leave at least 1 record in each part.
pub fn held_out(count: usize, test_fraction: f64, seed: u64) -> Result<Vec<usize>, DataError> {
    let tests = test_slots(count, test_fraction)?;
    if tests == 0 {
        return Ok(Vec::new());
    }
    let sides = first_of_permutation(count, tests, seed);
    Ok((0..).zip(sides).filter_map(|(slot, held_out)| held_out.then_some(slot)).collect())
}

/// The number of slots that a split holds out.
fn test_slots(count: usize, test_fraction: f64) -> Result<usize, DataError> {
    let refuse = |permitted: String| {
        let hint = "{test_fraction=0.2} holds out a fifth of the records for testing, {test_fraction=0} none"
            .to_owned();
        Err(DataError::Setting { what: "test fraction", permitted, got: test_fraction.to_string(), hint })
    };
    if !(0.0..1.0).contains(&test_fraction) {
        return refuse("at least 0 and below 1".to_owned());
    }
    if test_fraction == 0.0 {
        return Ok(0);
    }
    let tests = (count as f64 * test_fraction).round() as usize;
    if tests == 0 || tests >= count {
        return refuse(format!("0, or large enough for 1 of {count} records and small enough to leave 1"));
    }
    Ok(tests)
}

/// The error for a data set without records.
pub(crate) fn no_records(file: &str) -> DataError {
    DataError::file(file, "there are no records", "a data set needs at least 1 record")
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("records", &self.len())
            .field("shape", &self.shape)
            .field("labels", &self.labels.describe())
            .finish_non_exhaustive()
    }
}

/// For each of `0 .. count`, whether it is among the first `chosen` of a uniformly random permutation by the Fisher-Yates shuffle.
///
/// The shuffle goes from the last place to the first and exchanges each element with one at or before its place. Exchanges within the
/// first `chosen` places do not change which elements are there, so they are not drawn. The other exchanges are drawn first. They are then
/// undone in reverse order on one flag per place, which needs little memory. When an exchange is undone, the flags from its place on are
/// all false.
fn first_of_permutation(count: usize, chosen: usize, seed: u64) -> Vec<bool> {
    let mut random = generator(seed);
    // Half the memory, if the indices are small enough.
    match u32::try_from(count) {
        Ok(_) => {
            undone(count, chosen, |last| below(last as u64 + 1, &mut random) as u32, |place| place as usize)
        }
        Err(_) => undone(count, chosen, |last| below(last as u64 + 1, &mut random), |place| place as usize),
    }
}

/// Draws the exchanges of a shuffle and undoes them on the flags of the first `chosen` places.
fn undone<T: Copy>(
    count: usize,
    chosen: usize,
    draw: impl FnMut(usize) -> T,
    place: impl Fn(T) -> usize,
) -> Vec<bool> {
    let draws: Vec<T> = (chosen..count).rev().map(draw).collect();
    let mut flags = vec![false; count];
    flags[..chosen].fill(true);
    for (last, other) in (chosen..count).zip(draws.into_iter().rev().map(place)) {
        let flag = flags[other];
        flags[other] = false;
        flags[last] = flag;
    }
    flags
}

/// Runs are resumed by their seed. `seed_from_u64` and the shuffle of `rand` may change with the version of the crate, so neither is used.
fn generator(seed: u64) -> ChaCha20Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    ChaCha20Rng::from_seed(key)
}

/// Uniform in `0 .. bound`, by rejection: draws beyond the last whole multiple of `bound` are repeated.
fn below(bound: u64, random: &mut ChaCha20Rng) -> u64 {
    loop {
        let draw = random.next_u64();
        // Nearly all draws pass the first comparison, which needs no division. It is correct because the last multiple is above
        // `u64::MAX - bound`.
        if draw <= u64::MAX - bound || draw < u64::MAX - u64::MAX % bound {
            return draw % bound;
        }
    }
}

/// Returns an error if a data set of this many values would be too large.
pub(crate) fn check_size(place: impl FnOnce() -> String, values: usize) -> Result<(), DataError> {
    if values > MAX_VALUES {
        let hint = "use a folder with x.npy, or a file written by sordino data convert: their records are not held in memory";
        return Err(DataError::file(
            place(),
            format!("more than {MAX_VALUES} values, the maximum for a data set in memory"),
            hint,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Record `i` is `[first + i, -i]` and has the target `10 i`.
    fn records(count: usize, first: f32) -> Dataset {
        let values: Vec<f32> = (0..count).flat_map(|i| [first + i as f32, -(i as f32)]).collect();
        let labels = LabelValues::Numbers {
            values: (0..count).map(|i| 10.0 * i as f32).collect(),
            scales: vec![Scale::NONE],
        };
        Dataset::new("test", Shape::Features(2), Encoding::Floats, values, labels).unwrap()
    }

    /// The places of a part's records, checking that a record keeps its values and its target.
    fn places(part: &Dataset) -> Vec<usize> {
        let (Inputs::Dense(values), Some(Targets::Values { values: targets, width: 1 })) =
            (part.inputs(), part.targets())
        else {
            panic!("numbers")
        };
        assert_eq!(targets.len(), part.len());
        let place = |(record, &target): (&[f32], &f32)| {
            assert_eq!(target, -10.0 * record[1]);
            -record[1] as usize
        };
        values.chunks_exact(2).zip(targets).map(place).collect()
    }

    #[test]
    fn a_split_is_disjoint_and_covers_all() {
        let (train, test) = records(101, 0.0).split(0.25, 7).unwrap();
        let (train, test) = (places(&train), places(&test.unwrap()));
        assert_eq!((train.len(), test.len()), (76, 25));
        assert_eq!(held_out(101, 0.25, 7).unwrap(), test);
        assert!(train.is_sorted() && test.is_sorted());
        let mut all = [train, test].concat();
        all.sort_unstable();
        assert_eq!(all, (0..101).collect::<Vec<_>>());
    }

    #[test]
    fn a_split_depends_on_the_seed_and_not_on_the_values() {
        let split = |first, seed| places(&records(101, first).split(0.25, seed).unwrap().1.unwrap());
        assert_eq!(split(0.0, 7), split(0.0, 7));
        assert_eq!(split(0.0, 7), split(1e6, 7));
        assert_ne!(split(0.0, 7), split(0.0, 8));
    }

    #[test]
    fn a_split_is_the_same_in_every_version() {
        // Runs are resumed by their seed, so these must never change.
        assert_eq!(held_out(20, 0.25, 0).unwrap(), [0, 5, 8, 14, 15]);
        assert_eq!(held_out(1_000_000, 5e-6, 7).unwrap(), [187_342, 189_117, 443_523, 709_016, 983_141]);
    }

    /// The whole shuffle, of which the first places are held out.
    #[test]
    fn held_out_slots_are_the_first_of_a_shuffle() {
        for (count, tests) in [(2, 1), (3, 2), (10, 1), (10, 9), (57, 20), (1000, 333)] {
            for seed in [0, 1, 99] {
                let mut random = generator(seed);
                let mut places: Vec<usize> = (0..count).collect();
                for last in (1..count).rev() {
                    places.swap(last, below(last as u64 + 1, &mut random) as usize);
                }
                let mut first = vec![false; count];
                places[..tests].iter().for_each(|&place| first[place] = true);
                assert_eq!(first_of_permutation(count, tests, seed), first, "{count} {tests} {seed}");
            }
        }
    }

    #[test]
    fn every_record_is_held_out_equally_often() {
        let mut counts = [0_u32; 10];
        for seed in 0..4000 {
            for place in places(&records(10, 0.0).split(0.3, seed).unwrap().1.unwrap()) {
                counts[place] += 1;
            }
        }
        // 4000 draws at 0.3: mean 1200, standard deviation 29; five deviations on each side.
        assert!(counts.iter().all(|count| (1055..=1345).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_fraction_that_leaves_a_part_empty_is_refused() {
        for fraction in [1.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
            let error = records(10, 0.0).split(fraction, 0).unwrap_err();
            let expected = format!("test fraction must be at least 0 and below 1, got {fraction}");
            assert_eq!(error.to_string(), expected);
        }
        let (train, test) = records(10, 0.0).split(0.0, 0).unwrap();
        assert!(train.len() == 10 && test.is_none());
        for (count, fraction) in [(10, 0.01), (10, 0.99), (1, 0.5)] {
            let error = records(count, 0.0).split(fraction, 0).unwrap_err().to_string();
            assert!(error.contains(&format!("1 of {count} records")), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_values() {
        let shown = format!("{:?}", records(3, 4711.0));
        assert_eq!(shown, "Dataset { records: 3, shape: Features(2), labels: \"1 numbers\", .. }");
    }

    #[test]
    fn no_records_and_too_many_values_are_refused() {
        let error =
            Dataset::new("a.csv", Shape::Features(2), Encoding::Text, Vec::<f32>::new(), LabelValues::Absent)
                .unwrap_err();
        assert_eq!(error.to_string(), "a.csv: there are no records");
        assert!(check_size(|| "a.csv".to_owned(), MAX_VALUES).is_ok());
        let error = check_size(|| "a.csv".to_owned(), MAX_VALUES + 1).unwrap_err().to_string();
        assert!(error.starts_with("a.csv: more than 2147483648 values"), "{error}");
    }
}
