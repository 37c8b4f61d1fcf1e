//! Units of privacy: persons, or other units, that several records belong to.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use sordino_nn::Units;

use crate::dataset::Dataset;
use crate::error::DataError;

/// The largest permitted number of records of a unit.
const MAX_RECORDS_PER_UNIT: usize = 1 << 16;
/// The number of records of a unit that are used by default.
const RECORDS_PER_UNIT: usize = 20;

/// The unit of each record, and the records of each unit that are used.
#[derive(Debug, Clone)]
pub(crate) struct RecordUnits {
    /// What a unit is, such as the name of the column that identifies it.
    name: String,
    /// The unit of each record.
    ids: Vec<UnitId>,
    /// The slot of each record: its unit's place in the order of first records.
    slots: Vec<usize>,
    /// The public number of records of a unit that are used; none if all are.
    most: Option<usize>,
    /// The records of each unit that are used, in the order of the records. Units are in the order of their first records.
    units: Units,
}

/// Identifies a unit: a part of the SHA-256 hash of its id. If two units had the same hash, they would be protected together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UnitId(pub(crate) u64);

impl UnitId {
    /// The unit with this id. A whole number with zeros after its decimal point, as pandas writes a column of ids with gaps, is the same id as the
    /// number without them.
    pub(crate) fn of(id: &[u8]) -> UnitId {
        let hash = Sha256::digest(without_decimal_zeros(id));
        UnitId(hash.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

impl RecordUnits {
    /// The units of these records.
    pub(crate) fn new(name: &str, ids: Vec<UnitId>) -> RecordUnits {
        let mut places = HashMap::new();
        let slots: Vec<usize> = ids
            .iter()
            .map(|id| {
                let next = places.len();
                *places.entry(*id).or_insert(next)
            })
            .collect();
        let most = Some(RECORDS_PER_UNIT);
        let units = first_records(&slots, most);
        RecordUnits { name: name.to_owned(), ids, slots, most, units }
    }

    /// The value of each record's slot.
    pub(crate) fn for_records<T: Copy>(&self, values: &[T]) -> Vec<T> {
        self.slots.iter().map(|&slot| values[slot]).collect()
    }

    /// The unit of each record.
    pub(crate) fn ids(&self) -> &[UnitId] {
        &self.ids
    }

    /// The records whose entry in `side` equals `wanted`.
    pub(crate) fn part(&self, side: &[bool], wanted: bool) -> RecordUnits {
        let ids = self.ids.iter().zip(side).filter(|&(_, &side)| side == wanted);
        let part = RecordUnits::new(&self.name, ids.map(|(id, _)| *id).collect());
        part.limited(self.most)
    }

    /// The first `most` records of each unit; all without a number.
    fn limited(self, most: Option<usize>) -> RecordUnits {
        RecordUnits { units: first_records(&self.slots, most), most, ..self }
    }
}

/// `17` for `17.0`; other ids are not changed.
fn without_decimal_zeros(id: &[u8]) -> &[u8] {
    let Some(point) = id.iter().position(|&byte| byte == b'.') else { return id };
    let (whole, zeros) = (&id[..point], &id[point + 1..]);
    let digits = whole.strip_prefix(b"-").unwrap_or(whole);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if is_number && !zeros.is_empty() && zeros.iter().all(|&byte| byte == b'0') { whole } else { id }
}

/// The first `most` records of each slot; all without a number.
fn first_records(slots: &[usize], most: Option<usize>) -> Units {
    let most = most.unwrap_or(usize::MAX);
    let mut members = vec![Vec::new(); slots.iter().max().map_or(0, |last| last + 1)];
    for (record, &slot) in slots.iter().enumerate() {
        if members[slot].len() < most {
            members[slot].push(record);
        }
    }
    let mut starts = vec![0];
    for unit in &members {
        starts.push(starts[starts.len() - 1] + unit.len());
    }
    Units::new(members.concat(), starts).expect("every record has one slot")
}

/// Units of privacy.
///
/// By default, the unit of privacy is a record. If a person has several records, the guarantee for one record does not protect the person.
/// With units, all records of a unit are used and protected together, and the guarantee is about a unit.
impl Dataset {
    /// Declares the unit of each record: `ids[i]` identifies the unit of record `i`. `name` states what a unit is, such as `patient`. At
    /// most 20 records of each unit are used; [`limit_units`](Self::limit_units) changes this number.
    ///
    /// # Errors
    ///
    /// Another number of ids than records; an empty name or id.
    ///
    /// ```
    /// use sordino_data::Dataset;
    ///
    /// let visits = Dataset::from_rows(&[[0.1], [0.7], [0.4]], &[true, false, true])?;
    /// let visits = visits.in_units("patient", &["anna", "ben", "anna"])?;
    /// assert_eq!((visits.len(), visits.slots(), visits.unit()), (3, 2, Some("patient")));
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn in_units(self, name: &str, ids: &[impl ToString]) -> Result<Dataset, DataError> {
        let refuse = |problem: String, hint: &str| Err(DataError::file("the units", problem, hint));
        if name.trim_ascii().is_empty() {
            return refuse("the unit has no name".to_owned(), "name what a unit is, such as \"patient\"");
        }
        if ids.len() != self.len() {
            return refuse(
                format!("there are {} ids for {} records", ids.len(), self.len()),
                "give the id of the unit of each record",
            );
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        if let Some(place) = ids.iter().position(|id| id.trim_ascii().is_empty()) {
            let hint =
                "every record needs the id of its unit; a record that is a unit by itself needs its own id";
            return Err(DataError::file(format!("ids[{place}]"), "the id is empty", hint));
        }
        let ids = ids.iter().map(|id| UnitId::of(id.trim_ascii().as_bytes())).collect();
        Ok(self.with_units(RecordUnits::new(name, ids)))
    }

    /// Uses at most this many records of each unit: its first ones, in the order of the records. Which records of a unit are used does not
    /// depend on other units.
    ///
    /// # Errors
    ///
    /// `most` is 0 or more than 65,536.
    pub fn limit_units(mut self, most: usize) -> Result<Dataset, DataError> {
        if !(1..=MAX_RECORDS_PER_UNIT).contains(&most) {
            return Err(DataError::Setting {
                what: "number of records per unit",
                permitted: format!("1 to {MAX_RECORDS_PER_UNIT}"),
                got: most.to_string(),
                hint: "{records_per_unit=20} uses the first 20 records of each unit".to_owned(),
            });
        }
        self.units = self.units.map(|units| units.limited(Some(most)));
        Ok(self)
    }

    /// Uses all records of each unit. This is for mechanisms whose work does not grow with the number of records of a unit, such as the local
    /// steps of a client.
    #[must_use]
    pub fn with_whole_units(mut self) -> Dataset {
        self.units = self.units.map(|units| units.limited(None));
        self
    }

    /// The records of one unit that are used, as a data set whose records are units by themselves.
    ///
    /// # Panics
    /// If there is no such unit.
    #[must_use]
    pub fn of_unit(&self, slot: usize) -> Dataset {
        let mut side = vec![false; self.len()];
        let members = self.units().map_or(std::slice::from_ref(&slot), |units| units.members(slot));
        members.iter().for_each(|&record| side[record] = true);
        self.part(&side, true).without_units()
    }

    /// The same records, each a unit by itself.
    #[must_use]
    pub fn without_units(mut self) -> Dataset {
        self.units = None;
        self
    }

    /// What a unit of privacy is, if it is not a record.
    pub fn unit(&self) -> Option<&str> {
        self.units.as_ref().map(|units| units.name.as_str())
    }

    /// The public number of records of a unit that are used; none if all are, and if every record is a unit.
    pub fn records_per_unit(&self) -> Option<usize> {
        self.units.as_ref().and_then(|units| units.most)
    }

    /// The records of each unit that are used; none if every record is a unit.
    pub fn units(&self) -> Option<&Units> {
        self.units.as_ref().map(|units| &units.units)
    }

    /// The number of units of privacy, which is public.
    pub fn slots(&self) -> usize {
        self.units().map_or(self.len(), Units::len)
    }

    /// Whether a unit has records in both data sets.
    pub fn shares_units_with(&self, other: &Dataset) -> bool {
        let ids = |data: &Dataset| data.units.as_ref().map_or(Vec::new(), |units| units.ids.clone());
        let own: std::collections::HashSet<UnitId> = ids(self).into_iter().collect();
        ids(other).iter().any(|id| own.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(ids: &[&str]) -> Dataset {
        let rows: Vec<[f32; 1]> = (0..ids.len()).map(|i| [i as f32]).collect();
        let labels: Vec<f32> = vec![0.0; ids.len()];
        Dataset::from_rows(&rows, &labels).unwrap().in_units("patient", ids).unwrap()
    }

    fn members(data: &Dataset) -> Vec<Vec<usize>> {
        let units = data.units().unwrap();
        (0..units.len()).map(|unit| units.members(unit).to_vec()).collect()
    }

    #[test]
    fn units_keep_the_order_of_their_first_records() {
        let data = visits(&["b", "a", "b", "c", "a", "b"]);
        assert_eq!(members(&data), [vec![0, 2, 5], vec![1, 4], vec![3]]);
        assert_eq!((data.len(), data.slots(), data.unit()), (6, 3, Some("patient")));
    }

    #[test]
    fn the_first_records_of_a_unit_are_used_whatever_the_others_are() {
        let data = visits(&["b", "a", "b", "c", "a", "b"]).limit_units(2).unwrap();
        assert_eq!(members(&data), [vec![0, 2], vec![1, 4], vec![3]]);
        let other = visits(&["b", "x", "b", "y", "z", "b"]).limit_units(2).unwrap();
        assert_eq!(members(&other)[0], members(&data)[0]);
        for most in [0, 65_537] {
            let error = visits(&["a"]).limit_units(most).unwrap_err().to_string();
            assert_eq!(error, format!("number of records per unit must be 1 to 65536, got {most}"));
        }
    }

    #[test]
    fn a_unit_is_limited_to_20_records_unless_another_number_is_given() {
        let ids = ["a"; 30];
        assert_eq!((visits(&ids).records_per_unit(), members(&visits(&ids))[0].len()), (Some(20), 20));
        let few = visits(&ids).limit_units(3).unwrap();
        let part = few.part(&[true; 30], true);
        assert_eq!((part.records_per_unit(), members(&part)), (Some(3), vec![vec![0, 1, 2]]));
        let whole = few.with_whole_units().part(&[true; 30], true);
        assert_eq!((whole.records_per_unit(), members(&whole)), (None, vec![(0..30).collect()]));
    }

    #[test]
    fn the_records_of_a_unit_are_a_data_set() {
        let data = visits(&["b", "a", "b", "c", "a", "b"]).limit_units(2).unwrap();
        for (slot, records) in [(0, vec![0.0, 2.0]), (1, vec![1.0, 4.0]), (2, vec![3.0])] {
            let part = data.of_unit(slot);
            let sordino_nn::Inputs::Dense(values) = part.inputs() else { panic!("numbers") };
            assert_eq!((values, part.unit(), part.slots()), (&records[..], None, records.len()));
        }
    }

    #[test]
    fn a_split_never_tears_a_unit() {
        let ids: Vec<String> = (0..300).map(|i| (i * i % 41).to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let all = visits(&ids).slots();
        for seed in 0..20 {
            let (train, test) = visits(&ids).split(0.3, seed).unwrap();
            let test = test.unwrap();
            assert!(!train.shares_units_with(&test));
            assert_eq!(train.slots() + test.slots(), all);
            assert_eq!(test.slots(), (all as f64 * 0.3).round() as usize);
            assert_eq!(train.len() + test.len(), 300);
        }
        assert!(visits(&ids).shares_units_with(&visits(&ids[..1])));
    }

    #[test]
    fn spaces_around_an_id_do_not_matter_and_empty_ids_are_refused() {
        assert_eq!(visits(&["a", " a", "a "]).slots(), 1);
        assert_eq!(visits(&["7", "7.0", "7.00", "-7.0", "-7"]).slots(), 2);
        assert_eq!(visits(&["7", "07", "7.", "7.1", ".0", "a.0", "a", "1.0.0"]).slots(), 8);
        let rows = || Dataset::from_rows(&[[0.0], [1.0]], &[0.5, 0.5]).unwrap();
        let message = |ids: &[&str]| rows().in_units("patient", ids).unwrap_err().to_string();
        assert_eq!(message(&["a", " "]), "ids[1]: the id is empty");
        assert_eq!(message(&["a"]), "the units: there are 1 ids for 2 records");
        assert!(rows().in_units("", &[1, 2]).is_err());
    }
}
